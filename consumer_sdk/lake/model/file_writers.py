"""Writers of data files (`lake.file.writer`), and the settings that need Spark.

`auto` is Spark if a setting needs it, or if there are executors, which would be idle. Else it is Arrow's
writer, which takes less CPU, except for tables that this writer refuses (`formats.staging_frames`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from trimtab.common.errors import SettingError

AUTO_FILE_WRITER: Final = "auto"
SPARK_FILE_WRITER: Final = "spark"
ARROW_FILE_WRITER: Final = "arrow"
FILE_WRITERS: Final = (AUTO_FILE_WRITER, SPARK_FILE_WRITER, ARROW_FILE_WRITER)
DEFAULT_FILE_WRITER: Final = AUTO_FILE_WRITER

# Arrow decodes a batch as a whole, and one of its arrays holds 2 GiB of text.
MAX_ARROW_BATCH_BYTES: Final = 1_000_000_000

# Settings that Arrow's writer does not support, and why.
_SPARK_ONLY_SETTINGS: Final = {
    "lake.partition": "Spark distributes rows to partitions",
    "lake.transform": "a transform takes a Spark DataFrame",
}
# Settings of how Spark writes Parquet, encryption among them, which Arrow's writer does not read.
_SPARK_FILE_SETTINGS: Final = (
    "spark.hadoop.parquet.",
    "spark.sql.files.",
    "spark.sql.iceberg.",
    "spark.sql.parquet.",
)

# How Delta's writer stores times: in microseconds, without the calendar before 1582 that only Spark knows.
# INT96, Spark's default, has nanoseconds, in which other engines read the year 9999 as 1816.
DELTA_FILE_SETTINGS: Final = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
}


def check_delta_file_settings(config: Mapping[str, Any]) -> None:
    """Raise SettingError for Spark settings with which other engines would read other times than written."""
    for name, value in DELTA_FILE_SETTINGS.items():
        if (given := str(config.get(name, value)).upper()) != value:
            raise SettingError(
                f"{name}={given}: other engines would read other times than were written; Delta tables are "
                f"written with {value}, omit the setting"
            )


def find_arrow_problems(given: Collection[str]) -> Iterable[str]:
    """Yield the given settings that `lake.file.writer=arrow` does not support."""
    for name in sorted(_SPARK_ONLY_SETTINGS.keys() & given):
        yield (
            f"{name}: {_SPARK_ONLY_SETTINGS[name]}, and with lake.file.writer=arrow data "
            f"files are written without Spark: set lake.file.writer=spark, or omit {name}"
        )


def resolve_file_writer(file_writer: str, config: Mapping[str, Any]) -> str:
    """Return the writer of a configuration; `auto` if no setting of it needs Spark."""
    given = [name for name, value in config.items() if value is not None]
    sets_files = any(name.startswith(_SPARK_FILE_SETTINGS) for name in given)
    needs_spark = sets_files or not _SPARK_ONLY_SETTINGS.keys().isdisjoint(given)
    return SPARK_FILE_WRITER if file_writer == AUTO_FILE_WRITER and needs_spark else file_writer


def resolve_on_master(file_writer: str, master: str) -> str:
    """Return the writer in a session; `auto` if its master, `spark.master`, has no executors."""
    is_local = master.startswith("local") and not master.startswith("local-cluster")
    return file_writer if is_local or file_writer != AUTO_FILE_WRITER else SPARK_FILE_WRITER
