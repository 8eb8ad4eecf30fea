"""Schema registry access through confluent-kafka's client, with that client's settings.

A schema that does not exist makes its record a dead letter. One that the registry refuses to a user that it
knows (403) is TableAccessError: it concerns the topic alone. Every other failure (no response, a refused
login, an invalid response) is SchemaRegistryUnavailableError, which the flush retries.
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
_NOT_FOUND_CODES: Final = frozenset({40401, 40402, 40403})  # subject, version, schema


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

        Raises UnusableSchemaError if it does not exist, TableAccessError, SchemaRegistryUnavailableError.
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
            code = getattr(error, "error_code", None)
            if code in _NOT_FOUND_CODES:
                raise UnusableSchemaError("the schema registry does not know it") from error
            if getattr(error, "http_status_code", None) == _FORBIDDEN:
                raise TableAccessError(
                    f"the schema registry at {self._address} refuses {_NOUNS[method]} {arguments[0]}: "
                    f"{getattr(error, 'error_message', error)}; grant this consumer Read on its subject"
                ) from error
            raise SchemaRegistryUnavailableError(
                f"the schema registry at {self._address} does not respond as expected: "
                f"{str(error) or type(error).__name__}; check that it runs, schema.registry.url and the "
                "credentials"
            ) from error


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
