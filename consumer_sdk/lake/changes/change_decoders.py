"""Decodes the values and keys of change records into Arrow columns."""

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa

from trimtab.consumer_sdk.lake.changes.array_casts import cast_by_halves
from trimtab.consumer_sdk.lake.decoding.decoded_records import DecodedRecords, scatter_values
from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder
from trimtab.consumer_sdk.lake.decoding.json_settings import TimestampRules
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.model.untyped_arrow import Array, Table, pc
from trimtab.consumer_sdk.lake.schema.record_columns import ERROR_COLUMN

_WORD: Final = re.compile(r"true|false|-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?", re.ASCII)  # of JSON
_ROW: Final = "__trimtab_row"  # beside the key's own columns


class ChangeDecoder(Protocol):
    """Decodes values and keys of one topic table."""

    def decode_values(self, records: Table) -> DecodedRecords:
        """Return the record columns and those of the values; a record without a value has nulls."""
        ...

    def decode_keys(self, keys: Array) -> tuple[Array, dict[int, str]]:
        """Return a struct for each key, null if it cannot be read, and the reasons by row."""
        ...

    def decode_text_keys(self, keys: Array, column: Any) -> tuple[Array, dict[int, str]]:
        """Return a value of the key's only column for each key that is plain text, and reasons by row."""
        ...

    def find_schema(self, data: bytes) -> Any:
        """Return the pyarrow schema that a decoded value or key was written with, None if it tells none."""
        ...


@dataclass(frozen=True, slots=True)
class JsonChangeDecoder:
    """Decodes JSON objects; both schemas are pyarrow's."""

    value_schema: Any
    key_schema: Any
    dates_are_numbers: bool = True  # as Debezium's
    timestamp_rules: TimestampRules = field(default_factory=dict[str, str])
    nulls_outside: frozenset[str] = frozenset()  # paths of columns, as those of JsonDecoder; no key
    spared: frozenset[str] = frozenset()

    def decode_values(self, records: Table) -> DecodedRecords:
        """Return the record columns and those of the values."""
        decoder = self._create_decoder(self.value_schema)
        return replace(decoder, nulls_outside=self.nulls_outside, spared=self.spared).decode_batch(records)

    def decode_keys(self, keys: Array) -> tuple[Array, dict[int, str]]:
        """Return a struct for each key, and the reasons of unreadable ones."""
        return self._create_decoder(self.key_schema).read_values(keys)

    def decode_text_keys(self, keys: Array, column: Any) -> tuple[Array, dict[int, str]]:
        """Return a value for each key by the rules of JSON, of timestamps and dates, too."""
        named = pa.field(self.key_schema.names[0], column.type)  # a table has another name for some
        return parse_text_keys(keys, self._create_decoder(pa.schema([named])))

    def find_schema(self, data: bytes) -> None:
        """Return None: JSON tells none."""
        del data

    def _create_decoder(self, schema: Any) -> JsonDecoder:
        return JsonDecoder(schema, self.timestamp_rules, self.dates_are_numbers)


@dataclass(frozen=True, slots=True)
class RegistryChangeDecoder:
    """Decodes values and keys of a schema registry."""

    decoder: RegistryDecoder

    def decode_values(self, records: Table) -> DecodedRecords:
        """Return the record columns and those of the values. Raises like RegistryDecoder."""
        return self.decoder.decode_batch(records)

    def decode_keys(self, keys: Array) -> tuple[Array, dict[int, str]]:
        """Return a struct for each key, and the reasons of unreadable ones. Raises like RegistryDecoder."""
        decoded = self.decoder.decode_batch(pa.table({"value": keys, _ROW: np.arange(len(keys))}))
        structs = decoded.rows.drop_columns(["value", _ROW]).to_struct_array().combine_chunks()
        letters = decoded.dead_letters
        if letters is None:
            return structs, {}
        reasons = dict(
            zip(letters.column(_ROW).to_pylist(), letters.column(ERROR_COLUMN).to_pylist(), strict=True)
        )
        readable = np.ones(len(keys), np.bool_)
        readable[list(reasons)] = False
        return scatter_values(structs, pa.array(readable)), reasons

    def decode_text_keys(self, keys: Array, column: Any) -> tuple[Array, dict[int, str]]:
        """Return a value for each key by the rules of JSON; bytes are the key itself."""
        if pa.types.is_binary(column.type):
            return keys, {}
        return parse_text_keys(keys, JsonDecoder(pa.schema([column])))

    def find_schema(self, data: bytes) -> Any:
        """Return the schema of a decoded value or key, None if it has none that can be used."""
        return self.decoder.find_schema(data)


def parse_text_keys(keys: Array, decoder: JsonDecoder) -> tuple[Array, dict[int, str]]:
    """Return keys that are text (`42`, `"42"`) as values of the decoder's column, and reasons by row."""
    column = decoder.schema.field(0)
    if pa.types.is_string(column.type):
        return cast_by_halves(keys, _unquote_all, column.type)
    name, is_binary = json.dumps(column.name), pa.types.is_binary(column.type)
    texts = [_unquote(key.decode("utf-8", "surrogateescape")) for key in keys.to_pylist()]
    words = [json.dumps(text) if is_binary or not _WORD.fullmatch(text) else text for text in texts]
    objects = pa.array([f"{{{name}:{word}}}".encode() for word in words], pa.binary())
    structs, errors = decoder.read_values(objects)
    return structs.field(0), errors


def _unquote_all(keys: Array) -> Array:
    texts = keys.cast(pa.string())
    if not pc.any(pc.starts_with(texts, '"')).as_py():
        return texts
    return pa.array(map(_unquote, texts.to_pylist()), pa.string())


def _unquote(text: str) -> str:
    """Return the text of a JSON string, any other text as it is."""
    if not text.startswith('"'):
        return text
    try:
        value: str = json.loads(text)
        value.encode()
    except ValueError:  # no JSON, or a lone surrogate
        return text
    return value
