"""Knocks at the brokers before work begins: tells a refused login or TLS by name, and soon.

Both Kafka clients try again for ever, since a broker that is away comes back. A wrong password or
certificate does not mend itself, and what they say of it is spread over callbacks and logs, or is
the same for an expired certificate and a strange one. So TLS is tried with Python's own, which
says what is wrong, and the login with librdkafka, which says what the broker answered.

A broker that is away, or slow, is no refusal: then nothing is raised, and others tell.
"""

import socket
import ssl
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from trimtab.assignor.clock import Clock, SystemClock
from trimtab.assignor.errors import LoginRefused, TlsFailed
from trimtab.assignor.security import connection, tls, tokens

PATIENCE: Final = 5.0
"""Seconds that a broker has to answer each question."""

SLICE: Final = 0.1
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
    address = _answering(config, patience)
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


def _answering(config: Mapping[str, Any], patience: float) -> tuple[str, int] | None:
    """Return the first address with which all is well, None where nobody is there.

    Raises TlsFailed where somebody is, but with none of them TLS can be agreed on: one broker with
    an old certificate keeps nobody from the others.
    """
    refused: TlsFailed | None = None
    for address in _addresses(config):
        try:
            if _shake(config, address, patience):
                return address
        except TlsFailed as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return None


def _shake(config: Mapping[str, Any], address: tuple[str, int], patience: float) -> bool:
    """Connect, with TLS where it is to be spoken; tell whether anybody is there.

    Raises TlsFailed.
    """
    encrypted = connection.protocol(config).endswith("SSL")
    try:
        with socket.create_connection(address, patience) as plain:
            if encrypted:
                _greet(plain, tls.client_context(config), address)
            return True
    except ssl.SSLCertVerificationError as error:
        raise TlsFailed(_distrusted(error, address, config)) from None
    except (ssl.SSLError, ConnectionResetError) as error:
        raise TlsFailed(_no_tls(error, address, config)) from None
    except OSError:
        return False


def _greet(plain: socket.socket, context: ssl.SSLContext, address: tuple[str, int]) -> None:
    with context.wrap_socket(plain, server_hostname=address[0]):
        pass


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


def _no_tls(error: OSError, address: tuple[str, int], config: Mapping[str, Any]) -> str:
    spoken = connection.protocol(config)
    return (
        f"{_where(address)} does not speak TLS with us ({type(error).__name__}), but "
        f"security.protocol={spoken}; is it a listener without TLS? Then write "
        f"{'SASL_PLAINTEXT' if spoken.startswith('SASL_') else 'PLAINTEXT'}"
    )


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
