"""Schema registry access through confluent-kafka's client, with that client's settings.

A schema that does not exist, or whose request the registry refuses as wrong (4xx), makes its record a dead
letter. One that it refuses to a user that it knows (403) is TableAccessError: it concerns the topic alone.
Every other failure (no response, a refused login, another server's response) is
SchemaRegistryUnavailableError, which the flush retries.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import MissingExtraError, SchemaRegistryUnavailableError, TableAccessError
from trimtab.consumer_sdk.lake.decoding.value_reader import UnusableSchemaError

SCHEMA_REGISTRY_PREFIX: Final = "schema.registry."
REGISTRY_USER_INFO: Final = "basic.auth.user.info"
# no retries: the flush's own can be cancelled
_REGISTRY_CLIENT_DEFAULTS: Final[Mapping[str, Any]] = {"timeout": 10, "max.retries": 0}
_REGISTRY_PACKAGES: Final = ("fastavro", "google.protobuf")  # of the decoders
_FORBIDDEN: Final = 403
_NOUNS: Final = {"get_schema": "schema", "get_version": "subject"}
_NOT_FOUND: Final = 404
_NO_SUCH_PATH: Final = "HTTP 404 Not Found"  # schema.registry.url is wrong, whatever the schema
# of the login, a proxy, and a registry that is busy: the same request succeeds later
_RETRYABLE_4XX: Final = frozenset({401, 407, 408, 429})


def extract_registry_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the client's settings of a flat configuration, by the client's names."""
    settings = {
        name.removeprefix(SCHEMA_REGISTRY_PREFIX): value
        for name, value in config.items()
        if name.startswith(SCHEMA_REGISTRY_PREFIX)
    }
    if REGISTRY_USER_INFO in config:
        settings.setdefault(REGISTRY_USER_INFO, config[REGISTRY_USER_INFO])
    return settings


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema: `kind` is AVRO, PROTOBUF or JSON; `references` maps names to texts."""

    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict[str, str])


class SchemaRegistry:
    """A registry, by the result of `extract_registry_settings`. Raises SettingError, MissingExtraError."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._address = parse_registry_address(config)
        try:
            for package in _REGISTRY_PACKAGES:  # at the start, not in the first flush
                importlib.import_module(package)
            from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise MissingExtraError(error.name or "httpx2", "registry") from error
        try:
            self._client: Any = SchemaRegistryClient({**_REGISTRY_CLIENT_DEFAULTS, **config})
        except (ValueError, TypeError, OSError) as error:
            raise SettingError(f"{SCHEMA_REGISTRY_PREFIX}*: {error}") from error

    def fetch_schema(self, schema_id: int, form: str | None = None) -> RegisteredSchema:
        """Return the schema of an id in a format of the registry ("serialized": descriptors).

        Raises UnusableSchemaError if there is none, TableAccessError, SchemaRegistryUnavailableError.
        """
        schema = self._call("get_schema", schema_id, fmt=form)
        references: dict[str, str] = {}
        self._fetch_references(schema, form, references)
        # the registry omits the type of Avro schemas
        return RegisteredSchema(schema.schema_type or "AVRO", schema.schema_str or "", references)

    def _fetch_references(self, schema: Any, form: str | None, references: dict[str, str]) -> None:
        for reference in schema.references or ():
            if reference.name not in references:
                schema = self._call("get_version", reference.subject, reference.version, fmt=form).schema
                references[reference.name] = schema.schema_str or ""
                self._fetch_references(schema, form, references)

    def _call(self, method: str, *arguments: Any, **options: Any) -> Any:
        try:
            return getattr(self._client, method)(*arguments, **options)
        except Exception as error:
            if getattr(error, "http_status_code", None) == _FORBIDDEN:
                raise TableAccessError(
                    f"the schema registry at {self._address} refuses {_NOUNS[method]} {arguments[0]}: "
                    f"{getattr(error, 'error_message', error)}; grant this consumer Read on its subject"
                ) from error
            if reason := _describe_refusal(error):
                raise UnusableSchemaError(reason) from error
            raise SchemaRegistryUnavailableError(
                f"the schema registry at {self._address} does not respond as expected: "
                f"{str(error) or type(error).__name__}; check that it runs, schema.registry.url and the "
                "credentials"
            ) from error


def _describe_refusal(error: Exception) -> str | None:
    """Return why the registry refuses one schema, whenever it is asked; None for any other error."""
    status, code = getattr(error, "http_status_code", 0), getattr(error, "error_code", None)
    message = str(getattr(error, "error_message", ""))
    # without a code of its own, some other server has answered
    if not isinstance(code, int) or code < 0 or not 400 <= status < 500 or status in _RETRYABLE_4XX:  # noqa: PLR2004
        return None
    if status == _NOT_FOUND:
        return None if message == _NO_SUCH_PATH else "the schema registry does not know it"
    return f"the schema registry refuses it: {message[:300]}"


def parse_registry_address(config: Mapping[str, Any]) -> str:
    """Return a registry's addresses for messages. Raises SettingError."""
    parts = [urlsplit(one.strip()) for one in str(config.get("url") or "").split(",")]
    if not all(part.scheme in ("http", "https") and part.hostname for part in parts):
        raise SettingError(
            f"{SCHEMA_REGISTRY_PREFIX}url must be the registry's address, like "
            "http://localhost:8081; lake.decoder=avro and protobuf need it"
        )
    # without user and password, which a URL may hold
    return ",".join(f"{part.scheme}://{part.netloc.rpartition('@')[2]}" for part in parts)
