"""Preflight check of a broker connection: names a refused login or TLS error within seconds.

1. A broker that is unreachable or slow raises nothing: the clients retry and report it.
2. A connection closed during the handshake is retried: the broker may be starting.
3. The check passes if one of the bootstrap brokers passes.
"""

import socket
import ssl
import struct
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from trimtab.common import tls
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import SaslAuthenticationError, TlsHandshakeError
from trimtab.common.kafka_security import client_config, oidc, tokens

PREFLIGHT_TIMEOUT_S: Final = 5.0
LOGIN_POLL_S: Final = 0.1
HANDSHAKE_ATTEMPTS: Final = 3
HANDSHAKE_RETRY_DELAY_S: Final = 0.5

# ApiVersions v0, which needs no login: size, API key, API version, correlation id, no client id
API_VERSIONS_REQUEST: Final = struct.pack(">ihhih", 10, 18, 0, 1, -1)

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
    """Raise SaslAuthenticationError or TlsHandshakeError if the brokers refuse the connection.

    `config` holds librdkafka's names, checked by `client_config.check_settings`; `timeout` is seconds
    for each answer.
    """
    protocol = client_config.security_protocol(config)
    if protocol == "PLAINTEXT":
        return  # there is nothing that brokers could refuse
    clock = clock or SystemClock()
    address = _find_reachable_broker(config, timeout, clock)
    if address is not None and protocol.startswith("SASL_"):
        _attempt_login(config, address, timeout, clock)


def diagnose_connection(config: Mapping[str, Any], *, timeout: float = PREFLIGHT_TIMEOUT_S) -> None:
    """Check a connection on which no broker answered. Raises SaslAuthenticationError, TlsHandshakeError."""
    check_connection(config, timeout=timeout)
    # only here: the handshake leaves an error in the log of a listener without TLS
    if not client_config.security_protocol(config).endswith("SSL"):
        for address in client_config.parse_addresses(config):
            _reject_tls_listener(config, address, timeout)


def check_token(config: Mapping[str, Any], clock: Clock | None = None) -> None:
    """Raise SaslAuthenticationError if the login needs a token and none is available."""
    if callback := client_config.find_token_callback(config):
        oauth_config = str(config.get("sasl.oauthbearer.config", ""))
        tokens.fetch_token(callback, oauth_config, (clock or SystemClock()).wall())


def _find_reachable_broker(config: Mapping[str, Any], timeout: float, clock: Clock) -> tuple[str, int] | None:
    """Return the first broker that accepts the connection; None if none is reachable."""
    refused: TlsHandshakeError | None = None
    for address in client_config.parse_addresses(config):
        try:
            if _connect_with_retries(config, address, timeout, clock):
                return address
        except TlsHandshakeError as error:
            refused = refused or error  # one bad certificate: the clients use the other brokers
    if refused is not None:
        raise refused
    return None


def _connect_with_retries(
    config: Mapping[str, Any], address: tuple[str, int], timeout: float, clock: Clock
) -> bool:
    """Return whether the broker is reachable. Raises TlsHandshakeError."""
    uses_tls = client_config.security_protocol(config).endswith("SSL")
    for attempt in range(HANDSHAKE_ATTEMPTS):
        if attempt:
            clock.sleep(HANDSHAKE_RETRY_DELAY_S)
        try:
            plain = socket.create_connection(address, timeout)
        except OSError:
            return False
        try:
            with plain:
                if uses_tls:
                    # Python's ssl, unlike librdkafka, tells an expired certificate from an untrusted
                    # one; in TLS 1.3 the broker rejects ours after the handshake, so only the
                    # answer to a request proves that it is accepted
                    context = tls.create_client_context(config)
                    _shake_hands(plain, context, address, API_VERSIONS_REQUEST)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
            continue  # a starting broker, a listener without TLS, or a proxy: all look the same
        except ssl.SSLError as error:
            raise TlsHandshakeError(_describe_tls_error(error, address, config)) from None
        except OSError:
            return False
        return True
    raise TlsHandshakeError(
        f"{_format_address(address)} closed the connection {HANDSHAKE_ATTEMPTS} times during the "
        f"TLS handshake{_suggest_plaintext(config)}; else the broker is not ready, or a proxy "
        "closes connections"
    )


