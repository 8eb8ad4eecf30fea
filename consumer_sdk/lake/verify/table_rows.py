"""The rows of a table for `verify`, asked of Spark.

The table and its dead letters are read as they are when this is made, the table first: whatever is
in it has its dead letters already, since those are committed before.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.dead_letters import REPLAY_HEADER_PREFIX
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.verify.table_verification import MAX_FAULT_EXAMPLES, PartitionRowStats

PARTITION_COLUMNS: Final = ("topic", "partition")
COORDINATE_COLUMNS: Final = (*PARTITION_COLUMNS, "offset")
COMPARED_COLUMNS: Final = ("timestamp", "key")


def find_missing_coordinates(spark: SparkSession, table: str) -> list[str]:
    """Return which columns that tell a row's record a table does not have."""
    with jvm_errors.translate_errors(f"table {table}"):
        have = {name.lower() for name in spark.table(table).columns}
    return [name for name in COORDINATE_COLUMNS if name not in have]


class SparkTableRows:
    """Rows of some tables, the first of which is the one in question, the others dead letters."""

    def __init__(self, spark: SparkSession, tables: Sequence[str]) -> None:
        self._name = tables[0]
        with jvm_errors.translate_errors(f"table {self._name}"):
            frames = [spark.table(name) for name in tables]
            kept = [c for c in COMPARED_COLUMNS if all(c in frame.columns for frame in frames)]
            self._frames = frames
            self._rows = reduce(
                DataFrame.unionByName,
                [
                    frame.select(*COORDINATE_COLUMNS, *kept, sql.lit(n == 0).alias("own"))
                    for n, frame in enumerate(frames)
                ],
            )
        self._compared = kept
        self._replayed: dict[TopicPartition, set[int]] | None = None

    def read_partition_stats(self) -> dict[TopicPartition, PartitionRowStats]:
        """Return the facts of every partition that has rows."""
        own = sql.max(sql.when(sql.col("own"), sql.col("offset")))
        asked = (
            sql.sum("copies"),
            sql.count("*"),
            sql.min("offset"),
            sql.max("offset"),
            sql.coalesce(sql.max("last_own"), sql.lit(-1)),
        )
        counted = self._rows.groupBy(*COORDINATE_COLUMNS).agg(
            sql.count("*").alias("copies"), own.alias("last_own")
        )
        with jvm_errors.translate_errors(f"table {self._name}"):
            found = counted.groupBy(*PARTITION_COLUMNS).agg(*asked).collect()
        return {TopicPartition(row[0], row[1]): PartitionRowStats(*row[2:]) for row in found}

    def find_holes(self, where: TopicPartition) -> list[OffsetGap]:
        """Return the runs of offsets that lie between two rows of a partition, rising."""
        before = sql.lag("offset").over(Window.orderBy("offset"))
        offsets = self._rows_of(where).select("offset").distinct()
        behind = offsets.withColumn("first", before + 1).where("first < offset")
        with jvm_errors.translate_errors(f"table {self._name}"):
            found = behind.select("first", "offset").orderBy("first").collect()
        return [OffsetGap(*row) for row in found]

    def count_surplus(self, where: TopicPartition, copies: int) -> tuple[int, list[int]]:
        """Return how many rows are more than so many of one offset, and some of the offsets."""
        counted = self._rows_of(where).groupBy("offset").count().where(sql.col("count") > copies)
        total = sql.coalesce(sql.sum(sql.col("count") - copies), sql.lit(0))
        return self._count_with_examples(counted, total)

    def count_beyond(self, where: TopicPartition, offset: int) -> tuple[int, list[int]]:
        """Return how many rows, dead letters aside, are at or above an offset, and some offsets."""
        rows = self._rows_of(where).where(sql.col("own") & (sql.col("offset") >= offset))
        return self._count_with_examples(rows, sql.count("*"))

    def read_rows(self, where: TopicPartition, ranges: Iterable[OffsetGap]) -> Records:
        """Return offset, and timestamp and key where the table has them, of rows in ranges."""
        offset = sql.col("offset")
        within = [(offset >= gap.first) & (offset < gap.next) for gap in ranges]
        rows = self._rows_of(where).where(reduce(Column.__or__, within))
        with jvm_errors.translate_errors(f"table {self._name}"):
            return rows.select("offset", *self._compared).toArrow()

    def replayed_offsets(self, where: TopicPartition) -> set[int]:
        """Return the offsets that came again by a replay of dead letters."""
        if self._replayed is None:
            self._replayed = {}
            for row in self._read_replay_headers():
                key = TopicPartition(row.topic, int(row.partition))
                self._replayed.setdefault(key, set()).add(int(row.offset))
        return self._replayed.get(where, set())

    def _read_replay_headers(self) -> list[Any]:
        found: list[Any] = []
        for frame in (f for f in self._frames if "headers" in f.columns):
            header = sql.col("headers")
            asked = [
                header[REPLAY_HEADER_PREFIX + name].cast("string").alias(name) for name in COORDINATE_COLUMNS
            ]
            with jvm_errors.translate_errors(f"table {self._name}"):
                found += (
                    frame.where(header[f"{REPLAY_HEADER_PREFIX}topic"].isNotNull()).select(*asked).collect()
                )
        return found

    def _rows_of(self, where: TopicPartition) -> DataFrame:
        topic, partition = sql.col("topic"), sql.col("partition")
        return self._rows.where((topic == where.topic) & (partition == where.partition))

    def _count_with_examples(self, rows: DataFrame, total: Column) -> tuple[int, list[int]]:
        with jvm_errors.translate_errors(f"table {self._name}"):
            (count,) = rows.agg(total).collect()[0]
            some = rows.select("offset").distinct().orderBy("offset").limit(MAX_FAULT_EXAMPLES).collect()
        return int(count), [row.offset for row in some]
