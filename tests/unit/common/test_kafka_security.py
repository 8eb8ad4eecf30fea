"""TLS and SASL settings: rejection by name, translation, and secrecy of secrets."""

import socket
import ssl
import time
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from cluster import keys
from support.ticking import Ticking
from trimtab.cli.main import main
from trimtab.common import tls
from trimtab.common.errors import SaslAuthenticationError, SettingError, TlsHandshakeError
from trimtab.common.kafka_security import client_config, preflight
from trimtab.common.kafka_security.secrets import mask_passwords, reject_secret_argument, resolve_secrets
from trimtab.common.kafka_security.token_provider import CachedTokenProvider

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
LOGIN = {**SASL, "sasl.password": "hunter2"}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.crt, client.crt and client.key."""
    folder = tmp_path_factory.mktemp("pem")
    keys.signed(folder, "client", "ca", "client")
    return folder


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"sasl.password": "hunter2"}, "no client would log in; write security.protocol=SASL_SSL"),
        ({"security.protocol": "SSL", "oauth_cb": "a:b"}, "oauth_cb given, but"),
        ({"ssl.ca.location": "/ca.pem"}, "nothing would be encrypted"),
        ({"security.protocol": "TLS"}, "'TLS' is none of PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism is missing; write SCRAM-SHA-512"),
        (SASL, "sasl.mechanism=PLAIN needs sasl.password"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER needs oauth_cb"),
        ({**LOGIN, "ssl.keystore.location": "x"}, "ssl.certificate.location and ssl.key.location"),
        ({**LOGIN, "ssl.truststore.location": "x"}, "ssl.ca.location"),
        ({**LOGIN, "sasl.jaas.config": "hunter2"}, "give sasl.mechanism, sasl.username"),
        ({**LOGIN, "sasl.oauthbearer.method": "oidc"}, "oidc needs sasl.mechanism=OAUTHBEARER"),
        ({**LOGIN, "sasl.oauthbearer.assertion.file": "hunter2"}, "give oauth_cb"),
        ({**LOGIN, "ssl.ca.location": "/nowhere"}, "ssl.ca.location /nowhere cannot be used: No"),
        ({**LOGIN, "ssl.ca.pem": "hunter2"}, "ssl.ca.pem cannot be used"),
        (
            {**LOGIN, "ssl.ca.pem": "hunter2", "ssl.ca.location": "/ca.pem"},
            "ssl.ca.pem and ssl.ca.location are both given",
        ),
        ({**LOGIN, "ssl.key.location": "/key.pem"}, "ssl.key.location given, but no certificate"),
        (
            {**LOGIN, "ssl.key.pem": "hunter2", "ssl.key.password": "hunter2"},
            "ssl.key.password and ssl.key.pem given, but no certificate",
        ),
        ({**LOGIN, "ssl.cipher.suites": "none-such"}, "OpenSSL knows none"),
        ({**SASL, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "no.such:thing"}, 'write "module:function"'),
    ],
)
def test_ignored_settings_are_rejected(config: dict[str, Any], text: str) -> None:
    """The error names each setting that a client would ignore, and its replacement."""
    with pytest.raises(SettingError, match=text.replace("(", "[(]")) as caught:
        client_config.check_settings(config)
    assert "hunter2" not in str(caught.value)


def test_references_are_resolved_everywhere(tmp_path: Path) -> None:
    """In files (without the last newline), the environment, parts of texts and nested mappings."""
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    given = {
        "sasl.password": f"${{file:{file}}}",
        "basic.auth.user.info": "me:${env:PASS}",
        "kafka": {"ssl.key.password": "${env:PASS}"},
        "topics": ["$a", "${b}"],
        "port": 1,
    }
    resolved = resolve_secrets(given, {"PASS": "word"})
    assert resolved["sasl.password"] == "hunter2"
    assert resolved["basic.auth.user.info"] == "me:word"
    assert resolved["kafka"] == {"ssl.key.password": "word"}
    assert resolved["topics"] == ["$a", "${b}"]


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        ("${env:NOT_SET}", "sasl.password: the environment has no NOT_SET"),
        ("${file:/no/such}", "sasl.password: /no/such cannot be read: No such file"),
    ],
)
def test_a_missing_secret_is_named(reference: str, text: str) -> None:
    """The error shows the setting and the source of the secret."""
    with pytest.raises(SettingError, match=text):
        resolve_secrets({"sasl.password": reference}, {})


@pytest.mark.parametrize(
    "words",
    [
        ["top", "--bootstrap", "b:1", "--group", "g", "--kafka", "sasl.password=hunter2"],
        ["sidecar", "--kafka", "ssl.key.pem=hunter2"],
        ["sidecar", "--kafka", "hunter2"],
        ["ingest", "-c", "CONFIG", "--set", "sasl.password=hunter2"],
        ["ingest", "-c", "CONFIG", "--set", "sasl.password:hunter2"],
    ],
)
def test_a_secret_on_the_command_line_is_rejected(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A literal secret exits with 2 and a remedy that does not show the secret."""
    config = tmp_path / "ingest.yaml"
    config.write_text("group.id: g\n")
    assert main([str(config) if word == "CONFIG" else word for word in words]) == 2
    printed = capsys.readouterr()
    assert "hunter2" not in printed.out + printed.err
    assert "${file:PATH}" in printed.err or "needs name=value" in printed.err


