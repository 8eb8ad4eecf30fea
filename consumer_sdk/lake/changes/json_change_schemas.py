"""Arrow schemas of JSON changes, from the columns of a row as DDL (`lake.schema`)."""

from typing import Any

import pyarrow as pa

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.changes.change_decoders import JsonChangeDecoder
from trimtab.consumer_sdk.lake.changes.change_settings import DEBEZIUM, KEYED, ChangeFormat
from trimtab.consumer_sdk.lake.decoding.json_decoder import parse_json_schema
from trimtab.consumer_sdk.lake.decoding.json_settings import TimestampRules, prefix_rules


def create_json_change_decoder(
    ddl: str,
    form: ChangeFormat,
    key: tuple[str, ...],
    timestamp_rules: TimestampRules,
    *,
    nulls_outside: bool = False,
    is_lenient: bool = False,
) -> JsonChangeDecoder:
    """Return the decoder of changes whose rows have these columns. Raises SettingError.

    A lenient one spares the columns that not every change writes (`KeyedProjection`).
    """
    row = parse_json_schema(ddl)
    for name in key:
        _check_key_column(name, row, ddl)
    key_schema = pa.schema([row.field(name) for name in key])
    rules = dict(timestamp_rules)
    for place in _list_row_fields(form):
        rules |= prefix_rules(timestamp_rules, place)
    prefixes = [f"{place}." for place in _list_row_fields(form)] or [""]
    others = [name for name in row.names if name not in key]  # the record's key would fill a null in the key
    nullable = frozenset(prefix + name for prefix in prefixes for name in others if nulls_outside)
    # `before`, or the row of a mapping, which is that of a delete, too
    spared = frozenset(prefixes[0] + name for name in others if is_lenient and name != _op_column(form))
    schema = build_value_schema(row, form)
    return JsonChangeDecoder(schema, key_schema, form == DEBEZIUM, rules, nullable, spared)


def build_value_schema(row: Any, form: ChangeFormat) -> Any:
    """Return the columns of a format's values, from those of a row."""
    if form == KEYED:
        return row
    struct = pa.struct(list(row))
    if form == DEBEZIUM:
        return pa.schema([("op", pa.string()), ("before", struct), ("after", struct)])
    assert not isinstance(form, str)
    operation = pa.field(form.op, pa.string())
    if form.row is not None:
        return pa.schema([operation, (form.row, struct)])
    return pa.schema([operation, *(field for field in row if field.name != form.op)])


def _list_row_fields(form: ChangeFormat) -> tuple[str, ...]:
    """Return the fields of a value that hold a row; none if the value is the row."""
    if isinstance(form, str):
        return ("before", "after") if form == DEBEZIUM else ()
    return () if form.row is None else (form.row,)


def _op_column(form: ChangeFormat) -> str | None:
    """Return the column of the operation among those of the row, if any."""
    return None if isinstance(form, str) or form.row is not None else form.op


def _check_key_column(name: str, row: Any, ddl: str) -> None:
    at = row.get_field_index(name)
    if at < 0:
        raise SettingError(f"lake.key: lake.schema {ddl!r} has no column {name!r}")
    if pa.types.is_nested(row.field(at).type) or pa.types.is_floating(row.field(at).type):
        raise SettingError(
            f"lake.key: column {name} is {row.field(at).type}, which cannot be a key: name columns of "
            "integers, text, times or decimals"
        )
