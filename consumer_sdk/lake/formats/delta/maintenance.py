"""Care of Delta tables, by OPTIMIZE, a checkpoint and VACUUM.

Marks are part of every version's state, so none of this can lose them. Versions go by age alone:
VACUUM deletes the files that no version younger than the age names, staged ones that were never
committed among them, and the log is cleaned as the table's own `delta.logRetentionDuration` says
(30 days unless it was changed), which happens when a checkpoint is written.
"""

import math
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as sql

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.lake import StoredTable
from trimtab.consumer_sdk.lake.maintenance import HOUR, Ages, Expired, Files, Rewritten, existing
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.spark.session import jvm as java
from trimtab.consumer_sdk.lake.spark.session import session_object

LARGEST: Final = "spark.databricks.delta.optimize.maxFileSize"
SMALL: Final = "spark.databricks.delta.optimize.minFileSize"
CHECK: Final = "spark.databricks.delta.retentionDurationCheck.enabled"
IGNORES: Final = "spark.databricks.delta.vacuum.retentionWindowIgnore.enabled"
"""Delta 4.4 takes no age but 0 from VACUUM, unless it is told to."""

LISTING: Final = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Tasks that VACUUM lists a folder with: 10,000 unless it is told."""

DEFAULT_TARGET: Final = 1 << 30
"""Delta's own."""


class DeltaKeeper:
    """Takes care of the Delta tables below one folder."""

    def __init__(self, lake: DeltaLake) -> None:
        self._lake = lake
        self._spark = lake.spark

    def small(self, table: str, target: int | None) -> Files:
        """Return the files that OPTIMIZE would rewrite: partitions with more than one small one."""
        self._open(table)
        least = DEFAULT_TARGET if target is None else target
        with jvm_errors.translated(f"table {table}: plan of a compaction"):
            files = DataFrame(self._log(table).unsafeVolatileSnapshot().allFiles(), self._spark)
            small = files.where(f"size < {least}").groupBy(sql.to_json("partitionValues"))
            found = small.agg(sql.count("*").alias("files"), sql.sum("size").alias("bytes"))
            rows = found.where("files > 1").collect()
        return Files(sum(row.files for row in rows), sum(row.bytes for row in rows))

    def compact(self, table: str, target: int | None) -> Rewritten:
        """Rewrite small files in one version."""
        self._open(table)
        sizes = {} if target is None else {LARGEST: str(target), SMALL: str(target)}
        with jvm_errors.translated(f"table {table}: OPTIMIZE"), _set(self._spark, sizes):
            (row,) = self._spark.sql(f"OPTIMIZE {table}").collect()
        done = row.metrics
        old = Files(done.numFilesRemoved, done.filesRemoved.totalSize or 0)
        return Rewritten(old, done.numFilesAdded)

    def keep_marks(self, table: str, since: float | None = None) -> None:
        """Nothing is to be done: every version has all marks."""

    def expire(self, table: str, ages: Ages, now: float) -> Expired:
        """Clean the log, and delete files that no version younger than the ages names.

        Raises SettingError for a number of versions: Delta goes by age.
        """
        del now  # VACUUM asks its own clock
        if ages.keep is not None:
            raise SettingError("--keep is for Iceberg: Delta keeps versions by their age alone")
        found = self._open(table)
        hours = math.ceil(max(ages.versions, ages.orphans) / HOUR)
        with jvm_errors.translated(f"table {table}: VACUUM"), _set(self._spark, self._vacuuming()):
            before = found.snapshots()
            self._log(table).checkpoint()
            after = found.snapshots()
            vacuum = f"VACUUM {table} RETAIN {hours} HOURS"
            files = self._spark.sql(f"{vacuum} DRY RUN").count()
            self._spark.sql(vacuum)
        return Expired(table, max(0, before - after), files, None)

    def _vacuuming(self) -> dict[str, str]:
        tasks = str(self._spark.sparkContext.defaultParallelism)
        return {CHECK: "false", IGNORES: "false", LISTING: tasks}

    def _log(self, name: str) -> Any:
        namespace, _, table = name.partition(".")
        logs = java(self._spark).org.apache.spark.sql.delta.DeltaLog
        place = f"{self._lake.place(namespace)}/{table}"
        return logs.forTable(session_object(self._spark), place)

    def _open(self, name: str) -> StoredTable:
        return existing(self._lake.open(name), name)


@contextmanager
def _set(spark: Any, settings: Mapping[str, str]) -> Generator[None, None, None]:
    """Give the session these settings while the block runs."""
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
