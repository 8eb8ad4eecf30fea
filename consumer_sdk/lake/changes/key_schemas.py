"""Refuses changes whose schema has no key column: with `lake.key` misspelled all would be dead letters.

Rules, for a record without a key (`change_rows`, rule 2) whose value has a schema of the registry:

1. If neither its row's schema nor its record key has a column of `lake.key`, the batch is refused: no record
   of this schema can have a key, so the setting, or a new schema, is wrong. It depends on the record's own
   schema, not on those beside it, nor on the table: one that exists does not get such records either.
2. A record key has the columns of its schema; text has that of a single key column; text for several columns,
   and an object, which no registry wrote, have none. A missing one has those of the other record keys of its
   schema in the batch: among keyed records, one that was written without a key is a dead letter.
3. A null in a column that a schema has is a dead letter, and so are a record key that cannot be read, and a
   tombstone: its delete may have removed the row before, by columns that the record key never had.

JSON has the columns of `lake.schema`, which are compared with `lake.key` before the first record.
"""

from collections.abc import Collection, Iterable
from typing import Any, Final

import pyarrow as pa

from trimtab.common.errors import suggest_name
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_decoders import ChangeDecoder
from trimtab.consumer_sdk.lake.changes.change_formats import ChangeRecognizer
from trimtab.consumer_sdk.lake.model.untyped_arrow import Table
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA, column_name

_LISTED_CHARACTERS: Final = 300


def check_key_schemas(
    records: Table,
    keyless: Iterable[int],
    key_columns: Collection[str],
    recognize: ChangeRecognizer,
    decoder: ChangeDecoder,
) -> None:
    """Raise TableSchemaMismatchError if the schemas of a record without a key lack a key column."""
    # by the id of a schema: a batch may have many such records
    row_columns, keys_beside = dict[int, list[str]](), dict[int, list[str]]()
    for at in sorted(keyless):
        value, key = (records.column(name)[at].as_py() for name in ("value", "key"))
        schema = None if value is None else decoder.find_schema(value)
        if schema is None:
            continue
        if id(schema) not in row_columns:
            row_columns[id(schema)] = _list_row_columns(schema, recognize)
        of_row = row_columns[id(schema)]
        lacking = [name for name in key_columns if name not in of_row]
        if not of_row or not lacking:  # no row at all, as a delete of a mapping may have
            continue
        if key is None and id(schema) not in keys_beside:
            keys_beside[id(schema)] = _list_keys_beside(records, schema, key_columns, decoder)
        of_key = keys_beside[id(schema)] if key is None else _list_key_columns(key, key_columns, decoder)
        if of_key is not None and (lacking := [name for name in lacking if name not in of_key]):
            record = records.slice(at, 1).to_pylist()[0]
            raise _describe_missing_column(lacking[0], record, of_row, of_key)


def _list_row_columns(schema: Any, recognize: ChangeRecognizer) -> list[str]:
    fields = [field.with_name(column_name(field.name)) for field in schema]
    after = recognize(pa.schema([*RECORD_SCHEMA, *fields]).empty_table()).after
    return [column_name(name) for name in after.type.names]


def _list_keys_beside(
    records: Table, schema: Any, key_columns: Collection[str], decoder: ChangeDecoder
) -> list[str]:
    """Return the columns that the record keys of a schema's records can have.

    The decoder knows the schemas of these keys: it has looked them up for the columns that the rows lack.
    """
    pairs = zip(*(records.column(name).to_pylist() for name in ("key", "value")), strict=True)
    keys = {key for key, value in pairs if None not in (key, value) and decoder.find_schema(value) is schema}
    return sorted({name for key in keys for name in _list_key_columns(key, key_columns, decoder) or ()})


def _list_key_columns(
    key: bytes, key_columns: Collection[str], decoder: ChangeDecoder
) -> Collection[str] | None:
    """Return the columns that a record key can have, None if they are unknown."""
    if key.lstrip().startswith(b"{"):
        return ()
    if not key.startswith(b"\0"):
        return key_columns if len(key_columns) == 1 else ()
    schema = decoder.find_schema(key)
    return None if schema is None else [column_name(name) for name in schema.names]


def _describe_missing_column(
    name: str, record: dict[str, Any], of_row: list[str], of_key: Collection[str]
) -> TableSchemaMismatchError:
    place = f"record {record['topic']}-{record['partition']} at offset {record['offset']}"
    key = f"its record key has {_join_names(of_key)}" if of_key else "its record key has no columns"
    hint = suggest_name(name, [*of_row, *of_key]) or "."
    return TableSchemaMismatchError(
        f"lake.key: there is no column {name!r} in the schema of {place}: its row has {_join_names(of_row)}, "
        f"and {key}{hint} Nothing was written and no offset moved: correct lake.key; or, if it is right, "
        "produce the column in the value or in the record key, and rows without it to another topic"
    )


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(names)[:_LISTED_CHARACTERS]
