"""librdkafka's settings of a connection: checked, and translated for kafka-python.

What one of the two clients would not notice is refused here by name, so that no setting is dropped
without a word: SASL that is not spoken, TLS that is not used, key stores that only one can read.
"""

from collections.abc import Mapping
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import log_redaction, tls, tokens

PREFIXES: Final = (
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

NAMES: Final = frozenset(
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

_PEM: Final = "give PEM: ssl.certificate.location and ssl.key.location (or .pem)"
_CA: Final = "give PEM: ssl.ca.location (or ssl.ca.pem)"
_LOGIN: Final = "give sasl.mechanism, sasl.username and sasl.password"
_TOKENS: Final = (
    'one of the two clients cannot; give oauth_cb: "module:function" (docs/security.md)'
)
REFUSED: Final[Mapping[str, str]] = {
    "sasl.jaas.config": f"that is Java's; {_LOGIN}",
    "sasl.login.callback.handler.class": "that is Java's; give oauth_cb",
    "ssl.engine.location": f"one of the two clients cannot load engines; {_PEM}",
    **dict.fromkeys(
        ("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type"),
        f"one of the two clients cannot read key stores; {_PEM}: openssl pkcs12 -in STORE "
        "-out client.pem",
    ),
    **dict.fromkeys(
        ("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type"),
        f"that is Java's; {_CA}",
    ),
    **{
        f"sasl.oauthbearer.{name}": _TOKENS
        for name in (
            "client.id", "client.secret", "extensions", "method", "scope", "token.endpoint.url",
        )
    },
}  # fmt: skip
"""Settings that Trimtab does not take, and what to write instead."""

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_FREE: Final = frozenset({"ssl.endpoint.identification.algorithm"})
"""Settings that say nothing where no TLS is spoken, and are librdkafka's default."""


def protocol(config: Mapping[str, Any]) -> str:
    """Return the security protocol, in capitals."""
    return str(config.get("security.protocol") or "PLAINTEXT").upper()


def mechanism(config: Mapping[str, Any]) -> str | None:
    """Return the SASL mechanism, in capitals; None where none is named."""
    given = config.get("sasl.mechanism") or config.get("sasl.mechanisms")
    return None if given is None else str(given).upper()


def check(config: Mapping[str, Any]) -> None:
    """Raise SettingError for settings that contradict each other, or that a client would drop."""
    for name, instead in REFUSED.items():
        if name in config:
            raise SettingError(f"{name} cannot be used: {instead}")
    spoken = protocol(config)
    if spoken not in PROTOCOLS:
        raise SettingError(f"security.protocol={spoken!r} is none of {', '.join(PROTOCOLS)}")
    sasl = sorted(n for n in config if n.startswith("sasl.") or n == tokens.SETTING)
    if sasl and not spoken.startswith("SASL_"):
        raise SettingError(
            f"{' and '.join(sasl)} given, but security.protocol={spoken}: nobody would log in; "
            "write security.protocol=SASL_SSL"
        )
    encrypted = sorted(n for n in config if n.startswith("ssl.") and n not in _FREE)
    if encrypted and not spoken.endswith("SSL"):
        raise SettingError(
            f"{' and '.join(encrypted)} given, but security.protocol={spoken}: nothing would be "
            "encrypted; write security.protocol=SSL, or SASL_SSL to log in"
        )
    if spoken.startswith("SASL_"):
        _check_login(config)
    if spoken.endswith("SSL"):
        _check_pem(config)
        tls.client_context(config)  # files are there, texts are PEM


def _check_pem(config: Mapping[str, Any]) -> None:
    """Raise SettingError for what neither client would use, or each of them another of."""
    for what in ("ssl.ca", "ssl.certificate", "ssl.key"):
        if config.get(f"{what}.pem") and config.get(f"{what}.location"):
            raise SettingError(
                f"{what}.pem and {what}.location are both given; leave one of the two out"
            )
    unused = sorted(name for name in config if name.startswith("ssl.key."))
    if unused and not tls.identified(config):
        raise SettingError(
            f"{' and '.join(unused)} given, but no certificate: nobody would be shown one; give "
            "ssl.certificate.location (or .pem) too"
        )


def _check_login(config: Mapping[str, Any]) -> None:
    chosen = mechanism(config)
    if chosen is None:
        raise SettingError(
            "sasl.mechanism is missing; write SCRAM-SHA-512, SCRAM-SHA-256, PLAIN or OAUTHBEARER"
        )
    if chosen == "OAUTHBEARER":
        if not config.get(tokens.SETTING):
            raise SettingError(
                f"sasl.mechanism=OAUTHBEARER needs {_TOKENS.partition('; give ')[2]}"
            )
        tokens.callback(config[tokens.SETTING])
    elif chosen == "PLAIN" or chosen.startswith("SCRAM-"):
        missing = [n for n in ("sasl.username", "sasl.password") if not config.get(n)]
        if missing:
            raise SettingError(f"sasl.mechanism={chosen} needs {' and '.join(missing)}")


def of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return those settings that say how brokers are reached."""
    return {name: value for name, value in config.items() if name.startswith(PREFIXES)}


def for_librdkafka(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration as confluent-kafka takes it: the callback is a function."""
    given = config.get(tokens.SETTING)
    if given is None:
        return dict(config)
    return {**config, tokens.SETTING: tokens.callback(given)}


def for_kafka_python(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of TLS and SASL under kafka-python's names. Raises SettingError."""
    spoken, chosen = protocol(config), mechanism(config)
    found: dict[str, Any] = {"security_protocol": spoken}
    if spoken.endswith("SSL"):
        found["ssl_context"] = tls.client_context(config)
    if not spoken.startswith("SASL_"):
        return found
    log_redaction.conceal()
    found["sasl_mechanism"] = chosen
    for ours, theirs in (
        ("sasl.username", "sasl_plain_username"),
        ("sasl.password", "sasl_plain_password"),
        ("sasl.kerberos.service.name", "sasl_kerberos_service_name"),
    ):
        if ours in config:
            found[theirs] = str(config[ours])
    if config.get(tokens.SETTING):
        asked = str(config.get("sasl.oauthbearer.config", ""))
        ask = tokens.callback(config[tokens.SETTING])
        found["sasl_oauth_token_provider"] = tokens.Tokens(ask, asked)
    return found
