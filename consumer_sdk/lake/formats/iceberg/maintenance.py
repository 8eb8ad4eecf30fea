"""Care of Iceberg tables, by Iceberg's own procedures.

A compaction's snapshot has no marks, and expiry may take the last one that has: see rule 1 of
`care`. Expiry goes by age, so marks that stand in a snapshot younger than the age are safe, also
from a compaction that commits while the snapshots are being counted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trimtab.consumer_sdk.errors import MarksLost
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake, IcebergTable
from trimtab.consumer_sdk.lake.maintenance import (
    FILES_AT_ONCE,
    Ages,
    Expired,
    Files,
    Rewritten,
    carry,
    existing,
    log,
)
from trimtab.consumer_sdk.lake.offsets.table_offsets import PROPERTY
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import jvm as java


class IcebergKeeper:
    """Takes care of the tables of an Iceberg catalog."""

    def __init__(self, lake: IcebergLake) -> None:
        self._lake = lake

    def small(self, table: str, target: int | None) -> Files:
        """Return what Iceberg's planner would rewrite. Raises LakeUnavailable."""
        found = self._open(table)
        if found.table.currentSnapshot() is None:
            return Files()
        with jvm_errors.translated(f"table {table}: plan of a compaction"):
            planner = java(self._lake.spark).org.apache.iceberg.actions.BinPackRewriteFilePlanner(
                found.table
            )
            planner.init(_options(target))
            groups = planner.plan().groups().iterator()
            return _sum(groups)

    def compact(self, table: str, target: int | None) -> Rewritten:
        """Rewrite small files in one snapshot."""
        options = ", ".join(f"'{k}', '{v}'" for k, v in sorted(_options(target).items()))
        row = self._call("rewrite_data_files", table, f"options => map({options})")
        old = Files(row.rewritten_data_files_count, row.rewritten_bytes_count)
        return Rewritten(old, row.added_data_files_count)

    def keep_marks(self, table: str, since: float | None = None) -> None:
        """Commit the marks once more where they stand in too old a snapshot."""
        found = self._open(table)
        with jvm_errors.translated(f"table {table}"):
            if not _at_risk(found, since):
                return
        try:
            carry(found)
        except MarksLost as error:  # of a table that is not ours, or lost already
            log.warning("%s", error)

    def expire(self, table: str, ages: Ages, now: float) -> Expired:
        """Expire snapshots, delete what only they named, then what nobody ever named."""
        found = self._open(table)
        before, files = found.snapshots(), 0
        if _older(found.table, now - ages.versions):
            keep = 1 if ages.keep is None else ages.keep
            until = _time(now - ages.versions)
            row = self._call("expire_snapshots", table, f"{until}, retain_last => {keep}")
            files = sum(count or 0 for count in row)
        after = self._open(table).snapshots()
        gone = self._call_all("remove_orphan_files", table, _time(now - ages.orphans))
        return Expired(table, max(0, before - after), files, len(gone))

    def _open(self, name: str) -> IcebergTable:
        return existing(self._lake.open(name), name)

    def _call(self, procedure: str, table: str, arguments: str) -> Any:
        (row,) = self._call_all(procedure, table, arguments)
        return row

    def _call_all(self, procedure: str, table: str, arguments: str) -> list[Any]:
        catalog = self._lake.catalog_name
        call = f"CALL {catalog}.system.{procedure}(table => '{table}', {arguments})"
        with jvm_errors.translated(f"table {table}: {procedure}"):
            return self._lake.spark.sql(call).collect()


def _options(target: int | None) -> Mapping[str, str]:
    asked = {"max-files-to-rewrite": str(FILES_AT_ONCE)}
    return asked if target is None else asked | {"target-file-size-bytes": str(target)}


def _sum(groups: Any) -> Files:
    files = size = 0
    while groups.hasNext():
        group = groups.next()
        files += int(group.inputFileNum())
        size += int(group.inputFilesSizeInBytes())
    return Files(files, size)


def _older(table: Any, time: float) -> bool:
    """Whether there is a snapshot to expire: an old one besides the current one."""
    current = table.currentSnapshot()
    return any(
        snapshot.timestampMillis() < time * 1000 and snapshot.snapshotId() != current.snapshotId()
        for snapshot in table.snapshots()
    )


def _at_risk(found: IcebergTable, since: float | None) -> bool:
    """Whether the newest snapshot with marks is not the current one, or is too old.

    Only ancestors of the current one count: marks that were rolled back are no longer the table's.
    """
    current = found.table.currentSnapshot()
    if current is None:
        return False
    if since is None:
        return current.summary().get(PROPERTY) is None
    kept = [s for s in found.ancestors() if s.timestampMillis() >= since * 1000]
    return _older(found.table, since) and all(s.summary().get(PROPERTY) is None for s in kept)


def _time(seconds: float) -> str:
    return f"older_than => TIMESTAMP '{datetime.fromtimestamp(seconds, UTC).isoformat()}'"