def _shake_hands(
    plain: socket.socket, context: ssl.SSLContext, address: tuple[str, int], request: bytes = b""
) -> None:
    """Perform the handshake; with a request wait for the first byte of the answer."""
    with context.wrap_socket(plain, server_hostname=address[0]) as encrypted:
        if request:
            encrypted.sendall(request)
            if not encrypted.recv(1):
                raise ConnectionResetError


def _reject_tls_listener(config: Mapping[str, Any], address: tuple[str, int], timeout: float) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # detects TLS only, sends no data
    try:
        with socket.create_connection(address, timeout) as plain:
            _shake_hands(plain, context, address)
    except OSError:
        return
    raise TlsHandshakeError(
        f"{_format_address(address)} speaks TLS, but security.protocol="
        f"{client_config.security_protocol(config)}; write SSL, or SASL_SSL to log in"
    )


def _describe_tls_error(error: ssl.SSLError, address: tuple[str, int], config: Mapping[str, Any]) -> str:
    broker = _format_address(address)
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message.rstrip(".")
        remedy = _suggest_trust(reason, config)
        return f"the certificate of {broker} is not trusted: {reason}; {remedy}"
    reason = (error.reason or type(error).__name__).lower().replace("_", " ")
    # "tlsv13 alert certificate required", "sslv3 alert bad certificate", "tlsv1 alert unknown ca"
    if "alert" in reason and ("certificate" in reason or "unknown ca" in reason):
        verb = "refuses" if tls.has_client_certificate(config) else "asks for"
        return (
            f"{broker} {verb} our certificate ({reason}); give ssl.certificate.location and "
            "ssl.key.location (or .pem) of one that it trusts"
        )
    return f"the TLS handshake with {broker} failed ({reason}){_suggest_plaintext(config)}"


def _suggest_trust(reason: str, config: Mapping[str, Any]) -> str:
    if "ismatch" in reason:  # "Hostname mismatch" and "IP address mismatch"
        return "connect by a name that it holds, or give the broker one that holds this name"
    if "expired" in reason:
        return "renew it on the broker, and check this machine's clock"
    authority = config.get("ssl.ca.location") or "the system's authorities"
    if "ssl.ca.pem" in config:
        authority = "ssl.ca.pem"
    return f"it must be signed by {authority} (ssl.ca.location, ssl.ca.pem)"


def _suggest_plaintext(config: Mapping[str, Any]) -> str:
    protocol = client_config.security_protocol(config)
    plain = "SASL_PLAINTEXT" if protocol.startswith("SASL_") else "PLAINTEXT"
    return f" (security.protocol={protocol}); is it a port without TLS? Then write {plain}"


def _attempt_login(config: Mapping[str, Any], address: tuple[str, int], timeout: float, clock: Clock) -> None:
    check_token(config, clock)
    errors: list[KafkaError] = []
    shared = client_config.extract_connection_settings(config)
    try:
        # librdkafka, unlike kafka-python, passes on the broker's reason; it reports a refused login
        # to the callback only, and retries for ever
        client = AdminClient(
            client_config.to_librdkafka_config({**shared, "log_level": 0, "error_cb": errors.append})
        )
    except KafkaException:
        return  # the caller's own client reports the setting that librdkafka rejects
    deadline = clock.monotonic() + timeout
    while clock.monotonic() < deadline:
        try:
            client.list_topics(timeout=LOGIN_POLL_S)
        except KafkaException:
            client.poll(0)  # only here the callback fills `errors`
        else:
            return
        for error in errors:
            if error.code() in _LOGIN_ERROR_CODES:
                raise SaslAuthenticationError(_describe_login_error(config, address, error))


def _describe_login_error(config: Mapping[str, Any], address: tuple[str, int], error: KafkaError) -> str:
    # librdkafka puts the address before the broker's reason, and "(after 12ms in state …)" after it
    reason = error.str().partition(": ")[2].partition(" (after ")[0]
    user = f" as {config['sasl.username']!r}" if "sasl.username" in config else ""
    return (
        f"{_format_address(address)} refuses to log us in{user}: {reason}; correct "
        f"{_name_credentials(config)}, or sasl.mechanism"
    )


def _name_credentials(config: Mapping[str, Any]) -> str:
    if client_config.sasl_mechanism(config) != "OAUTHBEARER":
        return "sasl.username and sasl.password"
    if isinstance(client_config.find_token_callback(config), oidc.OidcTokenSource):
        return "the token endpoint, client and scope (sasl.oauthbearer.*)"
    return tokens.OAUTH_CALLBACK_SETTING


def _format_address(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"
