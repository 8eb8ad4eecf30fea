"""Process of one case of bench_ingest: ingest_host.py CASE PLAN.

PLAN is JSON: `bootstrap`, `folder`, and `warm_up` and `timed`, each [topic, records]. The process
reads the topic `warm_up`, prints `ready`, waits for a line, reads `timed`, and prints `begin` at
the first record and `end {seconds}` when the last one is in the table; then `found {rows, distinct}`.
"""

import json
import os
import random
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, Final

import confluent_kafka
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.java import jars
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchFlusher, FlushBatch
from trimtab.consumer_sdk.lake.formats.iceberg.table import ICEBERG_TABLE_DEFAULTS
from trimtab.consumer_sdk.lake.model.interfaces import new_attempt_id
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.projection.projection import ProjectedRows
from trimtab.consumer_sdk.lake.schema import record_columns
from trimtab.consumer_sdk.lake.session.factory import open_lake
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

CONNECTOR: Final = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.2"
TOKENS: Final = "org.apache.spark:spark-token-provider-kafka-0-10_2.13:3.5.1"
"""Replaces the connector's dependency of 4.1, which is not available everywhere; tokens are not used."""

IN_SPARK: Final = (
    "com.github.luben:*",
    "commons-logging:*",
    "org.apache.hadoop:*",
    "org.lz4:*",
    "org.scala-lang:*",
    "org.slf4j:*",
    "org.xerial.snappy:*",
)
"""Dependencies of both that Spark already contains."""

BATCH: Final = 64_000_000
"""Bytes of one append of delta-rs: `batch.bytes` of the sink."""

TUNED: Final = {"fetch.queue.backoff.ms": 20}
"""Pause of fetching while the queue is full, in ms; librdkafka's default is a second."""

JSON: Final = {"lake.decoder": "json", "lake.schema": (JSON_COLUMNS := "id BIGINT, text STRING")}
"""Settings that parse the records."""

RANGES: Final = 500_000
"""Records of one batch of `trimtab_ranges`."""

RANGE_OPTIONS: Final = {
    "includeHeaders": "true",
    "kafka.isolation.level": "read_committed",
    # a poll drops what it fetched beyond its records: one poll for one request
    "kafka.max.poll.records": "4000",
    "kafka.max.partition.fetch.bytes": "4000000",
}
"""Options of Spark's Kafka source as the sink would need them."""

PYTHON_FETCH: Final = 10_000
"""Records of an Arrow batch of `spark_python_ranges`."""

Begun = Callable[[], None]


class Case(ABC):
    """A tool that reads a topic; created once, then run for the warm-up and the measurement."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder

    @abstractmethod
    def run(self, topic: str, count: int, on_start: Begun) -> None:
        """Read `count` records; call `on_start` at the first ones."""

    @abstractmethod
    def count_rows(self, topic: str) -> tuple[int, int]:
        """Return the number of rows of a topic, and of distinct records."""

    def kafka(self, topic: str, **more: Any) -> dict[str, Any]:
        """Return the settings of a consumer that starts at the earliest offset."""
        return {
            "bootstrap.servers": self.bootstrap,
            "group.id": f"{topic}-{self.folder.name}",  # a group of its own, since the sink commits offsets
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **more,
        }


class Trimtab(Case):
    """Trimtab's sink with its defaults."""

    def __init__(self, bootstrap: str, folder: Path, form: str, stage: str, **more: str) -> None:
        super().__init__(bootstrap, folder)
        self.sink = {"lake.format": form, "lake.file.writer": stage, "lake.warehouse": str(folder), **more}
        self.lake = open_lake(self._settings("none").lake.session, warm_up=True)

    def _settings(self, topic: str) -> ingest.IngestSettings:
        return ingest.parse_ingest_settings({**self.kafka(topic), **self.sink, "topics": [topic]})

    def run(self, topic: str, count: int, on_start: Begun) -> None:
        config = self._settings(topic)
        with (
            Consumer(config.consumer_config) as consumer,
            LakeWriter(consumer, config.lake, lake=self.lake) as writer,
        ):
            consumer.subscribe([topic], writer.on_assign, writer.on_revoke, writer.on_lost)
            got = 0
            while got < count:
                messages = consumer.consume(ingest.INGEST_FETCH_RECORDS, timeout=0.2)
                if messages and not got:
                    on_start()
                writer.write(messages)
                writer.raise_if_halted()  # else it would be waited for
                got += len(messages)
            writer.flush()

    def count_rows(self, topic: str) -> tuple[int, int]:
        return counted(self.lake.spark.table(f"lake.{topic.replace('-', '_')}"))


