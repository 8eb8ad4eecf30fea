"""Replay of dead letters: reads them from their table, sends them to Kafka, deletes them.

At least once: rows are deleted after Kafka has confirmed their records. A crash in between leaves
sent rows, which the next replay sends again. Headers name the origin: trimtab.replay.topic,
.partition, .offset, .timestamp (ms) and .error.

A record keeps its topic and partition if they exist.
"""

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sql

from trimtab.common.errors import SettingError
from trimtab.common.librdkafka_settings import IDEMPOTENT_PRODUCER_SETTINGS, NO_TOPIC_CREATION
from trimtab.consumer_sdk.errors import DeadLetterReplayError
from trimtab.consumer_sdk.lake.commits.maintenance import RaceRetry, recommit_offsets
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.interfaces import LakeTable
from trimtab.consumer_sdk.lake.model.table_names import (
    DEAD_LETTER_PROPERTY,
    dead_letter_table,
    is_dead_letter_table,
)
from trimtab.consumer_sdk.lake.options import connection
from trimtab.consumer_sdk.lake.spark import jvm_errors

log = logging.getLogger("trimtab.lake")

REPLAY_HEADER_PREFIX: Final = "trimtab.replay."
REPLAY_CHUNK_ROWS: Final = 10_000
REPLAY_CHUNK_BYTES: Final = 64_000_000
MAX_DELETE_ATTEMPTS: Final = 20  # writers add dead letters meanwhile

REPLAY_PRODUCER_SETTINGS: Final[Mapping[str, Any]] = {
    "acks": "all",
    **IDEMPOTENT_PRODUCER_SETTINGS,
    **NO_TOPIC_CREATION,
    "message.timeout.ms": 60_000,
    "partitioner": "murmur2_random",  # as Java's producer, for records that go to another topic
}
_COORDINATE_NAMES: Final = ("topic", "partition", "offset")
_COORDINATE_SCHEMA: Final = pa.schema(
    [("topic", pa.string()), ("partition", pa.int32()), ("offset", pa.int64())]
)
_LATER_COLUMNS: Final = (("headers", "map<string, binary>"), ("field", "string"))
_REPLAYED_VIEW: Final = "trimtab_replayed"

DeadLetterRow: TypeAlias = Any  # a Spark Row of the dead-letter table


class ReplayProducer(Protocol):
    """Used methods of confluent-kafka's Producer."""

    # confluent-kafka documents them.
    def produce(self, topic: str, value: Any, key: Any, **options: Any) -> Any: ...  # noqa: D102
    def poll(self, timeout: float = -1) -> Any: ...  # noqa: D102
    def flush(self, timeout: float = -1) -> Any: ...  # noqa: D102
    def list_topics(self, topic: str, timeout: float = -1) -> Any: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class DeadLetterSelection:
    """Filter of dead letters."""

    topic: str | None = None
    error: str | None = None  # a part of the reason
    since: datetime | None = None
    until: datetime | None = None  # exclusive
    limit: int | None = None

    def select_rows(self, letters: DataFrame) -> DataFrame:
        """Return the selected rows."""
        if self.topic is not None:
            letters = letters.where(sql.col("topic") == self.topic)
        if self.error is not None:
            letters = letters.where(sql.contains(sql.col("error"), sql.lit(self.error)))
        if self.since is not None:
            letters = letters.where(sql.col("timestamp") >= sql.lit(self.since))
        if self.until is not None:
            letters = letters.where(sql.col("timestamp") < sql.lit(self.until))
        return letters if self.limit is None else letters.limit(self.limit)


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """Dead letters of one table, topic, field and reason, whatever the value and the places in arrays."""

    table: str
    topic: str
    field: str | None  # None: the whole record
    error: str
    records: int
    first: str | None  # record timestamps in UTC; Python has no times behind the year 9999
    last: str | None


def build_producer_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the producer's settings of a flat configuration. Raises SettingError."""
    return {**REPLAY_PRODUCER_SETTINGS, **connection.extract_connection_settings(config, "give --bootstrap")}


