"""Frames of decoded rows, for `lake.file.writer: spark`."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from trimtab.consumer_sdk.lake.model.interfaces import Frame, Records


@dataclass(frozen=True, slots=True)
class DecodedFrames:
    """Decoded rows and dead letters."""

    rows: Frame
    dead_letters: Frame | None  # None: there are none


def build_frame(spark: SparkSession, records: Records) -> DataFrame:
    """Return a frame of these records in one partition."""
    if not records.num_rows:  # a filtered table may have no chunk, which Spark cannot convert
        records = records.schema.empty_table()
    schema = from_arrow_schema(records.schema, prefer_timestamp_ntz=True)  # else it would depend on the zone
    return spark.createDataFrame(records, schema).coalesce(1)  # a flush writes one file per partition
