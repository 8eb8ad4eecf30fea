"""Inventory of a lake: size and committed offsets of each table."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake, StoredTable
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, ICEBERG_FORMAT, SessionConfig


@dataclass(frozen=True, slots=True)
class TableInventory:
    """Size and committed offsets of one table."""

    name: str
    rows: int
    files: int
    bytes: int
    snapshots: int
    committed_offsets: Mapping[str, Mapping[str, Mapping[int, int]]]  # group → topic → partition → next
    note: str = ""  # why the offsets are unknown


def list_table_inventory(lake: SparkLake) -> list[TableInventory]:
    """Return the inventory of every table, sorted by name. Raises LakeUnavailableError."""
    return [_describe_table(name, table) for name, table in _open_tables(lake)]


def list_written_tables(lake: SparkLake) -> list[str]:
    """Return the names of the tables with offsets, sorted: those that Trimtab writes."""
    return [name for name, table in _open_tables(lake) if _has_offsets(table)]


def _open_tables(lake: SparkLake) -> Iterator[tuple[str, StoredTable]]:
    for name in lake.list_tables():
        table = lake.open_table(name)
        if table is not None:  # dropped since the listing
            yield name, table


def check_lake_exists(config: SessionConfig) -> None:
    """Raise SettingError for an embedded lake that does not exist."""
    # Opening one would create it: a misspelled path would look like an empty lake.
    if config.catalog or config.warehouse is None or ":" in config.warehouse:
        return
    folder = Path(config.warehouse)
    if config.format == DELTA_FORMAT:
        if not _has_delta_tables(folder):
            raise SettingError(f"there is no lake in {folder}: it contains no Delta table")
    elif not (folder / "catalog.db").exists():
        raise SettingError(f"there is no lake in {folder}: it has no catalog.db")


def detect_lake_format(folder: Path) -> str:
    """Return the format of an embedded lake, detected from the files in its folder."""
    is_delta = _has_delta_tables(folder) and not (folder / "catalog.db").exists()
    return DELTA_FORMAT if is_delta else ICEBERG_FORMAT


def _has_delta_tables(folder: Path) -> bool:
    return any(folder.glob("*/*/_delta_log"))


def _describe_table(name: str, table: StoredTable) -> TableInventory:
    totals = table.read_totals()
    snapshots = table.count_snapshots()
    try:
        committed, note = table.read_offsets().offsets, ""
    except CommittedOffsetsLostError as error:
        committed, note = CommittedOffsets(), str(error)
    return TableInventory(
        name, totals["rows"], totals["files"], totals["bytes"], snapshots, _nest_by_topic(committed), note
    )


def _has_offsets(table: StoredTable) -> bool:
    try:
        return bool(table.read_offsets().version)
    except CommittedOffsetsLostError:
        return False


def _nest_by_topic(offsets: CommittedOffsets) -> dict[str, dict[str, dict[int, int]]]:
    nested: dict[str, dict[str, dict[int, int]]] = {}
    for group, partitions in sorted(offsets.groups.items()):
        for (topic, partition), offset in sorted(partitions.items()):
            nested.setdefault(group, {}).setdefault(topic, {})[partition] = offset
    return nested