def list_dead_letter_tables(lake: SparkLake, name: str | None = None) -> list[str]:
    """Return all dead-letter tables of the sink, or that of one (topic) table. Raises SettingError."""
    named = [table for table in lake.list_tables() if is_dead_letter_table(table)]
    tables = [table for table in named if _is_made_by_sink(lake, table)]
    if name is None:
        return tables
    table = name if is_dead_letter_table(name) else dead_letter_table(name)
    if table in tables:
        return [table]
    if table in named:
        raise SettingError(
            f"table {table!r} was not made by the sink for dead letters: its rows may be all that is left "
            "of their records. If they are dead letters: "
            f"ALTER TABLE {table} SET TBLPROPERTIES ('{DEAD_LETTER_PROPERTY}' = 'true')"
        )
    existing = f"there are: {', '.join(tables)}" if tables else "the lake has none"
    raise SettingError(f"there is no dead-letter table {table!r}; {existing}")


def _is_made_by_sink(lake: SparkLake, name: str) -> bool:
    table = lake.open_table(name)
    return table is not None and table.read_property(DEAD_LETTER_PROPERTY) == "true"


def summarize_dead_letters(
    lake: SparkLake, table: str, selection: DeadLetterSelection
) -> list[DeadLetterSummary]:
    """Return a summary per topic, field and reason, the largest first."""
    times = (sql.date_format(of("timestamp"), "yyyy-MM-dd HH:mm:ss") for of in (sql.min, sql.max))
    with jvm_errors.translate_errors(f"table {table}"):
        rows = (
            selection.select_rows(_read_dead_letters(lake, table))
            .groupBy("topic", _strip_indexes().alias("field"), _strip_value().alias("error"))
            .agg(sql.count("*").alias("records"), *times)
            .collect()
        )
    summaries = (DeadLetterSummary(table, *row) for row in rows)
    return sorted(summaries, key=lambda s: (-s.records, s.topic, s.field or "", s.error))


def _strip_indexes() -> Column:
    return sql.regexp_replace("field", r"\[\d+\]", "[]")


def _strip_value() -> Column:
    """Return the reason without its field, "price: ", and the value at fault, ": 1.005"."""
    error, field = sql.col("error"), sql.col("field")
    of_field = sql.substring_index(sql.substring(error, sql.length(field) + 3, sql.length(error)), ": ", 1)
    return sql.when(field.isNull(), sql.regexp_replace(error, "^(not valid JSON): .*", "$1")).otherwise(
        of_field
    )


