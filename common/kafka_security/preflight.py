"""Knocks at the brokers before work begins: tells a refused login or TLS by name, and soon.

Both Kafka clients try again for ever, since a broker that is away comes back. A wrong password or
certificate does not mend itself, and what they say of it is spread over callbacks and logs, or is
the same for an expired certificate and a strange one. So TLS is tried with Python's own, which
says what is wrong, and the login with librdkafka, which says what the broker answered.

A broker that is away, or slow, is no refusal: then nothing is raised, and others tell. One that
hangs up while TLS is shaken may be starting, or a listener without TLS: it is asked again, and what
is said leaves both open. With TLS 1.3 a certificate of ours is refused after the handshake, in what
the broker says next; so it is asked for something that needs no login.
"""

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import LoginRefused, TlsFailed
from trimtab.common.kafka_security import connection, tls, tokens

PATIENCE: Final = 5.0
"""Seconds that a broker has to answer each question."""

SLICE: Final = 0.1
TRIES: Final = 3
AGAIN: Final = 0.5
"""Seconds until a broker that hung up is asked again."""

VERSIONS: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""An ApiVersions request, version 0, without a client's name: its length, key, version, number."""

PORT: Final = 9092

_LOGIN: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - the names they are documented by
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)


def knock(
    config: Mapping[str, Any], *, patience: float = PATIENCE, clock: Clock | None = None
) -> None:
    """Raise LoginRefused or TlsFailed where a broker answers and will not have us.

    `config` holds librdkafka's names, checked by `connection.check`. Without TLS and SASL there is
    nothing to refuse, and nobody is asked.
    """
    spoken = connection.protocol(config)
    if spoken == "PLAINTEXT":
        return
    clock = clock or SystemClock()
    address = _answering(config, patience, clock)
    if address is not None and spoken.startswith("SASL_"):
        _log_in(config, address, patience, clock)


def diagnose(config: Mapping[str, Any], *, patience: float = PATIENCE) -> None:
    """Knock after nobody has answered: plain text may be spoken to a listener with TLS.

    Raises LoginRefused, TlsFailed. A listener without TLS logs what it does not understand.
    """
    knock(config, patience=patience)
    if not connection.protocol(config).endswith("SSL"):
        for address in _addresses(config):
            _look_for_tls(config, address, patience)


def _addresses(config: Mapping[str, Any]) -> list[tuple[str, int]]:
    given = str(config.get("bootstrap.servers") or config.get("metadata.broker.list") or "")
    found: list[tuple[str, int]] = []
    for one in given.split(","):
        host, _, port = one.strip().rpartition("://")[2].rpartition(":")
        found.append((host.strip("[]"), int(port)) if port.isdecimal() and host else (one, PORT))
    return found


def _answering(config: Mapping[str, Any], patience: float, clock: Clock) -> tuple[str, int] | None:
    """Return the first address with which all is well, None where nobody is there.

    Raises TlsFailed where somebody is, but with none of them TLS can be agreed on: one broker with
    an old certificate keeps nobody from the others.
    """
    refused: TlsFailed | None = None
    for address in _addresses(config):
        try:
            if _shake(config, address, patience, clock):
                return address
        except TlsFailed as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return None


def _shake(
    config: Mapping[str, Any], address: tuple[str, int], patience: float, clock: Clock
) -> bool:
    """Connect, with TLS where it is to be spoken; tell whether anybody is there.

    Raises TlsFailed.
    """
    for tried in range(TRIES):
        if tried:
            clock.sleep(AGAIN)
        try:
            return _connect(config, address, patience)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            continue
        except ssl.SSLCertVerificationError as error:
            raise TlsFailed(_distrusted(error, address, config)) from None
        except ssl.SSLError as error:
            raise TlsFailed(_no_tls(error, address, config)) from None
        except OSError:
            return False
    raise TlsFailed(_hung_up(address, config))


def _connect(config: Mapping[str, Any], address: tuple[str, int], patience: float) -> bool:
    """Return whether anybody is there and, where TLS is to be spoken, speaks it with us.

    Raises OSError.
    """
    try:
        plain = socket.create_connection(address, patience)
    except OSError:
        return False
    with plain:
        if connection.protocol(config).endswith("SSL"):
            _greet(plain, tls.client_context(config), address, VERSIONS)
    return True


