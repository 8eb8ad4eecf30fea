"""Maintenance of Iceberg tables with Iceberg's own procedures.

A compaction's snapshot has no offsets, and expiry may remove the last snapshot with offsets: see
rule 1 of `maintenance`. Expiry goes by age, so offsets in a snapshot younger than the age are safe,
even from a compaction that commits while the snapshots are being counted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY, format_hold
from trimtab.consumer_sdk.lake.commits.maintenance import (
    MAX_FILES_PER_ROUND,
    ExpiryPolicy,
    ExpiryResult,
    FileTotals,
    RewriteRound,
    log,
    recommit_offsets,
    require_table,
)
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake, IcebergTable
from trimtab.consumer_sdk.lake.offsets.table_offsets import OFFSETS_PROPERTY
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.gateway import java_packages as java

_HADOOP_FILE_IO: Final = "org.apache.iceberg.hadoop.HadoopFileIO"


class IcebergMaintenance:
    """Maintenance of the tables of an Iceberg catalog."""

    def __init__(self, lake: IcebergLake) -> None:
        self._lake = lake

    def plan_compaction(self, table: str, target: int | None) -> FileTotals:
        """Return the files that Iceberg's planner would rewrite."""
        java_table = self._open_table(table).java_table
        if java_table.currentSnapshot() is None:  # Iceberg's planner requires a snapshot
            return FileTotals()
        with jvm_errors.translate_errors(f"table {table}: plan of a compaction"):
            planner = java(self._lake.spark).org.apache.iceberg.actions.BinPackRewriteFilePlanner(java_table)
            planner.init(_rewrite_options(target))
            return _sum_files(planner.plan().groups().iterator())

    def rewrite_small_files(self, table: str, target: int | None) -> RewriteRound:
        """Rewrite small files in one snapshot."""
        options = ", ".join(f"'{k}', '{v}'" for k, v in sorted(_rewrite_options(target).items()))
        row = self._call_for_row("rewrite_data_files", table, f"options => map({options})")
        old = FileTotals(row.rewritten_data_files_count, row.rewritten_bytes_count)
        return RewriteRound(old, row.added_data_files_count)

    def set_hold(self, table: str, seconds: float | None) -> None:
        """Set or remove the property in a commit of its own."""
        opened = self._open_table(table)
        with jvm_errors.translate_errors(f"table {table}: hold"):
            update = opened.java_table.updateProperties()
            if seconds is None:
                update.remove(HOLD_PROPERTY).commit()
            else:
                update.set(HOLD_PROPERTY, format_hold(seconds)).commit()

    def preserve_offsets(self, table: str, since: float | None = None) -> None:
        """Commit the offsets again if the snapshot that has them is too old."""
        opened = self._open_table(table)
        with jvm_errors.translate_errors(f"table {table}"):
            if not _are_offsets_at_risk(opened, since):
                return
        try:
            recommit_offsets(opened)
        except CommittedOffsetsLostError as error:  # not our table, or lost already: go on
            log.warning("%s", error)

    def expire_versions(self, table: str, policy: ExpiryPolicy, now: float) -> ExpiryResult:
        """Expire snapshots and the files that only they reference; then remove orphan files."""
        opened = self._open_table(table)
        before = opened.count_snapshots()
        files = 0
        time = now - policy.version_age_s
        if _has_expirable_snapshot(opened.java_table, time):  # else the procedure's Spark jobs are wasted
            keep = 1 if policy.min_versions is None else policy.min_versions
            arguments = f"{_older_than_argument(time)}, retain_last => {keep}"
            files = sum(count or 0 for count in self._call_for_row("expire_snapshots", table, arguments))
        after = self._open_table(table).count_snapshots()
        older_than = _older_than_argument(now - policy.orphan_age_s)
        listing = f"{older_than}, prefix_listing => {_must_list_by_prefix(opened)}"
        orphans = self._call_procedure("remove_orphan_files", table, listing)
        # A writer may have committed meanwhile, so that there are more snapshots than before.
        return ExpiryResult(table, max(0, before - after), files, len(orphans))

    def _open_table(self, name: str) -> IcebergTable:
        return require_table(self._lake.open_table(name), name)

    def _call_for_row(self, procedure: str, table: str, arguments: str) -> Any:
        (row,) = self._call_procedure(procedure, table, arguments)
        return row

    def _call_procedure(self, procedure: str, table: str, arguments: str) -> list[Any]:
        catalog = self._lake.catalog_name
        call = f"CALL {catalog}.system.{procedure}(table => '{table}', {arguments})"
        with jvm_errors.translate_errors(f"table {table}: {procedure}"):
            return self._lake.spark.sql(call).collect()


def _rewrite_options(target: int | None) -> Mapping[str, str]:
    options = {"max-files-to-rewrite": str(MAX_FILES_PER_ROUND)}
    return options if target is None else options | {"target-file-size-bytes": str(target)}


def _sum_files(groups: Any) -> FileTotals:
    files = size = 0
    while groups.hasNext():
        group = groups.next()
        files += int(group.inputFileNum())
        size += int(group.inputFilesSizeInBytes())
    return FileTotals(files, size)


def _has_expirable_snapshot(table: Any, time: float) -> bool:
    current = table.currentSnapshot()
    return any(
        snapshot.timestampMillis() < time * 1000 and snapshot.snapshotId() != current.snapshotId()
        for snapshot in table.snapshots()
    )


def _must_list_by_prefix(table: IcebergTable) -> str:
    # By default Spark lists folders by Hadoop, which has no client for the storage of another FileIO.
    return "false" if str(table.java_table.io().getClass().getName()) == _HADOOP_FILE_IO else "true"


def _are_offsets_at_risk(table: IcebergTable, since: float | None) -> bool:
    """Return whether the newest snapshot with offsets is not the current one, or is too old."""
    current = table.java_table.currentSnapshot()
    if current is None:
        return False
    if since is None:
        return current.summary().get(OFFSETS_PROPERTY) is None
    # Only ancestors of the current snapshot: offsets that were rolled back are no longer the table's.
    kept = [s for s in table.walk_ancestors() if s.timestampMillis() >= since * 1000]
    return _has_expirable_snapshot(table.java_table, since) and all(
        s.summary().get(OFFSETS_PROPERTY) is None for s in kept
    )


def _older_than_argument(seconds: float) -> str:
    return f"older_than => TIMESTAMP '{datetime.fromtimestamp(seconds, UTC).isoformat()}'"
