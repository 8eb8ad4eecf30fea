"""Maintenance of Delta tables with OPTIMIZE, a checkpoint and VACUUM.

Every version contains all offsets, so none of these can lose them. Versions expire by age only.
VACUUM deletes the files that no version younger than the age references, including staged files
that were never committed. Writing a checkpoint cleans the log of versions older than the table's
`delta.logRetentionDuration` (30 days by default).
"""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.commits.compaction_hold import HOLD_PROPERTY, format_hold
from trimtab.consumer_sdk.lake.commits.maintenance import (
    SECONDS_PER_HOUR,
    ExpiryPolicy,
    ExpiryResult,
    FileTotals,
    RewriteRound,
    require_table,
)
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import StoredTable
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.gateway import java_packages as java
from trimtab.consumer_sdk.lake.spark.gateway import java_session

MAX_FILE_SIZE_SETTING: Final = "spark.databricks.delta.optimize.maxFileSize"
MIN_FILE_SIZE_SETTING: Final = "spark.databricks.delta.optimize.minFileSize"
RETENTION_CHECK_SETTING: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
IGNORE_WINDOW_SETTING: Final = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
LISTING_PARALLELISM_SETTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
DEFAULT_TARGET_BYTES: Final = 1 << 30  # Delta's default


class DeltaMaintenance:
    """Maintenance of the Delta tables below one folder."""

    def __init__(self, lake: DeltaLake) -> None:
        self._lake = lake
        self._spark = lake.spark

    def plan_compaction(self, table: str, target: int | None) -> FileTotals:
        """Return the files that OPTIMIZE would rewrite."""
        self._open_table(table)
        small_below = DEFAULT_TARGET_BYTES if target is None else target
        with jvm_errors.translate_errors(f"table {table}: plan of a compaction"):
            files = DataFrame(self._delta_log(table).unsafeVolatileSnapshot().allFiles(), self._spark)
            small = files.where(f"size < {small_below}").groupBy(sql.to_json("partitionValues"))
            sums = small.agg(sql.count("*").alias("files"), sql.sum("size").alias("bytes"))
            rows = sums.where("files > 1").collect()  # OPTIMIZE leaves a partition's only small file alone
        return FileTotals(sum(row.files for row in rows), sum(row.bytes for row in rows))

    def rewrite_small_files(self, table: str, target: int | None) -> RewriteRound:
        """Rewrite small files in one version."""
        self._open_table(table)
        sizes = (
            {} if target is None else {MAX_FILE_SIZE_SETTING: str(target), MIN_FILE_SIZE_SETTING: str(target)}
        )
        with jvm_errors.translate_errors(f"table {table}: OPTIMIZE"), _override_settings(self._spark, sizes):
            (row,) = self._spark.sql(f"OPTIMIZE {table}").collect()
        old = FileTotals(row.metrics.numFilesRemoved, row.metrics.filesRemoved.totalSize or 0)
        return RewriteRound(old, row.metrics.numFilesAdded)

    def set_hold(self, table: str, seconds: float | None) -> None:
        """Set or remove the property in a version of its own."""
        self._open_table(table)
        change = f"UNSET TBLPROPERTIES IF EXISTS ('{HOLD_PROPERTY}')"
        if seconds is not None:
            change = f"SET TBLPROPERTIES ('{HOLD_PROPERTY}' = '{format_hold(seconds)}')"
        with jvm_errors.translate_errors(f"table {table}: hold"):
            self._spark.sql(f"ALTER TABLE {table} {change}")

    def preserve_offsets(self, table: str, since: float | None = None) -> None:
        """Do nothing: every version contains all offsets."""

    def expire_versions(self, table: str, policy: ExpiryPolicy, now: float) -> ExpiryResult:
        """Delete files that no version younger than the ages references. Raises SettingError."""
        del now  # VACUUM uses the JVM's clock
        if policy.min_versions is not None:
            raise SettingError("--min-versions is for Iceberg: Delta expires versions by age only")
        opened = self._open_table(table)
        # VACUUM has one age for both, in whole hours: the longer one, rounded up.
        hours = math.ceil(max(policy.version_age_s, policy.orphan_age_s) / SECONDS_PER_HOUR)
        with (
            jvm_errors.translate_errors(f"table {table}: VACUUM"),
            _override_settings(self._spark, self._vacuum_settings()),
        ):
            before = opened.count_snapshots()
            self._delta_log(table).checkpoint()
            after = opened.count_snapshots()
            vacuum = f"VACUUM {table} RETAIN {hours} HOURS"
            files = self._spark.sql(f"{vacuum} DRY RUN").count()  # VACUUM itself reports no number
            self._spark.sql(vacuum)
        return ExpiryResult(table, max(0, before - after), files, None)

    def _vacuum_settings(self) -> dict[str, str]:
        return {
            RETENTION_CHECK_SETTING: "false",  # `ExpiryPolicy.check_ages` has the limits
            IGNORE_WINDOW_SETTING: "false",  # else VACUUM of Delta 4.4 accepts no age but 0
            # Spark lists a folder with up to 10,000 tasks by default.
            LISTING_PARALLELISM_SETTING: str(self._spark.sparkContext.defaultParallelism),
        }

    def _delta_log(self, name: str) -> Any:
        namespace, _, table = name.partition(".")
        logs = java(self._spark).org.apache.spark.sql.delta.DeltaLog
        place = f"{self._lake.namespace_path(namespace)}/{table}"
        return logs.forTable(java_session(self._spark), place)

    def _open_table(self, name: str) -> StoredTable:
        return require_table(self._lake.open_table(name), name)


@contextmanager
def _override_settings(spark: Any, settings: Mapping[str, str]) -> Generator[None, None, None]:
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
