"""Care of Iceberg tables, by Iceberg's own procedures.

A compaction's snapshot has no marks, and expiry may take the last one that has: see rule 1 of
`care`. Expiry goes by age, so marks that stand in a snapshot younger than the age are safe, also
from a compaction that commits while the snapshots are being counted.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake, IcebergTable
from trimtab.consumer_sdk.lake.maintenance import (
    MAX_FILES_PER_ROUND,
    ExpiryPolicy,
    ExpiryResult,
    FileTotals,
    RewriteRound,
    log,
    recommit_offsets,
    require_table,
)
from trimtab.consumer_sdk.lake.offsets.table_offsets import OFFSETS_PROPERTY
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import java_packages as java


class IcebergMaintenance:
    """Takes care of the tables of an Iceberg catalog."""

    def __init__(self, lake: IcebergLake) -> None:
        self._lake = lake

    def plan_compaction(self, table: str, target: int | None) -> FileTotals:
        """Return what Iceberg's planner would rewrite. Raises LakeUnavailableError."""
        found = self._open_table(table)
        if found.java_table.currentSnapshot() is None:
            return FileTotals()
        with jvm_errors.translate_errors(f"table {table}: plan of a compaction"):
            planner = java(self._lake.spark).org.apache.iceberg.actions.BinPackRewriteFilePlanner(
                found.java_table
            )
            planner.init(_rewrite_options(target))
            groups = planner.plan().groups().iterator()
            return _sum_files(groups)

    def rewrite_small_files(self, table: str, target: int | None) -> RewriteRound:
        """Rewrite small files in one snapshot."""
        options = ", ".join(f"'{k}', '{v}'" for k, v in sorted(_rewrite_options(target).items()))
        row = self._call_for_row("rewrite_data_files", table, f"options => map({options})")
        old = FileTotals(row.rewritten_data_files_count, row.rewritten_bytes_count)
        return RewriteRound(old, row.added_data_files_count)

    def preserve_offsets(self, table: str, since: float | None = None) -> None:
        """Commit the marks once more where they stand in too old a snapshot."""
        found = self._open_table(table)
        with jvm_errors.translate_errors(f"table {table}"):
            if not _are_offsets_at_risk(found, since):
                return
        try:
            recommit_offsets(found)
        except CommittedOffsetsLostError as error:  # of a table that is not ours, or lost already
            log.warning("%s", error)

    def expire_versions(self, table: str, policy: ExpiryPolicy, now: float) -> ExpiryResult:
        """Expire snapshots, delete what only they named, then what nobody ever named."""
        found = self._open_table(table)
        before, files = found.count_snapshots(), 0
        if _has_expirable_snapshot(found.java_table, now - policy.version_age_s):
            keep = 1 if policy.min_versions is None else policy.min_versions
            until = _older_than_argument(now - policy.version_age_s)
            row = self._call_for_row("expire_snapshots", table, f"{until}, retain_last => {keep}")
            files = sum(count or 0 for count in row)
        after = self._open_table(table).count_snapshots()
        gone = self._call_procedure(
            "remove_orphan_files", table, _older_than_argument(now - policy.orphan_age_s)
        )
        return ExpiryResult(table, max(0, before - after), files, len(gone))

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
    asked = {"max-files-to-rewrite": str(MAX_FILES_PER_ROUND)}
    return asked if target is None else asked | {"target-file-size-bytes": str(target)}


def _sum_files(groups: Any) -> FileTotals:
    files = size = 0
    while groups.hasNext():
        group = groups.next()
        files += int(group.inputFileNum())
        size += int(group.inputFilesSizeInBytes())
    return FileTotals(files, size)


def _has_expirable_snapshot(table: Any, time: float) -> bool:
    """Whether there is a snapshot to expire: an old one besides the current one."""
    current = table.currentSnapshot()
    return any(
        snapshot.timestampMillis() < time * 1000 and snapshot.snapshotId() != current.snapshotId()
        for snapshot in table.snapshots()
    )


def _are_offsets_at_risk(table: IcebergTable, since: float | None) -> bool:
    """Whether the newest snapshot with marks is not the current one, or is too old.

    Only ancestors of the current one count: marks that were rolled back are no longer the table's.
    """
    current = table.java_table.currentSnapshot()
    if current is None:
        return False
    if since is None:
        return current.summary().get(OFFSETS_PROPERTY) is None
    kept = [s for s in table.walk_ancestors() if s.timestampMillis() >= since * 1000]
    return _has_expirable_snapshot(table.java_table, since) and all(
        s.summary().get(OFFSETS_PROPERTY) is None for s in kept
    )


def _older_than_argument(seconds: float) -> str:
    return f"older_than => TIMESTAMP '{datetime.fromtimestamp(seconds, UTC).isoformat()}'"