def _greet(
    plain: socket.socket, context: ssl.SSLContext, address: tuple[str, int], ask: bytes = b""
) -> None:
    """Shake hands; with a question wait for the answer to begin. Raises OSError."""
    with context.wrap_socket(plain, server_hostname=address[0]) as spoken:
        if ask:
            spoken.sendall(ask)
            if not spoken.recv(1):
                raise ConnectionResetError


def _look_for_tls(config: Mapping[str, Any], address: tuple[str, int], patience: float) -> None:
    """Raise TlsFailed if there is TLS where plain text is to be spoken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only whether TLS is spoken; nothing is sent
    try:
        with socket.create_connection(address, patience) as plain:
            _greet(plain, context, address)
    except OSError:
        return
    raise TlsFailed(
        f"{_where(address)} speaks TLS, but security.protocol={connection.protocol(config)}; "
        "write SSL, or SASL_SSL to log in"
    )


def _distrusted(
    error: ssl.SSLCertVerificationError, address: tuple[str, int], config: Mapping[str, Any]
) -> str:
    said = error.verify_message.rstrip(".")
    authority = config.get("ssl.ca.location") or "the system's authorities"
    if "ssl.ca.pem" in config:
        authority = "ssl.ca.pem"
    cure = f"it must be vouched for by {authority} (ssl.ca.location, ssl.ca.pem)"
    if "ismatch" in said:
        cure = "connect by a name that it holds, or let the broker have one that holds this name"
    elif "expired" in said:
        cure = "let the broker have a new one, and look at this machine's clock"
    return f"the certificate of {_where(address)} is not trusted: {said}; {cure}"


def _no_tls(error: ssl.SSLError, address: tuple[str, int], config: Mapping[str, Any]) -> str:
    said = (error.reason or type(error).__name__).lower().replace("_", " ")
    if "alert" in said and ("certificate" in said or "unknown ca" in said):
        what = "refuses our certificate" if tls.identified(config) else "asks for our certificate"
        return (
            f"{_where(address)} {what} ({said}); give ssl.certificate.location and "
            "ssl.key.location (or .pem) of one that it trusts"
        )
    return (
        f"{_where(address)} does not speak TLS with us ({said}), but "
        f"security.protocol={connection.protocol(config)}; {_without_tls(config)}"
    )


def _hung_up(address: tuple[str, int], config: Mapping[str, Any]) -> str:
    return (
        f"{_where(address)} closed the connection {TRIES} times while TLS was agreed on "
        f"(security.protocol={connection.protocol(config)}); {_without_tls(config)}; else it is "
        "not ready, or something between us hangs up"
    )


def _without_tls(config: Mapping[str, Any]) -> str:
    sasl = connection.protocol(config).startswith("SASL_")
    return f"is it a port without TLS? Then write {'SASL_PLAINTEXT' if sasl else 'PLAINTEXT'}"


def _log_in(
    config: Mapping[str, Any], address: tuple[str, int], patience: float, clock: Clock
) -> None:
    if (ask := config.get(tokens.SETTING)) is not None:
        asked = str(config.get("sasl.oauthbearer.config", ""))
        tokens.fetched(tokens.callback(ask), asked, clock.wall())
    told: list[KafkaError] = []
    own = {**connection.of(config), "log_level": 0, "error_cb": told.append}
    try:
        client = AdminClient(connection.for_librdkafka(own))
    except KafkaException:
        return  # whoever works with it says what librdkafka refuses
    deadline = clock.monotonic() + patience
    while clock.monotonic() < deadline:
        try:
            client.list_topics(timeout=SLICE)
        except KafkaException:
            client.poll(0)
        else:
            return
        for error in told:
            if error.code() in _LOGIN:
                raise LoginRefused(_refused(config, address, error))


def _refused(config: Mapping[str, Any], address: tuple[str, int], error: KafkaError) -> str:
    said = error.str().partition(": ")[2].partition(" (after ")[0]
    chosen = connection.mechanism(config)
    who = f" as {config['sasl.username']!r}" if "sasl.username" in config else ""
    what = tokens.SETTING if chosen == "OAUTHBEARER" else "sasl.username and sasl.password"
    return f"{_where(address)} refuses to log us in{who}: {said}; mend {what}, or sasl.mechanism"


def _where(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