def test_pem_texts_become_a_context(pem: Path) -> None:
    """Both clients accept PEM text; the key is never written to disk."""
    text = {name: (pem / name).read_text() for name in ("ca.crt", "client.crt", "client.key")}
    config = {
        "security.protocol": "SSL",
        "ssl.ca.pem": text["ca.crt"],
        "ssl.certificate.pem": text["client.crt"],
        "ssl.key.pem": text["client.key"],
    }
    context = client_config.to_kafka_python_config(config)["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(SettingError, match="belongs together") as caught:
        client_config.check_settings({**config, "ssl.key.pem": text["client.key"][:-60]})
    assert "BEGIN" not in str(caught.value)


def test_verification_can_be_disabled() -> None:
    """For the certificate, or for the host name alone; by default both are verified."""
    host = {"ssl.endpoint.identification.algorithm": "none"}
    assert tls.create_client_context({}).check_hostname
    assert not tls.create_client_context(host).check_hostname
    assert tls.create_client_context(host).verify_mode is ssl.CERT_REQUIRED
    off = tls.create_client_context({"enable.ssl.certificate.verification": False})
    assert (off.check_hostname, off.verify_mode) == (False, ssl.CERT_NONE)


def test_a_token_is_cached_until_shortly_before_expiry() -> None:
    """The callback may be slow; it is called again shortly before the token expires."""
    clock = Ticking()
    calls: list[str] = []

    def create_token(config: str) -> tuple[str, float, str, dict[str, str]]:
        calls.append(config)
        return f"token-{len(calls)}", clock.wall() + 100, "me", {"tenant": "blue"}

    tokens = CachedTokenProvider(create_token, "scope=x", clock)
    assert [tokens.token(), tokens.token()] == ["token-1", "token-1"]
    assert tokens.extensions() == {"tenant": "blue"}
    clock.now += 71
    assert tokens.token() == "token-2"
    assert calls == ["scope=x"] * 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [(ValueError("hunter2"), "gives no token .ValueError"), (("t", 5.0), "ended 995 s ago")],
)
def test_a_failed_callback_is_named(answer: Any, text: str) -> None:
    """The error names the exception type only: its text may hold credentials."""

    def create_token(_: str) -> tuple[str, float]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(SaslAuthenticationError, match=text) as caught:
        CachedTokenProvider(create_token, "", Ticking(epoch=0.0)).token()
    assert "hunter2" not in str(caught.value)


def test_one_bad_certificate_does_not_block_other_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker's error is raised only if every reachable broker fails the handshake."""
    trusted = {"good"}

    def connect(_: object, address: tuple[str, int], *__: object) -> bool:
        if address[0] not in trusted:
            raise TlsHandshakeError(f"{address[0]} is not trusted")
        return True

    monkeypatch.setattr(preflight, "_connect_with_retries", connect)
    config = {"bootstrap.servers": "bad:1,good:1,worse:1", "security.protocol": "SSL"}
    preflight.check_connection(config)
    trusted.clear()
    with pytest.raises(TlsHandshakeError, match="bad"):
        preflight.check_connection(config)


class Broker:
    """TLS server that echoes requests, but closes the first connections."""

    def __init__(self, folder: Path, closings: int) -> None:
        keys.signed(folder, "broker", "ca", "broker", ["127.0.0.1"])
        self.connections = 0
        self._closings = closings
        self._context = tls.create_server_context(folder / "broker.crt", folder / "broker.key")
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = Thread(target=self._serve)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        with suppress(OSError):  # close() ends accept()
            while True:
                plain, _ = self._listener.accept()
                self.connections += 1
                with plain:
                    if self.connections > self._closings:
                        self._answer(plain)

    def _answer(self, plain: socket.socket) -> None:
        with self._context.wrap_socket(plain, server_side=True) as encrypted:
            encrypted.sendall(encrypted.recv(64))


