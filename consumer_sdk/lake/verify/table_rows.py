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
from trimtab.consumer_sdk.lake.dead_letters import PREFIX
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.spark import jvm_errors
from trimtab.consumer_sdk.lake.verify.table_verification import EXAMPLES, Facts

WHERE: Final = ("topic", "partition")
PLACE: Final = (*WHERE, "offset")
COMPARED: Final = ("timestamp", "key")


def lacking(spark: SparkSession, table: str) -> list[str]:
    """Return which columns that tell a row's record a table does not have."""
    with jvm_errors.translated(f"table {table}"):
        have = {name.lower() for name in spark.table(table).columns}
    return [name for name in PLACE if name not in have]


class SparkRows:
    """Rows of some tables, the first of which is the one in question, the others dead letters."""

    def __init__(self, spark: SparkSession, tables: Sequence[str]) -> None:
        self._name = tables[0]
        with jvm_errors.translated(f"table {self._name}"):
            frames = [spark.table(name) for name in tables]
            kept = [c for c in COMPARED if all(c in frame.columns for frame in frames)]
            self._frames = frames
            self._rows = reduce(
                DataFrame.unionByName,
                [
                    frame.select(*PLACE, *kept, sql.lit(n == 0).alias("own"))
                    for n, frame in enumerate(frames)
                ],
            )
        self._kept = kept
        self._again: dict[TopicPartition, set[int]] | None = None

    def facts(self) -> dict[TopicPartition, Facts]:
        """Return the facts of every partition that has rows."""
        own = sql.max(sql.when(sql.col("own"), sql.col("offset")))
        asked = (
            sql.sum("copies"),
            sql.count("*"),
            sql.min("offset"),
            sql.max("offset"),
            sql.coalesce(sql.max("last_own"), sql.lit(-1)),
        )
        counted = self._rows.groupBy(*PLACE).agg(
            sql.count("*").alias("copies"), own.alias("last_own")
        )
        with jvm_errors.translated(f"table {self._name}"):
            found = counted.groupBy(*WHERE).agg(*asked).collect()
        return {TopicPartition(row[0], row[1]): Facts(*row[2:]) for row in found}

    def holes(self, where: TopicPartition) -> list[Gap]:
        """Return the runs of offsets that lie between two rows of a partition, rising."""
        before = sql.lag("offset").over(Window.orderBy("offset"))
        offsets = self._of(where).select("offset").distinct()
        behind = offsets.withColumn("first", before + 1).where("first < offset")
        with jvm_errors.translated(f"table {self._name}"):
            found = behind.select("first", "offset").orderBy("first").collect()
        return [Gap(*row) for row in found]

    def surplus(self, where: TopicPartition, copies: int) -> tuple[int, list[int]]:
        """Return how many rows are more than so many of one offset, and some of the offsets."""
        counted = self._of(where).groupBy("offset").count().where(sql.col("count") > copies)
        total = sql.coalesce(sql.sum(sql.col("count") - copies), sql.lit(0))
        return self._told(counted, total)

    def beyond(self, where: TopicPartition, offset: int) -> tuple[int, list[int]]:
        """Return how many rows, dead letters aside, are at or above an offset, and some offsets."""
        rows = self._of(where).where(sql.col("own") & (sql.col("offset") >= offset))
        return self._told(rows, sql.count("*"))

    def read(self, where: TopicPartition, ranges: Iterable[Gap]) -> Records:
        """Return offset, and timestamp and key where the table has them, of rows in ranges."""
        offset = sql.col("offset")
        within = [(offset >= gap.first) & (offset < gap.next) for gap in ranges]
        rows = self._of(where).where(reduce(Column.__or__, within))
        with jvm_errors.translated(f"table {self._name}"):
            return rows.select("offset", *self._kept).toArrow()

    def replayed(self, where: TopicPartition) -> set[int]:
        """Return the offsets that came again by a replay of dead letters."""
        if self._again is None:
            self._again = {}
            for row in self._headers():
                key = TopicPartition(row.topic, int(row.partition))
                self._again.setdefault(key, set()).add(int(row.offset))
        return self._again.get(where, set())

    def _headers(self) -> list[Any]:
        found: list[Any] = []
        for frame in (f for f in self._frames if "headers" in f.columns):
            header = sql.col("headers")
            asked = [header[PREFIX + name].cast("string").alias(name) for name in PLACE]
            with jvm_errors.translated(f"table {self._name}"):
                found += frame.where(header[f"{PREFIX}topic"].isNotNull()).select(*asked).collect()
        return found

    def _of(self, where: TopicPartition) -> DataFrame:
        topic, partition = sql.col("topic"), sql.col("partition")
        return self._rows.where((topic == where.topic) & (partition == where.partition))

    def _told(self, rows: DataFrame, total: Column) -> tuple[int, list[int]]:
        with jvm_errors.translated(f"table {self._name}"):
            (count,) = rows.agg(total).collect()[0]
            some = rows.select("offset").distinct().orderBy("offset").limit(EXAMPLES).collect()
        return int(count), [row.offset for row in some]
