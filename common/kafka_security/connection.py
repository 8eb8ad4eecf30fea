"""librdkafka's settings of a connection: checked, and translated for kafka-python.

What one of the two clients would not notice is refused here by name, so that no setting is dropped
without a word: SASL that is not spoken, TLS that is not used, key stores that only one can read.
"""

from collections.abc import Mapping
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import log_redaction, tls, tokens

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
"""Of librdkafka's settings those of a connection, which consumers, producers and admins know."""

SECURITY_SETTINGS: Final = frozenset(
    {
        "enable.ssl.certificate.verification",
        "oauth_cb",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.oauthbearer.config",
        "sasl.password",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
    }
)
"""Settings of TLS and SASL that both clients understand, once translated."""

_PEM_HINT: Final = "give PEM: ssl.certificate.location and ssl.key.location (or .pem)"
_CA_HINT: Final = "give PEM: ssl.ca.location (or ssl.ca.pem)"
_LOGIN_HINT: Final = "give sasl.mechanism, sasl.username and sasl.password"
_OAUTH_HINT: Final = (
    'one of the two clients cannot; give oauth_cb: "module:function" (docs/security.md)'
)
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
            "client.id", "client.secret", "extensions", "method", "scope", "token.endpoint.url",
        )
    },
}  # fmt: skip
"""Settings that Trimtab does not take, and what to write instead."""

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_HARMLESS_TLS_SETTINGS: Final = frozenset({"ssl.endpoint.identification.algorithm"})
"""Settings that say nothing where no TLS is spoken, and are librdkafka's default."""


def security_protocol(config: Mapping[str, Any]) -> str:
    """Return the security protocol, in capitals."""
    return str(config.get("security.protocol") or "PLAINTEXT").upper()


def sasl_mechanism(config: Mapping[str, Any]) -> str | None:
    """Return the SASL mechanism, in capitals; None where none is named."""
    given = config.get("sasl.mechanism") or config.get("sasl.mechanisms")
    return None if given is None else str(given).upper()


def check_settings(config: Mapping[str, Any]) -> None:
    """Raise SettingError for settings that contradict each other, or that a client would drop."""
    for name, instead in UNSUPPORTED_SETTINGS.items():
        if name in config:
            raise SettingError(f"{name} cannot be used: {instead}")
    spoken = security_protocol(config)
    if spoken not in SECURITY_PROTOCOLS:
        raise SettingError(
            f"security.protocol={spoken!r} is none of {', '.join(SECURITY_PROTOCOLS)}"
        )
    sasl = sorted(n for n in config if n.startswith("sasl.") or n == tokens.OAUTH_CALLBACK_SETTING)
    if sasl and not spoken.startswith("SASL_"):
        raise SettingError(
            f"{' and '.join(sasl)} given, but security.protocol={spoken}: nobody would log in; "
            "write security.protocol=SASL_SSL"
        )
    encrypted = sorted(
        n for n in config if n.startswith("ssl.") and n not in _HARMLESS_TLS_SETTINGS
    )
    if encrypted and not spoken.endswith("SSL"):
        raise SettingError(
            f"{' and '.join(encrypted)} given, but security.protocol={spoken}: nothing would be "
            "encrypted; write security.protocol=SSL, or SASL_SSL to log in"
        )
    if spoken.startswith("SASL_"):
        _check_sasl_settings(config)
    if spoken.endswith("SSL"):
        _check_pem_settings(config)
        tls.create_client_context(config)  # files are there, texts are PEM


def _check_pem_settings(config: Mapping[str, Any]) -> None:
    """Raise SettingError for what neither client would use, or each of them another of."""
    for what in ("ssl.ca", "ssl.certificate", "ssl.key"):
        if config.get(f"{what}.pem") and config.get(f"{what}.location"):
            raise SettingError(
                f"{what}.pem and {what}.location are both given; leave one of the two out"
            )
    unused = sorted(name for name in config if name.startswith("ssl.key."))
    if unused and not tls.has_client_certificate(config):
        raise SettingError(
            f"{' and '.join(unused)} given, but no certificate: nobody would be shown one; give "
            "ssl.certificate.location (or .pem) too"
        )


def _check_sasl_settings(config: Mapping[str, Any]) -> None:
    chosen = sasl_mechanism(config)
    if chosen is None:
        raise SettingError(
            "sasl.mechanism is missing; write SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER"
        )
    if chosen == "OAUTHBEARER":
        if not config.get(tokens.OAUTH_CALLBACK_SETTING):
            raise SettingError(
                f"sasl.mechanism=OAUTHBEARER needs {_OAUTH_HINT.partition('; give ')[2]}"
            )
        tokens.load_token_callback(config[tokens.OAUTH_CALLBACK_SETTING])
    elif chosen == "PLAIN" or chosen.startswith("SCRAM-"):
        missing = [n for n in ("sasl.username", "sasl.password") if not config.get(n)]
        if missing:
            raise SettingError(f"sasl.mechanism={chosen} needs {' and '.join(missing)}")


def extract_connection_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings that say how brokers are reached."""
    return {name: value for name, value in config.items() if name.startswith(CONNECTION_PREFIXES)}


def to_librdkafka_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as confluent-kafka takes it: the callback is a function."""
    given = config.get(tokens.OAUTH_CALLBACK_SETTING)
    if given is None:
        return dict(config)
    return {**config, tokens.OAUTH_CALLBACK_SETTING: tokens.load_token_callback(given)}


def to_kafka_python_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of TLS and SASL under kafka-python's names. Raises SettingError."""
    spoken, chosen = security_protocol(config), sasl_mechanism(config)
    found: dict[str, Any] = {"security_protocol": spoken}
    if spoken.endswith("SSL"):
        found["ssl_context"] = tls.create_client_context(config)
    if not spoken.startswith("SASL_"):
        return found
    log_redaction.redact_sasl_logs()
    found["sasl_mechanism"] = chosen
    for ours, theirs in (
        ("sasl.username", "sasl_plain_username"),
        ("sasl.password", "sasl_plain_password"),
        ("sasl.kerberos.service.name", "sasl_kerberos_service_name"),
    ):
        if ours in config:
            found[theirs] = str(config[ours])
    if config.get(tokens.OAUTH_CALLBACK_SETTING):
        asked = str(config.get("sasl.oauthbearer.config", ""))
        ask = tokens.load_token_callback(config[tokens.OAUTH_CALLBACK_SETTING])
        found["sasl_oauth_token_provider"] = tokens.CachedTokenProvider(ask, asked)
    return found
