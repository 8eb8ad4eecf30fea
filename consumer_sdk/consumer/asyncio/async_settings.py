"""aiokafka's keyword arguments, translated to the settings of `Consumer`.

Names with "_" in place of "." are accepted for all settings: `group_id`, `trimtab_heuristic`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security.client_config import SECURITY_SETTINGS
from trimtab.consumer_sdk.client.client_adapters import check_librdkafka_values
from trimtab.consumer_sdk.client.offset_reset import OFFSET_RESET_SETTING
from trimtab.consumer_sdk.client.setting_names import LIBRDKAFKA_SETTINGS
from trimtab.consumer_sdk.client.settings import parse_consumer_settings

Deserializer = Callable[[bytes | None], Any]

_DESERIALIZERS: Final = ("key_deserializer", "value_deserializer")
_RENAMED: Final = {
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "request_timeout_ms": "socket.timeout.ms",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
}
_TLS_HINT: Final = "librdkafka reads no SSLContext; write ssl_ca_location, ssl_certificate_location and so on"
_NO_COUNTERPART: Final = "it has no counterpart here; leave it out"
_REJECTED: Final = {
    "api_version": _NO_COUNTERPART,
    "consumer_timeout_ms": _NO_COUNTERPART,
    "enable_auto_offset_store": "the offsets of returned records are stored; leave it out",
    "exclude_internal_topics": _NO_COUNTERPART,
    "loop": "an AsyncConsumer runs on the loop that awaits start(); leave it out",
    "rebalance_timeout_ms": "a rebalance waits for max_poll_interval_ms, as in the Java client; leave it out",
    "sasl_kerberos_domain_name": _NO_COUNTERPART,
    "sasl_oauth_token_provider": 'write oauth_cb="module:function"',
    "ssl_context": _TLS_HINT,
}
_NAMES_WITH_UNDERSCORE: Final = {name for name in LIBRDKAFKA_SETTINGS | SECURITY_SETTINGS if "_" in name}


@dataclass(frozen=True, slots=True)
class AsyncSettings:
    """Settings of an AsyncConsumer; `config` is the configuration of its `Consumer`."""

    config: dict[str, Any]
    key_deserializer: Deserializer | None = None
    value_deserializer: Deserializer | None = None
    max_poll_records: int | None = None

    @property
    def starts_at_end(self) -> bool:
        """Whether partitions without a committed offset are read from their end."""
        return self.config.get(OFFSET_RESET_SETTING, "latest") in ("latest", "largest", "end")


def parse_async_settings(given: Mapping[str, Any]) -> AsyncSettings:
    """Return valid settings; None counts as not given. Raises SettingError and ValueError."""
    settings = translate_settings(given)
    for name in _DESERIALIZERS:
        if (function := getattr(settings, name)) is not None and not callable(function):
            raise SettingError(f"{name}={function!r} must be a function that takes bytes or None")
    check_librdkafka_values(parse_consumer_settings(settings.config).librdkafka_config)
    return settings


def translate_settings(given: Mapping[str, Any]) -> AsyncSettings:
    """Return the settings; None counts as not given. Raises SettingError and ValueError."""
    rest = {name: value for name, value in given.items() if value is not None}
    own = {name: rest.pop(name, None) for name in _DESERIALIZERS}
    limit = rest.pop("max_poll_records", None)
    check_record_limit("max_poll_records", limit)
    config = {_translate_name(name): _translate_value(name, value) for name, value in rest.items()}
    return AsyncSettings({**config, "enable.auto.offset.store": False}, **own, max_poll_records=limit)


def check_record_limit(name: str, limit: object) -> None:
    """Raise ValueError unless `limit` is None or a positive int, as aiokafka does."""
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ValueError(f"`{name}` must be a positive Integer")


def _translate_name(name: str) -> str:
    plain = name.replace(".", "_")
    if reason := _REJECTED.get(plain):
        raise SettingError(f"{name!r} is not a setting of an AsyncConsumer: {reason}")
    if name in _NAMES_WITH_UNDERSCORE:
        return name
    return _RENAMED.get(name) or name.replace("_", ".")


def _translate_value(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple) and name == "bootstrap_servers":
        return ",".join(map(str, value))
    return "error" if (name, value) == ("auto_offset_reset", "none") else value
