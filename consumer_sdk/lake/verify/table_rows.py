"""Rows of a table for `verify`, queried with Spark."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sql

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.tables.dead_letters import REPLAY_HEADER_PREFIX
from trimtab.consumer_sdk.lake.verify.table_verification import MAX_FAULT_EXAMPLES, PartitionRowStats

PARTITION_COLUMNS: Final = ("topic", "partition")
COORDINATE_COLUMNS: Final = (*PARTITION_COLUMNS, "offset")
COMPARED_COLUMNS: Final = ("timestamp", "key")


def find_missing_coordinates(spark: SparkSession, table: str) -> list[str]:
    """Return the coordinate columns that a table lacks."""
    with jvm_errors.translate_errors(f"table {table}"):
        have = {name.lower() for name in spark.table(table).columns}
    return [name for name in COORDINATE_COLUMNS if name not in have]


class SparkTableRows:
    """Rows of tables as of now: the first is the verified one, the others are its dead letters."""

    def __init__(self, spark: SparkSession, tables: Sequence[str]) -> None:
        self._name = tables[0]
        with jvm_errors.translate_errors(f"table {self._name}"):
            # the verified one first: dead letters are committed before, so all of its own exist
            self._frames = frames = [spark.table(name) for name in tables]
            self._compared = [c for c in COMPARED_COLUMNS if all(c in frame.columns for frame in frames)]
            columns = (*COORDINATE_COLUMNS, *self._compared)
            parts = [f.select(*columns, sql.lit(n == 0).alias("own")) for n, f in enumerate(frames)]
            self._rows = reduce(DataFrame.unionByName, parts)
        self._replayed: dict[TopicPartition, set[int]] | None = None

    def read_partition_stats(self) -> dict[TopicPartition, PartitionRowStats]:
        """Return the statistics of every partition with rows."""
        # grouped by offset first: rows, distinct offsets and bounds come from one scan
        own = sql.max(sql.when(sql.col("own"), sql.col("offset"))).alias("last_own")
        offsets = self._rows.groupBy(*COORDINATE_COLUMNS).agg(sql.count("*").alias("copies"), own)
        last_own = sql.coalesce(sql.max("last_own"), sql.lit(-1))
        bounds = (sql.min("offset"), sql.max("offset"))
        query = offsets.groupBy(*PARTITION_COLUMNS).agg(sql.sum("copies"), sql.count("*"), *bounds, last_own)
        with jvm_errors.translate_errors(f"table {self._name}"):
            rows = query.collect()
        return {TopicPartition(row[0], row[1]): PartitionRowStats(*row[2:]) for row in rows}

    def find_holes(self, where: TopicPartition) -> list[OffsetGap]:
        """Return the runs of missing offsets between two rows of a partition, ascending."""
        previous = sql.lag("offset").over(Window.orderBy("offset"))
        offsets = self._rows_of(where).select("offset").distinct()
        holes = offsets.withColumn("first", previous + 1).where("first < offset")
        with jvm_errors.translate_errors(f"table {self._name}"):
            rows = holes.select("first", "offset").orderBy("first").collect()
        return [OffsetGap(*row) for row in rows]

    def count_surplus(self, where: TopicPartition, copies: int) -> tuple[int, list[int]]:
        """Return the number of rows beyond `copies` per offset, and example offsets."""
        offsets = self._rows_of(where).groupBy("offset").count().where(sql.col("count") > copies)
        total = sql.coalesce(sql.sum(sql.col("count") - copies), sql.lit(0))
        return self._count(offsets, total)

    def count_beyond(self, where: TopicPartition, offset: int) -> tuple[int, list[int]]:
        """Return the number of rows at or above an offset, without dead letters, and examples."""
        rows = self._rows_of(where).where(sql.col("own") & (sql.col("offset") >= offset))
        return self._count(rows, sql.count("*"))

    def read_rows(self, where: TopicPartition, ranges: Iterable[OffsetGap]) -> Records:
        """Return offset, and timestamp and key if the table has them, of rows in ranges."""
        offset = sql.col("offset")
        within = [(offset >= gap.first) & (offset < gap.next) for gap in ranges]
        rows = self._rows_of(where).where(reduce(Column.__or__, within))
        with jvm_errors.translate_errors(f"table {self._name}"):
            return rows.select("offset", *self._compared).toArrow()

    def replayed_offsets(self, where: TopicPartition) -> set[int]:
        """Return the offsets whose records came back by a replay of dead letters."""
        if self._replayed is None:
            self._replayed = {}
            for row in self._read_replay_headers():
                key = TopicPartition(row.topic, int(row.partition))
                self._replayed.setdefault(key, set()).add(int(row.offset))
        return self._replayed.get(where, set())

    def _read_replay_headers(self) -> list[Any]:
        # the headers of a replayed record name the coordinates of its dead letter
        header = sql.col("headers")
        rows = list[Any]()
        origin = [header[REPLAY_HEADER_PREFIX + n].cast("string").alias(n) for n in COORDINATE_COLUMNS]
        is_replay = header[f"{REPLAY_HEADER_PREFIX}topic"].isNotNull()
        with jvm_errors.translate_errors(f"table {self._name}"):
            for frame in (f for f in self._frames if "headers" in f.columns):
                rows += frame.where(is_replay).select(*origin).collect()
        return rows

    def _rows_of(self, where: TopicPartition) -> DataFrame:
        topic, partition = sql.col("topic"), sql.col("partition")
        return self._rows.where((topic == where.topic) & (partition == where.partition))

    def _count(self, rows: DataFrame, total: Column) -> tuple[int, list[int]]:
        with jvm_errors.translate_errors(f"table {self._name}"):
            (count,) = rows.agg(total).collect()[0]
            some = rows.select("offset").distinct().orderBy("offset").limit(MAX_FAULT_EXAMPLES).collect()
        return int(count), [row.offset for row in some]
