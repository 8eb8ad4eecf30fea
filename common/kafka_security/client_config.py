"""Connection settings of librdkafka: validation and translation for kafka-python.

A setting that one of the two clients would ignore silently is rejected by name.
"""

import logging
import re
from collections.abc import Mapping
from typing import Any, Final

from trimtab.common import tls
from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import oidc, tokens

# valid for consumers, producers and admin clients alike: librdkafka warns of any other
CONNECTION_PREFIXES: Final = (
    "api.version.",
    "bootstrap.servers",
    "broker.",
    "client.",
    "enable.sasl.",
    "enable.ssl.",
    "https.",
    "metadata.broker.list",
    "oauth_cb",
    "reconnect.",
    "sasl.",
    "security.",
    "socket.",
    "ssl.",
)
SECURITY_SETTINGS: Final = frozenset(
    {
        "security.protocol",
        "enable.ssl.certificate.verification",
        "oauth_cb",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.config",
        "sasl.username",
        "sasl.password",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.crl.location",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        *oidc.OIDC_SETTINGS,
    }
)
"""TLS and SASL settings that both clients support."""

_PEM_HINT: Final = "give PEM: ssl.certificate.location and ssl.key.location (or .pem)"
_CA_HINT: Final = "give PEM: ssl.ca.location (or ssl.ca.pem)"
_LOGIN_HINT: Final = "give sasl.mechanism, sasl.username and sasl.password"
_CALLBACK_HINT: Final = 'oauth_cb: "module:function" (docs/security.md)'
_OAUTH_HINT: Final = f"of OIDC only the client credentials grant is supported; give {_CALLBACK_HINT}"
UNSUPPORTED_SETTINGS: Final[Mapping[str, str]] = {
    "sasl.jaas.config": f"that is Java's; {_LOGIN_HINT}",
    "sasl.login.callback.handler.class": "that is Java's; give oauth_cb",
    "ssl.engine.location": f"one of the two clients cannot load engines; {_PEM_HINT}",
    **dict.fromkeys(
        ("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type"),
        f"one of the two clients cannot read key stores; {_PEM_HINT}: openssl pkcs12 -in STORE "
        "-out client.pem",
    ),
    **dict.fromkeys(
        ("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"),
        f"that is Java's; {_CA_HINT}",
    ),
    **{
        f"sasl.oauthbearer.{name}": _OAUTH_HINT
        for name in (
            "assertion.algorithm", "assertion.claim.aud", "assertion.claim.exp.seconds",
            "assertion.claim.iss", "assertion.claim.jti.include", "assertion.claim.nbf.seconds",
            "assertion.claim.sub", "assertion.file", "assertion.jwt.template.file",
            "assertion.private.key.file", "assertion.private.key.passphrase",
            "assertion.private.key.pem", "metadata.authentication.type", "sub.claim.name",
        )
    },
}  # fmt: skip
"""Rejected settings, and what to write instead."""

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
# accepted without TLS: many write out librdkafka's default
_HARMLESS_TLS_SETTINGS: Final = frozenset({"ssl.endpoint.identification.algorithm"})
DEFAULT_KAFKA_PORT: Final = 9092
KAFKA_PYTHON_LOGGERS: Final = ("kafka.net.connection", "kafka.protocol.parser")
_SASL_LOG_LINE: Final = re.compile(r"Sasl\w*Request|Send: ")


class _SaslLogFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        # secrets: SASL requests, and "Send: " with the raw bytes of any request
        return record.levelno > logging.DEBUG or not _SASL_LOG_LINE.search(record.getMessage())


_SASL_LOG_FILTER: Final = _SaslLogFilter()


def redact_sasl_logs() -> None:
    """Install the filter for this process. Idempotent."""
    for name in KAFKA_PYTHON_LOGGERS:
        logging.getLogger(name).addFilter(_SASL_LOG_FILTER)  # one instance: addFilter skips duplicates


def security_protocol(config: Mapping[str, Any]) -> str:
    """Return the security protocol in capitals (default PLAINTEXT)."""
    return str(config.get("security.protocol") or "PLAINTEXT").upper()


def sasl_mechanism(config: Mapping[str, Any]) -> str | None:
    """Return the SASL mechanism in capitals; None if unset."""
    mechanism = config.get("sasl.mechanism") or config.get("sasl.mechanisms")  # librdkafka's alias
    return None if mechanism is None else str(mechanism).upper()


def check_settings(config: Mapping[str, Any]) -> None:
    """Raise SettingError for contradictions and for settings that a client would ignore."""
    for name, instead in UNSUPPORTED_SETTINGS.items():
        if name in config:
            raise SettingError(f"{name} cannot be used: {instead}")
    _check_oidc_settings(config)
    protocol = security_protocol(config)
    if protocol not in SECURITY_PROTOCOLS:
        raise SettingError(f"security.protocol={protocol!r} is none of {', '.join(SECURITY_PROTOCOLS)}")
    sasl = sorted(n for n in config if n.startswith("sasl.") or n == tokens.OAUTH_CALLBACK_SETTING)
    if sasl and not protocol.startswith("SASL_"):
        raise SettingError(
            f"{' and '.join(sasl)} given, but security.protocol={protocol}: no client would log "
            "in; write security.protocol=SASL_SSL"
        )
    encrypted = sorted(n for n in config if n.startswith("ssl.") and n not in _HARMLESS_TLS_SETTINGS)
    if encrypted and not protocol.endswith("SSL"):
        raise SettingError(
            f"{' and '.join(encrypted)} given, but security.protocol={protocol}: nothing would be "
            "encrypted; write security.protocol=SSL, or SASL_SSL to log in"
        )
    if protocol.startswith("SASL_"):
        _check_sasl_settings(config)
    if protocol.endswith("SSL"):
        _check_pem_settings(config)
        tls.create_client_context(config)  # a missing file fails here, not at the first connection


