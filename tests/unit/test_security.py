"""Settings of TLS and SASL: refused by name, translated in full; secrets stay."""

import socket
import ssl
from contextlib import nullcontext, suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from ticking import Ticking

from cluster import keys
from trimtab.cli.main import main
from trimtab.common.errors import SaslAuthenticationError, SettingError, TlsHandshakeError
from trimtab.common.kafka_security import connection, tls
from trimtab.common.kafka_security import preflight as knocking
from trimtab.common.kafka_security.secrets import resolve_secrets
from trimtab.common.kafka_security.tokens import CachedTokenProvider

SASL = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "u"}
LOGIN = {**SASL, "sasl.password": "hunter2"}


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.crt, client.crt and client.key."""
    folder = tmp_path_factory.mktemp("pem")
    keys.signed(folder, "client", "ca", "client")
    return folder


@pytest.mark.parametrize(
    ("wrong", "said"),
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
        ({**LOGIN, "sasl.oauthbearer.method": "oidc"}, "give oauth_cb"),
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
        (
            {**SASL, "sasl.mechanism": "OAUTHBEARER", "oauth_cb": "no.such:thing"},
            'write "module:function"',
        ),
    ],
)
def test_what_would_not_be_noticed_is_refused(wrong: dict[str, Any], said: str) -> None:
    """Each setting that one of the clients would drop is named, with what to write instead."""
    with pytest.raises(SettingError, match=said.replace("(", "[(]")) as caught:
        connection.check_settings(wrong)
    assert "hunter2" not in str(caught.value)


def test_a_reference_is_replaced_wherever_it_stands(tmp_path: Path) -> None:
    """Files without their last newline, the environment, parts of a text, nested mappings."""
    file = tmp_path / "password"
    file.write_text("hunter2\n")
    given = {
        "sasl.password": f"${{file:{file}}}",
        "basic.auth.user.info": "me:${env:PASS}",
        "kafka": {"ssl.key.password": "${env:PASS}"},
        "topics": ["$a", "${b}"],
        "port": 1,
    }
    found = resolve_secrets(given, {"PASS": "word"})
    assert found["sasl.password"] == "hunter2"
    assert found["basic.auth.user.info"] == "me:word"
    assert found["kafka"] == {"ssl.key.password": "word"}
    assert found["topics"] == ["$a", "${b}"]


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${env:NOT_SET}", "sasl.password: the environment has no NOT_SET"),
        ("${file:/no/such}", "sasl.password: /no/such cannot be read: No such file"),
    ],
)
def test_a_secret_that_is_not_there_is_named(reference: str, said: str) -> None:
    """The setting and the reference are told."""
    with pytest.raises(SettingError, match=said):
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
def test_no_secret_on_a_command_line(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A literal secret ends with 2 and what to write; it is not shown again."""
    config = tmp_path / "ingest.yaml"
    config.write_text("group.id: g\n")
    assert main([str(config) if word == "CONFIG" else word for word in words]) == 2
    said = capsys.readouterr()
    assert "hunter2" not in said.out + said.err
    assert "${file:PATH}" in said.err or "needs name=value" in said.err


def test_pem_texts_become_a_context(pem: Path) -> None:
    """Both clients take PEM as text; the key is never a file on a disk."""
    text = {name: (pem / name).read_text() for name in ("ca.crt", "client.crt", "client.key")}
    config = {
        "security.protocol": "SSL",
        "ssl.ca.pem": text["ca.crt"],
        "ssl.certificate.pem": text["client.crt"],
        "ssl.key.pem": text["client.key"],
    }
    context = connection.to_kafka_python_config(config)["ssl_context"]
    assert len(context.get_ca_certs()) == 1
    assert context.verify_mode is ssl.CERT_REQUIRED
    with pytest.raises(SettingError, match="belongs together") as caught:
        connection.check_settings({**config, "ssl.key.pem": text["client.key"][:-60]})
    assert "BEGIN" not in str(caught.value)


