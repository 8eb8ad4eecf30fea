"""Writers of data files (`lake.file.writer`), and the settings that need Spark.

`auto` is Spark if a setting needs it. Else it is Arrow's writer, which takes less CPU, except for
tables that this writer refuses (`formats.staging_frames`).
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from trimtab.consumer_sdk.lake.changes.change_settings import UPSERT

AUTO_FILE_WRITER: Final = "auto"
SPARK_FILE_WRITER: Final = "spark"
ARROW_FILE_WRITER: Final = "arrow"
FILE_WRITERS: Final = (AUTO_FILE_WRITER, SPARK_FILE_WRITER, ARROW_FILE_WRITER)

# Settings that Arrow's writer does not support, and why.
_SPARK_ONLY_SETTINGS: Final = {
    "lake.partition": "Spark distributes rows to partitions",
    "lake.schema": "JSON is parsed by Spark",
    "lake.transform": "a transform takes a Spark DataFrame",
}


def find_arrow_problems(given: Collection[str], write: str) -> Iterable[str]:
    """Yield the given settings that `lake.file.writer=arrow` does not support; `write`: `lake.write`."""
    for name in _list_spark_only(given, write):
        yield (
            f"{name}: {_SPARK_ONLY_SETTINGS[name]}, and with lake.file.writer=arrow data "
            f"files are written without Spark: set lake.file.writer=spark, or omit {name}"
        )


def resolve_file_writer(file_writer: str, given: Mapping[str, Any], write: str) -> str:
    """Return the writer of a configuration; `auto` if no setting of it needs Spark."""
    has_executors = not str(given.get("spark.master", "local")).startswith("local")
    needs_spark = has_executors or any(_list_spark_only(given, write))
    return SPARK_FILE_WRITER if file_writer == AUTO_FILE_WRITER and needs_spark else file_writer


def _list_spark_only(given: Collection[str], write: str) -> Iterable[str]:
    names = sorted(_SPARK_ONLY_SETTINGS.keys() & given)
    # Arrow parses the JSON of changes
    return (name for name in names if not (name == "lake.schema" and write == UPSERT))