class PlainLoop(Case):
    """confluent-kafka's consumer, which reads each value and discards it."""

    more: ClassVar[Mapping[str, Any]] = {}

    def run(self, topic: str, count: int, on_start: Begun) -> None:
        consumer = confluent_kafka.Consumer(self.kafka(topic, **self.more))
        consumer.subscribe([topic])
        self.records = self.bytes = 0
        while self.records < count:
            messages = consumer.consume(ingest.INGEST_FETCH_RECORDS, timeout=0.2)
            if messages and not self.records:
                on_start()
            self.bytes += sum(len(m.value()) for m in messages)
            self.records += len(messages)
        consumer.close()

    def count_rows(self, topic: str) -> tuple[int, int]:  # noqa: ARG002 - the interface
        return self.records, self.records


class TunedLoop(PlainLoop):
    """The plain loop with the fetch setting in which Trimtab's consumer differs from librdkafka."""

    more = TUNED


class DeltaRs(Case):
    """The tuned loop with deltalake, which appends batches of the size of Trimtab's."""

    def run(self, topic: str, count: int, on_start: Begun) -> None:
        consumer = confluent_kafka.Consumer(self.kafka(topic, **TUNED))
        consumer.subscribe([topic])
        got, held, batches = 0, 0, list[Any]()
        while got < count:
            messages = consumer.consume(ingest.INGEST_FETCH_RECORDS, timeout=0.2)
            if messages and not got:
                on_start()
            got += len(messages)
            for where, run in record_columns.group_by_partition(messages).items():
                batches.append(record_columns.build_record_batch(where, run))
                held += batches[-1].nbytes
            if held >= BATCH or got >= count:
                self.append(topic, batches)
                held, batches = 0, []
        consumer.close()

    def append(self, topic: str, batches: list[Any]) -> None:
        from deltalake import write_deltalake  # noqa: PLC0415 - of this case only

        if batches:
            write_deltalake(self.folder / topic, pa.Table.from_batches(batches), mode="append")

    def count_rows(self, topic: str) -> tuple[int, int]:
        from deltalake import DeltaTable  # noqa: PLC0415 - of this case only

        rows = DeltaTable(self.folder / topic).to_pyarrow_table(columns=["partition", "offset"])
        distinct = rows.group_by(["partition", "offset"]).aggregate([])
        return rows.num_rows, distinct.num_rows


