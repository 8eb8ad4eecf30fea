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
from trimtab.common.errors import SaslAuthenticationError, TlsHandshakeError
from trimtab.common.kafka_security import connection, tls, tokens

PREFLIGHT_TIMEOUT_S: Final = 5.0
"""Seconds that a broker has to answer each question."""

LOGIN_POLL_S: Final = 0.1
HANDSHAKE_ATTEMPTS: Final = 3
HANDSHAKE_RETRY_DELAY_S: Final = 0.5
"""Seconds until a broker that hung up is asked again."""

API_VERSIONS_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""An ApiVersions request, version 0, without a client's name: its length, key, version, number."""

DEFAULT_KAFKA_PORT: Final = 9092

_LOGIN_ERROR_CODES: Final = frozenset(
    {
        KafkaError._AUTHENTICATION,  # noqa: SLF001 - the names they are documented by
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)


def check_connection(
    config: Mapping[str, Any], *, timeout: float = PREFLIGHT_TIMEOUT_S, clock: Clock | None = None
) -> None:
    """Raise SaslAuthenticationError or TlsHandshakeError where a broker answers and will not have us.

    `config` holds librdkafka's names, checked by `connection.check_settings`. Without TLS and SASL there is
    nothing to refuse, and nobody is asked.
    """
    spoken = connection.security_protocol(config)
    if spoken == "PLAINTEXT":
        return
    clock = clock or SystemClock()
    address = _find_reachable_broker(config, timeout, clock)
    if address is not None and spoken.startswith("SASL_"):
        _attempt_login(config, address, timeout, clock)


def diagnose_connection(config: Mapping[str, Any], *, timeout: float = PREFLIGHT_TIMEOUT_S) -> None:
    """Knock after nobody has answered: plain text may be spoken to a listener with TLS.

    Raises SaslAuthenticationError, TlsHandshakeError. A listener without TLS logs what it does not understand.
    """
    check_connection(config, timeout=timeout)
    if not connection.security_protocol(config).endswith("SSL"):
        for address in _parse_bootstrap_addresses(config):
            _reject_tls_listener(config, address, timeout)


def _parse_bootstrap_addresses(config: Mapping[str, Any]) -> list[tuple[str, int]]:
    given = str(config.get("bootstrap.servers") or config.get("metadata.broker.list") or "")
    found: list[tuple[str, int]] = []
    for one in given.split(","):
        host, _, port = one.strip().rpartition("://")[2].rpartition(":")
        found.append(
            (host.strip("[]"), int(port))
            if port.isdecimal() and host
            else (one, DEFAULT_KAFKA_PORT)
        )
    return found


def _find_reachable_broker(
    config: Mapping[str, Any], timeout: float, clock: Clock
) -> tuple[str, int] | None:
    """Return the first address with which all is well, None where nobody is there.

    Raises TlsHandshakeError where somebody is, but with none of them TLS can be agreed on: one broker with
    an old certificate keeps nobody from the others.
    """
    refused: TlsHandshakeError | None = None
    for address in _parse_bootstrap_addresses(config):
        try:
            if _connect_with_retries(config, address, timeout, clock):
                return address
        except TlsHandshakeError as error:
            refused = refused or error
    if refused is not None:
        raise refused
    return None


def _connect_with_retries(
    config: Mapping[str, Any], address: tuple[str, int], timeout: float, clock: Clock
) -> bool:
    """Connect, with TLS where it is to be spoken; tell whether anybody is there.

    Raises TlsHandshakeError.
    """
    for tried in range(HANDSHAKE_ATTEMPTS):
        if tried:
            clock.sleep(HANDSHAKE_RETRY_DELAY_S)
        try:
            return _try_connect(config, address, timeout)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            continue
        except ssl.SSLCertVerificationError as error:
            raise TlsHandshakeError(
                _describe_untrusted_certificate(error, address, config)
            ) from None
        except ssl.SSLError as error:
            raise TlsHandshakeError(_describe_tls_error(error, address, config)) from None
        except OSError:
            return False
    raise TlsHandshakeError(_describe_closed_connection(address, config))


def _try_connect(config: Mapping[str, Any], address: tuple[str, int], timeout: float) -> bool:
    """Return whether anybody is there and, where TLS is to be spoken, speaks it with us.

    Raises OSError.
    """
    try:
        plain = socket.create_connection(address, timeout)
    except OSError:
        return False
    with plain:
        if connection.security_protocol(config).endswith("SSL"):
            _perform_tls_handshake(
                plain, tls.create_client_context(config), address, API_VERSIONS_REQUEST
            )
    return True


def _perform_tls_handshake(
    plain: socket.socket, context: ssl.SSLContext, address: tuple[str, int], request: bytes = b""
) -> None:
    """Shake hands; with a question wait for the answer to begin. Raises OSError."""
    with context.wrap_socket(plain, server_hostname=address[0]) as spoken:
        if request:
            spoken.sendall(request)
            if not spoken.recv(1):
                raise ConnectionResetError


def _reject_tls_listener(
    config: Mapping[str, Any], address: tuple[str, int], timeout: float
) -> None:
    """Raise TlsHandshakeError if there is TLS where plain text is to be spoken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # only whether TLS is spoken; nothing is sent
    try:
        with socket.create_connection(address, timeout) as plain:
            _perform_tls_handshake(plain, context, address)
    except OSError:
        return
    raise TlsHandshakeError(
        f"{_format_address(address)} speaks TLS, but security.protocol={connection.security_protocol(config)}; "
        "write SSL, or SASL_SSL to log in"
    )


def _describe_untrusted_certificate(
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
    return f"the certificate of {_format_address(address)} is not trusted: {said}; {cure}"


def _describe_tls_error(
    error: ssl.SSLError, address: tuple[str, int], config: Mapping[str, Any]
) -> str:
    said = (error.reason or type(error).__name__).lower().replace("_", " ")
    if "alert" in said and ("certificate" in said or "unknown ca" in said):
        what = (
            "refuses our certificate"
            if tls.has_client_certificate(config)
            else "asks for our certificate"
        )
        return (
            f"{_format_address(address)} {what} ({said}); give ssl.certificate.location and "
            "ssl.key.location (or .pem) of one that it trusts"
        )
    return (
        f"{_format_address(address)} does not speak TLS with us ({said}), but "
        f"security.protocol={connection.security_protocol(config)}; {_suggest_plaintext(config)}"
    )


def _describe_closed_connection(address: tuple[str, int], config: Mapping[str, Any]) -> str:
    return (
        f"{_format_address(address)} closed the connection {HANDSHAKE_ATTEMPTS} times while TLS was agreed on "
        f"(security.protocol={connection.security_protocol(config)}); {_suggest_plaintext(config)}; else it is "
        "not ready, or something between us hangs up"
    )


def _suggest_plaintext(config: Mapping[str, Any]) -> str:
    sasl = connection.security_protocol(config).startswith("SASL_")
    return f"is it a port without TLS? Then write {'SASL_PLAINTEXT' if sasl else 'PLAINTEXT'}"


def _attempt_login(
    config: Mapping[str, Any], address: tuple[str, int], timeout: float, clock: Clock
) -> None:
    if (ask := config.get(tokens.OAUTH_CALLBACK_SETTING)) is not None:
        asked = str(config.get("sasl.oauthbearer.config", ""))
        tokens.fetch_token(tokens.load_token_callback(ask), asked, clock.wall())
    told: list[KafkaError] = []
    own = {
        **connection.extract_connection_settings(config),
        "log_level": 0,
        "error_cb": told.append,
    }
    try:
        client = AdminClient(connection.to_librdkafka_config(own))
    except KafkaException:
        return  # whoever works with it says what librdkafka refuses
    deadline = clock.monotonic() + timeout
    while clock.monotonic() < deadline:
        try:
            client.list_topics(timeout=LOGIN_POLL_S)
        except KafkaException:
            client.poll(0)
        else:
            return
        for error in told:
            if error.code() in _LOGIN_ERROR_CODES:
                raise SaslAuthenticationError(_describe_login_error(config, address, error))


def _describe_login_error(
    config: Mapping[str, Any], address: tuple[str, int], error: KafkaError
) -> str:
    said = error.str().partition(": ")[2].partition(" (after ")[0]
    chosen = connection.sasl_mechanism(config)
    who = f" as {config['sasl.username']!r}" if "sasl.username" in config else ""
    what = (
        tokens.OAUTH_CALLBACK_SETTING
        if chosen == "OAUTHBEARER"
        else "sasl.username and sasl.password"
    )
    return f"{_format_address(address)} refuses to log us in{who}: {said}; mend {what}, or sasl.mechanism"


def _format_address(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
