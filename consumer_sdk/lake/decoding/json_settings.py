"""Settings of JSON values: `lake.timestamps`, what their numbers mean in timestamps, and contradictions."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias, cast

import pyarrow as pa

from trimtab.common.errors import SettingError, suggest_name
from trimtab.common.units import format_bytes
from trimtab.consumer_sdk.lake.model.file_writers import MAX_ARROW_BATCH_BYTES

JSON_DECODER: Final = "json"
TIMESTAMPS_SETTING: Final = "lake.timestamps"
ISO: Final = "iso"  # nothing: a number is a dead letter
EPOCH_SCALES: Final[Mapping[str, int]] = {  # decimal places down to a microsecond
    "epoch-seconds": 6,
    "epoch-millis": 3,
    "epoch-micros": 0,
}
EVERY_COLUMN: Final = "*"
TimestampRules: TypeAlias = Mapping[str, str]  # by the lower-case path of a column, like "order.at"; or "*"


def parse_timestamp_rules(setting: Any) -> TimestampRules:
    """Parse a rule, or a mapping of column to rule. Raises SettingError."""
    if not isinstance(setting, Mapping):
        return {EVERY_COLUMN: _parse_rule(setting)}
    given = cast("Mapping[str, Any]", setting)
    return {str(path).lower(): _parse_rule(rule) for path, rule in given.items()}


def find_json_problems(
    decoder: str, schema: Any, batch_bytes: float, given: Collection[str]
) -> Iterable[str]:
    """Yield contradictions between the settings of JSON and others."""
    if (decoder == JSON_DECODER) != bool(schema):
        yield (
            "lake.decoder=json and lake.schema need each other; write the schema as columns of "
            'Spark SQL, like "id BIGINT, name STRING", or a mapping of topic to that'
        )
    if TIMESTAMPS_SETTING in given and decoder != JSON_DECODER:
        yield f"{TIMESTAMPS_SETTING}: set lake.decoder=json with it, or omit it"
    if decoder == JSON_DECODER and batch_bytes > MAX_ARROW_BATCH_BYTES:
        yield f"batch.bytes: at most {format_bytes(MAX_ARROW_BATCH_BYTES)} with lake.decoder=json"


def check_timestamp_columns(rules: TimestampRules, schemas: Iterable[Any]) -> None:
    """Raise SettingError for a column that is no timestamp of any of these pyarrow schemas."""
    known = {
        path for schema in schemas for field in schema for path in _list_timestamps(field.name, field.type)
    }
    for path in sorted(rules.keys() - known - {EVERY_COLUMN}):
        hint = suggest_name(path, sorted(known))
        raise SettingError(f"{TIMESTAMPS_SETTING}: lake.schema has no timestamp {path!r}{hint}")


def prefix_rules(rules: TimestampRules, prefix: str) -> TimestampRules:
    """Return the rules of columns that are within the field `prefix`."""
    return {
        path if path == EVERY_COLUMN else f"{prefix.lower()}.{path}": rule for path, rule in rules.items()
    }


def _parse_rule(rule: Any) -> str:
    choices = (ISO, *EPOCH_SCALES)
    if rule not in choices:
        hint = suggest_name(str(rule), choices)
        raise SettingError(
            f"{TIMESTAMPS_SETTING}: {rule!r} is no rule{hint}; write {' or '.join(choices)}, or a mapping of "
            'column to that, like {created: epoch-millis, "*": iso}'
        )
    return str(rule)


def _list_timestamps(path: str, kind: Any) -> Iterable[str]:
    """Yield the paths of timestamps; those of array items and map values are the column's own."""
    if pa.types.is_timestamp(kind):
        yield path.lower()
    elif pa.types.is_struct(kind):
        for field in kind:
            yield from _list_timestamps(f"{path}.{field.name}", field.type)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        yield from _list_timestamps(path, kind.item_type if pa.types.is_map(kind) else kind.value_type)
