"""Refuses data files that executors have written to folders of their own machines."""

from collections.abc import Iterable
from pathlib import Path

from pyspark.sql import SparkSession

from trimtab.common.errors import SettingError


def check_files_visible(spark: SparkSession, table: str, paths: Iterable[str]) -> None:
    """Raise SettingError if this process does not see a local file that executors have written.

    `paths` are in Hadoop's form. A table must not list such a file: only one machine could read it. Other
    tables may be elsewhere, so the error is this table's (`error_scope`).
    """
    master = str(spark.sparkContext.master)
    if master.startswith("local"):
        return
    for path in paths:
        local = path.removeprefix("file:")
        if local.startswith("/") and not Path(local).exists():
            raise SettingError(
                f"table {table}: Spark's executors ({master}) wrote {local} on other machines, and this one "
                "does not see it. Nothing was committed and no offset moved. Write an object storage as "
                "lake.warehouse, or a shared folder that is mounted at the same path on every machine "
                "(docs/spark-cluster.md)"
            )