def _check_oidc_settings(config: Mapping[str, Any]) -> None:
    if not oidc.uses_oidc(config):
        given = sorted((oidc.OIDC_SETTINGS - {oidc.METHOD_SETTING}).intersection(config))
        if given:
            raise SettingError(
                f"{' and '.join(given)} given, but not {oidc.METHOD_SETTING}: oidc, without which no "
                "client uses them; write it too"
            )
    elif sasl_mechanism(config) != "OAUTHBEARER":
        raise SettingError(f"{oidc.METHOD_SETTING}=oidc needs sasl.mechanism=OAUTHBEARER")
    elif config.get(tokens.OAUTH_CALLBACK_SETTING):
        raise SettingError(
            f"{oidc.METHOD_SETTING}=oidc and {tokens.OAUTH_CALLBACK_SETTING} are both given; leave "
            "one of the two out"
        )


def _check_pem_settings(config: Mapping[str, Any]) -> None:
    for name in ("ssl.ca", "ssl.certificate", "ssl.key"):
        if config.get(f"{name}.pem") and config.get(f"{name}.location"):
            raise SettingError(f"{name}.pem and {name}.location are both given; leave one of the two out")
    unused = sorted(name for name in config if name.startswith("ssl.key."))
    if unused and not tls.has_client_certificate(config):
        raise SettingError(
            f"{' and '.join(unused)} given, but no certificate: none would be presented; give "
            "ssl.certificate.location (or .pem) too"
        )


def _check_sasl_settings(config: Mapping[str, Any]) -> None:
    mechanism = sasl_mechanism(config)
    if mechanism is None:
        raise SettingError(
            "sasl.mechanism is missing; write SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER"
        )
    if mechanism == "OAUTHBEARER":
        if find_token_callback(config) is None:
            raise SettingError(
                f"sasl.mechanism=OAUTHBEARER needs {_CALLBACK_HINT}, or {oidc.METHOD_SETTING}: oidc"
            )
    elif mechanism == "PLAIN" or mechanism.startswith("SCRAM-"):
        missing = [n for n in ("sasl.username", "sasl.password") if not config.get(n)]
        if missing:
            raise SettingError(f"sasl.mechanism={mechanism} needs {' and '.join(missing)}")


def extract_connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the connection settings of a configuration."""
    return {name: value for name, value in config.items() if name.startswith(CONNECTION_PREFIXES)}


def parse_addresses(config: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return host and port of each bootstrap server."""
    servers = str(config.get("bootstrap.servers") or config.get("metadata.broker.list") or "")
    addresses: list[tuple[str, int]] = []
    for server in servers.split(","):
        # librdkafka takes "SSL://host:port" and "[::1]:port", too
        host, _, port = server.strip().rpartition("://")[2].rpartition(":")
        has_port = bool(host) and port.isdecimal()
        addresses.append((host.strip("[]"), int(port)) if has_port else (server, DEFAULT_KAFKA_PORT))
    return addresses


def find_token_callback(config: Mapping[str, Any]) -> tokens.TokenCallback | None:
    """Return the source of tokens: `oauth_cb`, loaded, or OIDC's; else None. Raises SettingError."""
    if oidc.uses_oidc(config):
        return oidc.get_token_source(oidc.parse_oidc_settings(config))
    setting = config.get(tokens.OAUTH_CALLBACK_SETTING)
    return tokens.load_token_callback(setting) if setting else None


def to_librdkafka_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration for confluent-kafka, with the token callback in place of OIDC's settings."""
    callback = find_token_callback(config)
    if callback is None:
        return dict(config)
    kept = {name: value for name, value in config.items() if name not in oidc.OIDC_SETTINGS}
    return {**kept, tokens.OAUTH_CALLBACK_SETTING: callback}


def to_kafka_python_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return TLS and SASL settings by kafka-python's names. Raises SettingError."""
    protocol = security_protocol(config)
    translated: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        translated["ssl_context"] = tls.create_client_context(config)
    if not protocol.startswith("SASL_"):
        return translated
    redact_sasl_logs()  # before kafka-python can log its first request
    translated["sasl_mechanism"] = sasl_mechanism(config)
    for librdkafka_name, kafka_python_name in (
        ("sasl.username", "sasl_plain_username"),
        ("sasl.password", "sasl_plain_password"),
        ("sasl.kerberos.service.name", "sasl_kerberos_service_name"),
    ):
        if librdkafka_name in config:
            translated[kafka_python_name] = str(config[librdkafka_name])
    if callback := find_token_callback(config):
        oauth_config = str(config.get("sasl.oauthbearer.config", ""))
        from trimtab.common.kafka_security.token_provider import (  # noqa: PLC0415 - loads kafka-python
            CachedTokenProvider,
        )

        provider = CachedTokenProvider(callback, oauth_config)
        translated["sasl_oauth_token_provider"] = provider
    return translated
