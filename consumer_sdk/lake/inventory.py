"""What is in a lake: each table's size, and up to which offset it holds each partition."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import MarksLost
from trimtab.consumer_sdk.lake.lake import SparkLake, StoredTable
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks
from trimtab.consumer_sdk.lake.settings import DELTA, ICEBERG, SessionConfig


@dataclass(frozen=True, slots=True)
class TableFacts:
    """One table; `marks` is group → topic → partition → next offset, `note` says what is wrong."""

    name: str
    rows: int
    files: int
    bytes: int
    snapshots: int
    marks: Mapping[str, Mapping[str, Mapping[int, int]]]
    note: str = ""


def inventory(lake: SparkLake) -> list[TableFacts]:
    """Return the facts of every table, sorted by name. Raises LakeUnavailable."""
    found = ((name, lake.open(name)) for name in lake.names())
    return [_facts(name, table) for name, table in found if table is not None]


def written(lake: SparkLake) -> list[str]:
    """Return the names of the tables that have offsets, sorted: those that the sink writes."""
    found = ((name, lake.open(name)) for name in lake.names())
    return [name for name, table in found if table is not None and _has_marks(table)]


def check_exists(config: SessionConfig) -> None:
    """Raise SettingError where an embedded lake is asked for that nobody has made."""
    if config.catalog or config.warehouse is None or ":" in config.warehouse:
        return
    folder = Path(config.warehouse)
    if config.format == DELTA:
        if not _has_delta(folder):
            raise SettingError(f"there is no lake in {folder}: no folder of it is a Delta table")
    elif not (folder / "catalog.db").exists():
        raise SettingError(f"there is no lake in {folder}: it has no catalog.db")


def format_of(folder: Path) -> str:
    """Return the format of an embedded lake by what is in its folder."""
    return DELTA if _has_delta(folder) and not (folder / "catalog.db").exists() else ICEBERG


def _has_delta(folder: Path) -> bool:
    return any(folder.glob("*/*/_delta_log"))


def _facts(name: str, table: StoredTable) -> TableFacts:
    totals, snapshots = table.totals(), table.snapshots()
    try:
        marks, note = table.look().marks, ""
    except MarksLost as error:
        marks, note = Marks(), str(error)
    return TableFacts(
        name, totals["rows"], totals["files"], totals["bytes"], snapshots, _nested(marks), note
    )


def _has_marks(table: StoredTable) -> bool:
    try:
        return bool(table.look().version)
    except MarksLost:
        return False


def _nested(marks: Marks) -> dict[str, dict[str, dict[int, int]]]:
    nested: dict[str, dict[str, dict[int, int]]] = {}
    for group, partitions in sorted(marks.groups.items()):
        for (topic, partition), offset in sorted(partitions.items()):
            nested.setdefault(group, {}).setdefault(topic, {})[partition] = offset
    return nested
