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
    soft_deletes: bool = False,
) -> JsonChangeDecoder:
    """Return the decoder of changes whose rows have these columns. Raises SettingError."""
    row = parse_json_schema(ddl)
    for name in key:
        _check_key_column(name, row, ddl)
    key_schema = pa.schema([row.field(name) for name in key])
    rules = dict(timestamp_rules)
    for place in _list_row_fields(form):
        rules |= prefix_rules(timestamp_rules, place)
    others = [name for name in row.names if name not in key]  # the record's key would fill a null in the key
    nullable = _list_nullable(others, form, nulls_outside=nulls_outside, soft_deletes=soft_deletes)
    return JsonChangeDecoder(build_value_schema(row, form), key_schema, form == DEBEZIUM, rules, nullable)


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


def _list_nullable(
    columns: list[str], form: ChangeFormat, *, nulls_outside: bool, soft_deletes: bool
) -> frozenset[str]:
    """Return the paths of columns that are null if out of range, with `before` where it is not written."""
    prefixes = [f"{place}." for place in _list_row_fields(form)] or [""]
    if not nulls_outside:
        prefixes = ["before."] if form == DEBEZIUM and not soft_deletes else []
    return frozenset(prefix + name for prefix in prefixes for name in columns)


def _check_key_column(name: str, row: Any, ddl: str) -> None:
    at = row.get_field_index(name)
    if at < 0:
        raise SettingError(f"lake.key: lake.schema {ddl!r} has no column {name!r}")
    if pa.types.is_nested(row.field(at).type) or pa.types.is_floating(row.field(at).type):
        raise SettingError(
            f"lake.key: column {name} is {row.field(at).type}, which cannot be a key: name columns of "
            "integers, text, times or decimals"
        )
