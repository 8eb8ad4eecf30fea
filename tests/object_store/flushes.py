"""Flushes of batches of ten records into one table, as the sink makes them."""

import random
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any, Final

import pyarrow as pa
from pyspark import SparkContext

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchFlusher, FlushBatch
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.options.settings import parse_session_config
from trimtab.consumer_sdk.lake.projection.projection import TableProjection
from trimtab.consumer_sdk.lake.projection.topic_decoders import keep_raw
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.session.factory import open_lake
from trimtab.consumer_sdk.lake.spark.gateway import py4j_gateway

BATCH_RECORDS: Final = 10
_PARTITION: Final = TopicPartition("t", 0)


@contextmanager
def open_small_lake(settings: Mapping[str, Any]) -> Generator[SparkLake]:
    """Yield a lake with a small session that writes files from Arrow, in a JVM of its own.

    A process's JVM outlives its sessions, and one that began with a table format lacks the other's classes.
    """
    small = {"spark.master": "local[1]", "spark.driver.memory": "512m", "lake.file.writer": "arrow"}
    lake = open_lake(parse_session_config({**settings, **small}))
    gateway: Any = py4j_gateway(lake.spark)
    try:
        yield lake
    finally:
        lake.close()
        gateway.shutdown()
        gateway.proc.stdin.close()  # at which the JVM ends
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None  # pyspark has no public way


def make_records(first: int) -> Any:
    """Return the records of a batch that begins at an offset."""
    rows = [{"topic": "t", "partition": 0, "offset": first + n, "value": b"x"} for n in range(BATCH_RECORDS)]
    return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)


def flush_batches(lake: SparkLake, table: str, first: int, batches: int) -> None:
    """Write batches that begin at an offset, which the table must have reached."""
    numbers = count(first)
    flusher = BatchFlusher(
        lake,
        "g",
        lambda name: TableProjection(name, keep_raw),
        lambda: f"attempt-{next(numbers)}",
        on_step=lambda _: None,
    )
    for start in range(first, first + BATCH_RECORDS * batches, BATCH_RECORDS):
        span = OffsetSpan(start or None, start, start + BATCH_RECORDS)
        backoff = RetryBackoff(random.Random(0))  # noqa: S311 - jitter
        batch = FlushBatch(table, {_PARTITION: span}, make_records(start))
        assert isinstance(flusher.flush_batch(batch, backoff), BatchCommitted)
