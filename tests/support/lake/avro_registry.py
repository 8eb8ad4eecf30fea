"""Avro schemas by id: a registry without a server, and what a producer writes with them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import fastavro

from trimtab.consumer_sdk.lake.changes.change_decoders import RegistryChangeDecoder
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import RegisteredSchema
from trimtab.consumer_sdk.lake.decoding.value_reader import UnusableSchemaError


@dataclass(frozen=True, slots=True)
class AvroRegistry:
    """Answers of a schema registry that has these schemas."""

    schemas: Mapping[int, Any]

    def fetch_schema(self, schema_id: int, form: str | None = None) -> RegisteredSchema:
        """Return a schema. Raises UnusableSchemaError."""
        del form
        if schema_id not in self.schemas:
            raise UnusableSchemaError("the schema registry does not know it")
        return RegisteredSchema("AVRO", json.dumps(self.schemas[schema_id]))

    def encode(self, schema_id: int, value: Any) -> bytes:
        """Return a value as a producer with the registry's serializer writes it."""
        data = BytesIO()
        # fastavro adds marks to the schema that it parses
        schema = fastavro.parse_schema(json.loads(json.dumps(self.schemas[schema_id])))
        fastavro.schemaless_writer(data, schema, value)
        return b"\0" + schema_id.to_bytes(4) + data.getvalue()

    def build_decoder(self) -> RegistryChangeDecoder:
        """Return a decoder of changes that asks this registry."""
        registry: Any = self  # the type has a client's settings
        return RegistryChangeDecoder(RegistryDecoder(registry, "avro"))
