"""Settings of upserts: `lake.write`, `lake.key`, `lake.delete`, `lake.truncate`, `lake.changes`."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, cast

from trimtab.common.errors import SettingError
from trimtab.common.units import format_bytes
from trimtab.consumer_sdk.lake.model.file_writers import MAX_ARROW_BATCH_BYTES
from trimtab.consumer_sdk.lake.model.table_names import TableNames

APPEND: Final = "append"
UPSERT: Final = "upsert"
HARD_DELETE: Final = "hard"
SOFT_DELETE: Final = "soft"
REJECT_TRUNCATIONS: Final = "reject"
APPLY_TRUNCATIONS: Final = "apply"
DEBEZIUM: Final = "debezium"
KEYED: Final = "keyed"
EVERY_TOPIC: Final = "*"
_UPSERT_ONLY_SETTINGS: Final = ("lake.changes", "lake.delete", "lake.key", "lake.truncate")
_MAPPING_NAMES: Final = frozenset({"op", "upsert", "delete", "row"})
_CHANGES_ADVICE: Final = (
    "write debezium, keyed, or a mapping: op (column of the operation), upsert and delete (lists of its "
    "values), and row if a column holds the row's columns"
)


@dataclass(frozen=True, slots=True)
class ChangeMapping:
    """Where records of a format of its own keep the operation and the row."""

    op: str  # column of the operation
    upsert: frozenset[str]  # its values
    delete: frozenset[str]
    row: str | None = None  # column with the row's columns; None: all columns but `op`


ChangeFormat: TypeAlias = str | ChangeMapping  # DEBEZIUM, KEYED, or a mapping


@dataclass(frozen=True, slots=True)
class ChangeSettings:
    """Resolved settings of `lake.write: upsert`."""

    keys: Mapping[str, tuple[str, ...]]  # topic to its key columns; "*": every other topic
    format: ChangeFormat = DEBEZIUM
    soft_deletes: bool = False
    applies_truncations: bool = False

    def key_for(self, topic: str) -> tuple[str, ...]:
        """Return a topic's key columns. Raises SettingError."""
        key = self.keys.get(topic) or self.keys.get(EVERY_TOPIC)
        if key is None:
            raise SettingError(
                f"lake.key names no columns for topic {topic!r}; add it, or '*' for the others"
            )
        return key


def parse_key_columns(value: Any) -> dict[str, tuple[str, ...]]:
    """Parse `id`, `[id, region]`, or a mapping of topic to either. Raises SettingError."""
    if isinstance(value, Mapping):
        return {str(topic): _parse_names(columns) for topic, columns in value.items()}
    return {EVERY_TOPIC: _parse_names(value)}


def parse_change_format(value: Any) -> ChangeFormat:
    """Parse `debezium`, `keyed` or a mapping. Raises SettingError."""
    if value in (DEBEZIUM, KEYED):
        return str(value)
    if not isinstance(value, Mapping):
        raise SettingError(f"lake.changes: {value!r} is no format of changes; {_CHANGES_ADVICE}")
    given = cast("Mapping[str, Any]", value)
    unknown = sorted(map(str, given.keys() - _MAPPING_NAMES))
    if unknown or not {"op", "upsert", "delete"} <= given.keys():
        raise SettingError(f"lake.changes: {dict(given)!r} is no mapping of changes; {_CHANGES_ADVICE}")
    upsert, delete = (frozenset(_parse_names(given[name])) for name in ("upsert", "delete"))
    if both := sorted(upsert & delete):
        raise SettingError(f"lake.changes: {both[0]!r} cannot be both an upsert and a delete")
    row = given.get("row")
    return ChangeMapping(str(given["op"]), upsert, delete, None if row is None else str(row))


def find_change_problems(
    write: str, decoder: str, batch_bytes: float, given: Collection[str]
) -> Iterable[str]:
    """Yield contradictions between the settings of upserts and others."""
    if write == APPEND:
        for name in _UPSERT_ONLY_SETTINGS:
            if name in given:
                yield f"{name}: set lake.write={UPSERT} with it, or omit it"
        return
    if "lake.key" not in given:
        yield f'lake.write={UPSERT} needs lake.key: the columns that identify a row, like "id"'
    if decoder == "raw":
        yield (
            f"lake.write={UPSERT} needs lake.decoder=json (with lake.schema: the columns of a row), avro "
            "or protobuf: the key is among the columns"
        )
    if batch_bytes > MAX_ARROW_BATCH_BYTES:
        yield f"batch.bytes: at most {format_bytes(MAX_ARROW_BATCH_BYTES)} with lake.write={UPSERT}"
    if "lake.transform" in given:
        yield f"lake.transform: changes of lake.write={UPSERT} are not passed to a transform; omit it"


def find_truncation_problems(truncate: str, delete: str, form: Any) -> Iterable[str]:
    """Yield contradictions between `lake.truncate` and other settings of upserts."""
    if truncate == APPLY_TRUNCATIONS and delete == SOFT_DELETE:
        yield f"lake.truncate={APPLY_TRUNCATIONS} removes rows: set lake.delete={HARD_DELETE} with it"
    if truncate == APPLY_TRUNCATIONS and form != DEBEZIUM:
        yield f"lake.truncate={APPLY_TRUNCATIONS}: set lake.changes={DEBEZIUM}, only its changes truncate"


def check_shared_keys(names: TableNames, changes: ChangeSettings) -> None:
    """Raise SettingError if topics of one table have different keys, or a TRUNCATE of one empties it."""
    keys: dict[str, tuple[str, ...]] = {}
    for topic, table in sorted(names.mapping.items()):
        key = changes.key_for(topic)
        if table in keys and changes.applies_truncations:
            raise SettingError(
                f"lake.tables: several topics have table {table!r}; with lake.truncate={APPLY_TRUNCATIONS} "
                "each needs a table of its own"
            )
        if keys.setdefault(table, key) != key:
            raise SettingError(
                f"lake.key: the topics of table {table!r} must have one key, {topic!r} has another"
            )


def _parse_names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str):
        names = tuple(part.strip() for part in value.split(","))
    elif isinstance(value, list | tuple):
        names = tuple(map(str, cast("list[Any]", value)))
    else:
        raise SettingError(f"{value!r} is no list of names, like [id, region]")
    if not names or not all(names) or len({*names}) < len(names):
        raise SettingError(f"{value!r} must name something, and each name once, like [id, region]")
    return names