class StructuredStreaming(Case):
    """Spark Structured Streaming into the same Iceberg tables, the whole topic in one trigger."""

    more_columns: ClassVar[str] = ""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        super().__init__(bootstrap, folder)
        self.lake = open_lake(self.build_session_config())

    def build_session_config(self) -> SessionConfig:
        others = (*IN_SPARK, "org.apache.spark:spark-token-provider-kafka-0-10_2.13")
        jar_files = jars.fetch_jars("spark-kafka", [CONNECTOR], excludes=others, is_pinned=False)
        others = (*IN_SPARK, "org.apache.kafka:*", "org.apache.spark:spark-tags_2.13")
        tokens = jars.fetch_jars("spark-kafka-tokens", [TOKENS], excludes=others, is_pinned=False)
        spark_settings = {"spark.jars": ",".join(map(str, (*jar_files, *tokens)))}
        return SessionConfig(warehouse=str(self.folder), spark=spark_settings)

    def run(self, topic: str, count: int, on_start: Begun) -> None:  # noqa: ARG002 - all there is
        with tempfile.TemporaryDirectory() as checkpoints:
            sink = self.open_sink(topic).option("checkpointLocation", checkpoints).trigger(availableNow=True)
            on_start()
            self.start_query(sink, topic).awaitTermination()

    def open_sink(self, topic: str) -> Any:
        """Return a writer of the topic's records, without headers."""
        source = self.lake.spark.readStream.format("kafka").options(
            **{"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic}, startingOffsets="earliest"
        )
        return self.select_columns(source.load()).writeStream

    def select_columns(self, records: Any) -> Any:
        """Return the columns of the table."""
        return records.select("topic", "partition", "offset", "timestamp", "key", "value")

    def start_query(self, sink: Any, topic: str) -> Any:
        spark, table = self.lake.spark, f"lake.{topic.replace('-', '_')}"
        spark.sql("CREATE NAMESPACE IF NOT EXISTS lake")
        kinds = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
        properties = ", ".join(f"'{name}' = '{value}'" for name, value in ICEBERG_TABLE_DEFAULTS.items())
        spark.sql(
            f"CREATE TABLE {table} ({kinds}{self.more_columns}) USING iceberg "
            f"TBLPROPERTIES ({properties})"  # the codec's level, as the sink's tables have it
        )
        return sink.format("iceberg").toTable(table)

    def count_rows(self, topic: str) -> tuple[int, int]:
        return counted(self.lake.spark.table(f"lake.{topic.replace('-', '_')}"))


class StructuredStreamingJson(StructuredStreaming):
    """The same with JSON parsed into two columns; what does not fit is null, not a dead letter."""

    more_columns = f", {JSON_COLUMNS}"

    def select_columns(self, records: Any) -> Any:
        parsed = f"from_json(cast(value AS string), '{JSON_COLUMNS}') AS parsed"
        return (
            super()
            .select_columns(records)
            .selectExpr("*", parsed)
            .selectExpr("* EXCEPT (parsed)", "parsed.*")
        )


class StructuredStreamingDelta(StructuredStreaming):
    """The same into a Delta table, compressed as the sink's."""

    def build_session_config(self) -> SessionConfig:
        codec = {"spark.sql.parquet.compression.codec": "zstd"}
        config = super().build_session_config()
        return replace(config, format="delta", spark=config.spark | codec)

    def start_query(self, sink: Any, topic: str) -> Any:
        return sink.format("delta").start(str(self.folder / "lake" / topic))

    def count_rows(self, topic: str) -> tuple[int, int]:
        return counted(self.lake.spark.read.format("delta").load(str(self.folder / "lake" / topic)))


class SparkRanges(StructuredStreaming):
    """A prototype: Spark reads offset ranges from Kafka, the sink's flush commits each as a batch.

    designs/ranges-read-by-spark.md says why the sink does not read this way.
    """

    def run(self, topic: str, count: int, on_start: Begun) -> None:  # noqa: ARG002 - up to the log's end
        flusher = BatchFlusher(self.lake, "ranges", lambda _: self, new_attempt_id, lambda _: None)
        table, nothing = f"lake.{topic.replace('-', '_')}", record_columns.RECORD_SCHEMA.empty_table()
        starts: dict[int, int] = {}
        ends = self.read_ends(topic)
        on_start()
        while starts != ends:
            step = RANGES // len(ends)
            stops = {p: min(starts.get(p, 0) + step, end) for p, end in ends.items()}
            self.options = build_range_options(topic, {p: starts.get(p, 0) for p in ends}, stops)
            spans = {p: OffsetSpan(starts.get(p), starts.get(p, 0), stop) for p, stop in stops.items()}
            batch = FlushBatch(table, {TopicPartition(topic, p): s for p, s in spans.items()}, nothing)
            outcome = flusher.flush_batch(batch, RetryBackoff(random.Random(0)))  # noqa: S311 - jitter
            assert isinstance(outcome, BatchCommitted), outcome
            starts = stops

    def read_ends(self, topic: str) -> dict[int, int]:
        """Return where the log of each partition ends."""
        consumer = confluent_kafka.Consumer(self.kafka(topic))
        partitions = consumer.list_topics(topic).topics[topic].partitions
        asked = [confluent_kafka.TopicPartition(topic, p, confluent_kafka.OFFSET_END) for p in partitions]
        ends = {found.partition: int(found.offset) for found in consumer.offsets_for_times(asked, timeout=30)}
        consumer.close()
        return ends

    def project_records(self, records: Any, to_frame: Any) -> ProjectedRows:
        """Return the rows of the ranges, which Spark reads when it writes them."""
        del records, to_frame
        return ProjectedRows(self.load_ranges())

    def load_ranges(self) -> Any:
        """Return the records of the ranges, which Spark's Kafka source reads."""
        source = self.lake.spark.read.format("kafka").option("kafka.bootstrap.servers", self.bootstrap)
        rows = source.options(**RANGE_OPTIONS, **self.options).load()
        headers = "map_from_entries(headers) AS headers"
        return rows.selectExpr(*record_columns.RECORD_COLUMNS[:-1], headers)


class SparkPythonRanges(SparkRanges):
    """A prototype: the same with a data source in Python, whose tasks read by librdkafka."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        super().__init__(bootstrap, folder)

    def load_ranges(self) -> Any:
        """Return the records of the ranges, which `KafkaRanges` reads."""
        self.lake.spark.dataSource.register(KafkaRanges)
        source = self.lake.spark.read.format(KafkaRanges.name())
        return source.options(bootstrap=self.bootstrap, **self.options).load()


def build_range_options(topic: str, starts: Mapping[int, int], stops: Mapping[int, int]) -> dict[str, str]:
    """Return the options of Spark's Kafka source for these offsets by partition."""
    return {
        "assign": json.dumps({topic: sorted(starts)}),
        "startingOffsets": json.dumps({topic: starts}),
        "endingOffsets": json.dumps({topic: stops}),
    }


def counted(table: Any) -> tuple[int, int]:
    """Return the rows and distinct records of a table."""
    distinct = table.select("partition", "offset").distinct()
    return int(table.count()), int(distinct.count())


@dataclass
class OffsetRange(InputPartition):
    """What a task reads: the offsets of a partition from `start` to before `stop`."""

    topic: str
    partition: int
    start: int
    stop: int


class KafkaRanges(DataSource):
    """Offset ranges of a topic as a data source in Python, with the options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "kafka_ranges"

    def schema(self) -> str:
        place = "topic string, partition int, offset bigint, timestamp timestamp"
        return f"{place}, key binary, value binary, headers map<string, binary>"

    def reader(self, schema: Any) -> "RangeReader":  # noqa: ARG002 - it is always the same
        return RangeReader(dict(self.options))


class RangeReader(DataSourceReader):
    """Reads each range in a task of its own."""

    def __init__(self, options: dict[str, str]) -> None:
        self.bootstrap = options["bootstrap"]
        self.starts = json.loads(options["startingoffsets"])
        self.stops = json.loads(options["endingoffsets"])

    def partitions(self) -> Sequence[OffsetRange]:
        return [
            OffsetRange(topic, int(partition), start, self.stops[topic][partition])
            for topic, starts in self.starts.items()
            for partition, start in starts.items()
        ]

    def read(self, partition: OffsetRange) -> Iterator[Any]:
        """Yield Arrow batches of the record columns."""
        at, name = partition.start, TopicPartition(partition.topic, partition.partition)
        settings = {"group.id": "none", "enable.auto.commit": False, "fetch.queue.backoff.ms": 20}
        consumer = confluent_kafka.Consumer({"bootstrap.servers": self.bootstrap, **settings})
        consumer.assign([confluent_kafka.TopicPartition(name.topic, name.partition, at)])
        while at < partition.stop:
            messages = consumer.consume(PYTHON_FETCH, timeout=0.2)
            (position,) = consumer.position([confluent_kafka.TopicPartition(name.topic, name.partition)])
            at = max(at, position.offset)  # beyond gaps, too, like those of transaction markers
            if ranged := [message for message in messages if message.offset() < partition.stop]:
                yield record_columns.build_record_batch(name, ranged)
        consumer.close()


CASES: dict[str, Callable[[str, Path], Case]] = {
    "trimtab_iceberg": lambda *args: Trimtab(*args, "iceberg", "spark"),
    "trimtab_delta": lambda *args: Trimtab(*args, "delta", "spark"),
    "trimtab_arrow": lambda *args: Trimtab(*args, "iceberg", "arrow"),
    "trimtab_arrow_delta": lambda *args: Trimtab(*args, "delta", "arrow"),
    "trimtab_iceberg_json": lambda *args: Trimtab(*args, "iceberg", "spark", **JSON),
    "trimtab_arrow_json": lambda *args: Trimtab(*args, "iceberg", "arrow", **JSON),
    "plain_loop": PlainLoop,
    "plain_loop_tuned": TunedLoop,
    "structured_streaming": StructuredStreaming,
    "structured_streaming_json": StructuredStreamingJson,
    "structured_streaming_delta": StructuredStreamingDelta,
    "trimtab_ranges": SparkRanges,
    "spark_python_ranges": SparkPythonRanges,
    "delta_rs": DeltaRs,
}


def main(name: str, text: str) -> None:
    plan = json.loads(text)
    case = CASES[name](plan["bootstrap"], Path(plan["folder"]))
    case.run(*plan["warm"], on_start=lambda: None)
    print_event("ready")
    sys.stdin.readline()
    times: list[float] = []

    def on_start() -> None:
        print_event("begin")
        times.append(perf_counter())

    case.run(*plan["timed"], on_start=on_start)
    print_event("end", perf_counter() - times[0])
    sys.stdin.readline()
    print_event("found", *case.count_rows(plan["timed"][0]))


def print_event(what: str, *figures: float) -> None:
    print(what, *figures, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