def test_checks_can_be_switched_off_by_name() -> None:
    """Of the certificate, or of its host name alone; by default both are looked at."""
    host = {"ssl.endpoint.identification.algorithm": "none"}
    assert tls.create_client_context({}).check_hostname
    assert not tls.create_client_context(host).check_hostname
    assert tls.create_client_context(host).verify_mode is ssl.CERT_REQUIRED
    off = tls.create_client_context({"enable.ssl.certificate.verification": False})
    assert (off.check_hostname, off.verify_mode) == (False, ssl.CERT_NONE)


def test_a_token_is_kept_while_it_is_good() -> None:
    """A callback asks somebody far away; it is asked again shortly before a token's end."""
    clock = Ticking()
    asked: list[str] = []

    def ask(config: str) -> tuple[str, float, str, dict[str, str]]:
        asked.append(config)
        return f"token-{len(asked)}", clock.wall() + 100, "me", {"tenant": "blue"}

    tokens = CachedTokenProvider(ask, "scope=x", clock)
    assert [tokens.token(), tokens.token()] == ["token-1", "token-1"]
    assert tokens.extensions() == {"tenant": "blue"}
    clock.now += 71
    assert tokens.token() == "token-2"
    assert asked == ["scope=x"] * 2


@pytest.mark.parametrize(
    ("answer", "said"),
    [(ValueError("hunter2"), "gives no token .ValueError"), (("t", 5.0), "ended 995 s ago")],
)
def test_a_callback_without_a_token_is_told(answer: Any, said: str) -> None:
    """What it raised is named by its kind: its text may hold what was sent."""

    def ask(_: str) -> tuple[str, float]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(SaslAuthenticationError, match=said) as caught:
        CachedTokenProvider(ask, "", Ticking(epoch=0.0)).token()
    assert "hunter2" not in str(caught.value)


def test_one_broker_with_a_bad_certificate_keeps_nobody_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only where TLS can be agreed on with nobody who is there is it an error, the first one's."""
    there: set[str] = {"good"}

    def shake(_: object, address: tuple[str, int], *__: object) -> bool:
        if address[0] not in there:
            raise TlsHandshakeError(f"{address[0]} is not trusted")
        return True

    monkeypatch.setattr(knocking, "_connect_with_retries", shake)
    config = {"bootstrap.servers": "bad:1,good:1,worse:1", "security.protocol": "SSL"}
    knocking.check_connection(config)
    there.clear()
    with pytest.raises(TlsHandshakeError, match="bad"):
        knocking.check_connection(config)


class Broker:
    """Speaks TLS and answers whatever it is asked, but hangs up on the first ones that come."""

    def __init__(self, folder: Path, hangs_up: int) -> None:
        keys.signed(folder, "broker", "ca", "broker", ["127.0.0.1"])
        self.met = 0
        self._hangs_up = hangs_up
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
        with suppress(OSError):  # it is closed
            while True:
                plain, _ = self._listener.accept()
                self.met += 1
                with plain:
                    if self.met > self._hangs_up:
                        self._answer(plain)

    def _answer(self, plain: socket.socket) -> None:
        with self._context.wrap_socket(plain, server_side=True) as spoken:
            spoken.sendall(spoken.recv(64))


@pytest.mark.parametrize("hangs_up", [0, 2, 3])
def test_a_broker_that_hangs_up_is_asked_again(tmp_path: Path, hangs_up: int) -> None:
    """It may only be starting; what always hangs up is said to, and may be a port without TLS."""
    broker, clock = Broker(tmp_path, hangs_up), Ticking()
    config = {
        "bootstrap.servers": broker.address,
        "security.protocol": "SSL",
        "ssl.ca.location": str(tmp_path / "ca.crt"),
    }
    refusal = pytest.raises(
        TlsHandshakeError, match=r"closed the connection 3 times.*write PLAINTEXT"
    )
    try:
        with refusal if hangs_up == knocking.HANDSHAKE_ATTEMPTS else nullcontext():
            knocking.check_connection(config, clock=clock)
    finally:
        broker.close()
    assert broker.met == min(hangs_up + 1, knocking.HANDSHAKE_ATTEMPTS)