@dataclass(slots=True)
class DeadLetterReplay:
    """Replays one table's dead letters to `target_topic`, None: each to its original topic."""

    lake: SparkLake
    table: str
    producer: ReplayProducer
    target_topic: str | None = None
    _partitions: dict[str, int] = field(default_factory=dict[str, int])
    _failed: list[str] = field(default_factory=list[str])

    def run(self, selection: DeadLetterSelection) -> int:
        """Send and delete the selected rows; return their number. Raises DeadLetterReplayError."""
        total = 0
        limit, chunk_rows = self._plan_chunks(selection)
        while total < limit:
            rows = self._read_chunk(replace(selection, limit=min(chunk_rows, limit - total)))
            if not rows:
                break
            delivered = self._send_chunk(rows)
            self._delete_rows(delivered)
            total += len(delivered)
            if self._failed:
                raise DeadLetterReplayError(
                    f"table {self.table}: Kafka did not accept {len(self._failed)} of {len(rows)} "
                    f"records ({self._failed[0]}); they stay in the table, {total} were sent"
                )
        return total

    def _plan_chunks(self, selection: DeadLetterSelection) -> tuple[int, int]:
        """Return the number of records and the rows per chunk, which bounds memory."""
        # Counted once: a record that fails again meanwhile is not replayed in a loop.
        sums = sql.count("*"), sql.max(sql.length("value"))
        with jvm_errors.translate_errors(f"table {self.table}"):
            letters = _read_dead_letters(self.lake, self.table)
            ((records, longest),) = selection.select_rows(letters).agg(*sums).collect()
        return records, max(1, min(REPLAY_CHUNK_ROWS, REPLAY_CHUNK_BYTES // max(1, longest or 0)))

    def _read_chunk(self, selection: DeadLetterSelection) -> list[DeadLetterRow]:
        with jvm_errors.translate_errors(f"table {self.table}"):
            rows = selection.select_rows(_read_dead_letters(self.lake, self.table))
            return rows.withColumn("timestamp", sql.unix_millis("timestamp")).collect()

    def _send_chunk(self, rows: Sequence[DeadLetterRow]) -> list[DeadLetterRow]:
        delivered: list[DeadLetterRow] = []
        for row in rows:
            self._produce_row(row, partial(self._record_delivery, delivered, row))
            self.producer.poll(0)  # serves the delivery callbacks
        self.producer.flush()
        return delivered

    def _record_delivery(
        self, delivered: list[DeadLetterRow], row: DeadLetterRow, error: Any, _message: Any
    ) -> None:
        if error is None:
            delivered.append(row)
        else:
            self._failed.append(str(error))

    def _produce_row(self, row: DeadLetterRow, on_delivery: Callable[[Any, Any], None]) -> None:
        topic = self.target_topic or row.topic
        # No timestamp: retention would delete an old one before the record is read again.
        options: dict[str, Any] = {"headers": build_replay_headers(row), "on_delivery": on_delivery}
        partitions = self._count_partitions(topic)
        if topic == row.topic and row.partition < partitions:
            options["partition"] = row.partition
        while True:
            try:
                self.producer.produce(topic, row.value, row.key, **options)
            except BufferError:  # the producer's queue is full
                self.producer.poll(1.0)
            else:
                return

    def _count_partitions(self, topic: str) -> int:
        """Return a topic's number of partitions. Raises SettingError if it does not exist."""
        if topic not in self._partitions:
            metadata = self.producer.list_topics(topic, timeout=30.0).topics[topic]
            if metadata.error is not None:
                raise SettingError(f"topic {topic!r}: {metadata.error.str()}; create it, or set --to-topic")
            self._partitions[topic] = len(metadata.partitions)
        return self._partitions[topic]

    def _delete_rows(self, rows: Sequence[DeadLetterRow]) -> None:
        if not rows:
            return
        coordinates = sorted({tuple(row[key] for key in _COORDINATE_NAMES) for row in rows})
        columns = zip(_COORDINATE_NAMES, zip(*coordinates, strict=True), strict=True)
        replayed = pa.table(dict(columns), schema=_COORDINATE_SCHEMA)
        self.lake.to_spark_frame(replayed).createOrReplaceTempView(_REPLAYED_VIEW)
        on = " AND ".join(f"t.`{key}` = r.`{key}`" for key in _COORDINATE_NAMES)
        merge = f"MERGE INTO {self.table} t USING {_REPLAYED_VIEW} r ON {on} WHEN MATCHED THEN DELETE"
        races = RaceRetry(RetryBackoff(random.Random()), limit=MAX_DELETE_ATTEMPTS)  # noqa: S311 - jitter
        races.retry_on_race(f"{self.table}: deleting replayed records", lambda: self._run_merge(merge))
        # The MERGE's version of the table has no offsets.
        races.retry_on_race(f"{self.table}: its offsets", lambda: recommit_offsets(self._open_table()))

    def _run_merge(self, statement: str) -> None:
        with jvm_errors.translate_errors(f"table {self.table}: deleting replayed records"):
            self.lake.spark.sql(statement)  # safe beside writers: Spark refuses it if its rows changed

    def _open_table(self) -> LakeTable:
        table = self.lake.open_table(self.table)
        if table is None:
            raise SettingError(f"table {self.table!r} was dropped during the replay")
        return table


def _read_dead_letters(lake: SparkLake, table: str) -> DataFrame:
    lake.open_table(table)  # registers its name in SQL
    letters = lake.spark.table(table)
    # a table that was created by an earlier version lacks them until it gets the next dead letter
    missing = [column for column in _LATER_COLUMNS if column[0] not in letters.columns]
    return letters.withColumns({name: sql.lit(None).cast(kind) for name, kind in missing})


def build_replay_headers(row: DeadLetterRow) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter's record, with its origin."""
    # Without those of an earlier replay: a record that failed twice names its last origin.
    kept = [(k, v) for k, v in (row.headers or {}).items() if not k.startswith(REPLAY_HEADER_PREFIX)]
    time = "" if row.timestamp is None else row.timestamp  # ms
    origin = {name: row[name] for name in _COORDINATE_NAMES} | {"timestamp": time, "error": row.error}
    return [*kept, *((REPLAY_HEADER_PREFIX + name, str(value).encode()) for name, value in origin.items())]