@pytest.mark.parametrize("closings", [0, 2, 3])
def test_a_closed_connection_is_retried(tmp_path: Path, closings: int) -> None:
    """The broker may be starting; if it always closes, the error suggests a port without TLS."""
    broker, clock = Broker(tmp_path, closings), Ticking()
    config = {
        "bootstrap.servers": broker.address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca.crt"),
    }
    refusal = pytest.raises(TlsHandshakeError, match=r"closed the connection 3 times.*write PLAINTEXT")
    try:
        with refusal if closings == preflight.HANDSHAKE_ATTEMPTS else nullcontext():
            preflight.check_connection(config, clock=clock)
    finally:
        broker.close()
    assert broker.connections == min(closings + 1, preflight.HANDSHAKE_ATTEMPTS)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("jdbc:mysql://u:p@w@db:3306/lake is gone", "jdbc:mysql://u:***@db:3306/lake is gone"),
        ("jdbc:sqlserver://db;user=u;Password=p;x=1", "jdbc:sqlserver://db;user=u;Password=***;x=1"),
        ("jdbc:h2://db?sslpassword=p&password=q", "jdbc:h2://db?sslpassword=***&password=***"),
        ("{user=u, password=p}", "{user=u, password=***"),
        ("s3://bucket/a:b/c@d, http://catalog:8181/v1", "s3://bucket/a:b/c@d, http://catalog:8181/v1"),
        ("jdbc:oracle:thin:scott/ti/g@er@//db:1521/orcl", "jdbc:oracle:thin:scott/***@//db:1521/orcl"),
        ("jdbc:oracle:oci:app[lake]/tiger@tns, gone", "jdbc:oracle:oci:app[lake]/***@tns, gone"),
        ('jdbc:oracle:thin:scott/"a b@c"@db:1521:sid', "jdbc:oracle:thin:scott/***@db:1521:sid"),
        ('jdbc:oracle:thin:"Jo Nes"/pw@db', 'jdbc:oracle:thin:"Jo Nes"/***@db'),
        (f"jdbc:oracle:thin:scott/{'x' * 999}@db", "jdbc:oracle:thin:scott/***@db"),
        ("a=1,password='p',user='u',port=1", "a=1,password=***,user='u',port=1"),
        ("https://x.net/c?sv=2024&sig=aB%2Fc%3D&se=1", "https://x.net/c?sv=2024&sig=***&se=1"),
        ('"https://x.net/c?sv=1&amp;sig=aB%3D"', '"https://x.net/c?sv=1&amp;sig=***"'),
        ("token sig=aB%3D&se=2026", "token sig=***&se=2026"),
        ('password="a b;c" user="u"', 'password=*** user="u"'),
        ("{'password' : 'a b', 'user': 'u'}", "{'password' : ***, 'user': 'u'}"),
        ('{"db.password": "x\\"y", "user": "u"}', '{"db.password": ***, "user": "u"}'),
        ('"{\\"password\\": \\"x y\\", \\"n\\": 1}"', '"{\\"password\\": ***, \\"n\\": 1}"'),
        (r'"{\"password\": \"x\\\"y\", \"n\": 1}"', r'"{\"password\": ***, \"n\": 1}"'),
        ('trustStorePassword="a b was cut', "trustStorePassword=***"),
        ("password=\"\" and password=''", "password=*** and password=***"),
        ("password='it''s' user='u'", "password=*** user='u'"),
        ("'password='x'', password='y'", "'password=***', password=***"),
        ("'password=''', password='s'", "'password=***', password=***"),
    ],
)
def test_passwords_in_a_text_are_masked(text: str, masked: str) -> None:
    """Messages of drivers show their whole URL; the rest of it stays readable."""
    assert mask_passwords(text) == masked


@pytest.mark.parametrize(
    "text",
    [
        "jdbc:oracle:thin:@//db:1521/orcl",
        "jdbc:oracle:thin:/@wallet and jdbc:oracle:thin:@(DESCRIPTION=(ADDRESS=(HOST=db)))",
        "https://x.net/c?design=1&config=2&sigma=3",
        "the process got sig=15, and sig = 9",
        '{"password": null, "passwords": 3}',
        "lake.catalog.jdbc.password: must be set, or 'password' is wrong",
        'the password of "lake" was refused',
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text: str) -> None:
    """What only looks like a secret is what the reader needs."""
    assert mask_passwords(text) == text


@pytest.mark.parametrize(
    "value", ["jdbc:oracle:thin:scott/tiger@//db:1521/orcl", "abfss://c@a.net/lake?sv=1&sig=aB%3D"]
)
def test_a_secret_within_a_url_is_refused_on_a_command_line(value: str) -> None:
    """Everybody on the machine could read it."""
    with pytest.raises(SettingError, match="visible to other users") as caught:
        reject_secret_argument("--set", "lake.catalog.uri", value)
    assert "tiger" not in str(caught.value)
    reject_secret_argument("--set", "lake.catalog.uri", "jdbc:oracle:thin:@//db:1521/orcl")


@pytest.mark.parametrize(
    "part",
    [
        "jdbc:oracle:",
        "jdbc:oracle:thin:",
        "jdbc:oracle:thin:a/",
        "sig=",
        'password="',
        "password='",
        "password=''",
        "\\",
        "://a:",
    ],
)
def test_masking_takes_little_time_in_a_long_text(part: str) -> None:
    """Java's stacks have many lines, and a search that begins anew at each place would take minutes."""
    begun_at = time.process_time()
    mask_passwords(part * 20_000)
    assert time.process_time() - begun_at < 5
