"""Lake writers over a consumer of listed records; the lake, Spark and the writer are real."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition as RawPartition

from support.lake.fake_registry import FakeRegistry, serve_registry
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.client.offset_reset import OffsetReset
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.options.settings import LakeConfig, parse_lake_config
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter


@dataclass
class FakeMessage:
    """The parts of confluent-kafka's message that the writer reads."""

    where: TopicPartition
    at: int
    payload: bytes | None
    name: bytes | None = b"k"
    heads: list[tuple[str, bytes | None]] | None = None

    def topic(self) -> str:
        return self.where.topic

    def partition(self) -> int:
        return self.where.partition

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_700_000_000_000 + self.at)

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.payload

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self.heads

    def error(self) -> None:
        return None


@dataclass
class FakeConsumer:
    """A consumer of listed records; it keeps positions and records its commits."""

    log: dict[TopicPartition, list[bytes | None]]
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    callbacks: deque[Callable[[], None]] = field(default_factory=deque)
    started: set[TopicPartition] = field(default_factory=set)
    resets: list[OffsetReset] = field(default_factory=list)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[FakeMessage]:  # noqa: ARG002 - the interface
        while self.callbacks:
            self.callbacks.popleft()()
        found: list[FakeMessage] = []
        for where, offset in sorted(self.positions.items()):
            values = self.log[where][offset : offset + num_messages - len(found)]
            found += [FakeMessage(where, offset + i, value) for i, value in enumerate(values)]
            self.positions[where] = offset + len(values)
        return found

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        for p in partitions:
            self.positions[TopicPartition(p.topic, p.partition)] = p.offset

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        for p in partitions:
            self.positions.pop(TopicPartition(p.topic, p.partition), None)

    def pop_offset_resets(self) -> list[OffsetReset]:
        found, self.resets = self.resets, []
        return found

    def batch_max_age_s(self) -> float | None:
        return None

    def commit(self, *, offsets: Sequence[RawPartition], asynchronous: bool = True) -> None:  # noqa: ARG002
        self.committed |= {TopicPartition(p.topic, p.partition): p.offset for p in offsets}

    def assign(self, writer: LakeWriter, *partitions: TopicPartition) -> None:
        """Assign these partitions, as a rebalance does."""
        writer.on_assign(self, [RawPartition(*p) for p in partitions])
        for p in partitions:
            self.positions.setdefault(p, self.committed.get(p, 0))

    def revoke(self, writer: LakeWriter, *partitions: TopicPartition) -> None:
        """Revoke these partitions, as a rebalance does."""
        for p in partitions:
            self.positions.pop(p, None)
        writer.on_revoke(self, [RawPartition(*p) for p in partitions])


@pytest.fixture(scope="session")
def fakes() -> SimpleNamespace:
    return SimpleNamespace(Consumer=FakeConsumer, Message=FakeMessage)


@pytest.fixture
def lake(request: pytest.FixtureRequest, iceberg: IcebergLake) -> SparkLake:
    """The Iceberg lake of the run, or the lake whose fixture parametrizes a test."""
    fixture = getattr(request, "param", None)
    return request.getfixturevalue(fixture) if fixture else iceberg


@pytest.fixture
def spark(lake: SparkLake) -> Any:
    return lake.spark


@pytest.fixture
def config(namespace: str, warehouse: Path) -> Callable[..., LakeConfig]:
    """Build a configuration with tables in this test's namespace; batches flush at once by default."""

    def make(**changes: Any) -> LakeConfig:
        base = {
            "group.id": "g",
            "enable.auto.commit": False,
            "lake.warehouse": str(warehouse),
            "lake.table": namespace + ".{topic}",
            "batch.max.age": 0,
            "lake.flush.timeout": "120 s",  # a shared machine may be slow
        }
        return parse_lake_config(base | {name.replace("_", "."): value for name, value in changes.items()})

    return make


@pytest.fixture
def writers(
    lake: SparkLake, config: Callable[..., LakeConfig]
) -> Iterator[Callable[..., tuple[FakeConsumer, LakeWriter]]]:
    """Create (consumer, writer) pairs over a log; close the open ones at the end."""
    made: list[LakeWriter] = []

    def make(log: dict[Any, list[bytes | None]], **changes: Any) -> tuple[FakeConsumer, LakeWriter]:
        crash = changes.pop("crash", print)
        given = {name: changes.pop(name, None) for name in ("metrics", "clock")}
        consumer = FakeConsumer({TopicPartition(*p): values for p, values in log.items()})
        stepped = type("SteppedWriter", (LakeWriter,), {"_reach_step": staticmethod(crash)})
        writer = stepped(consumer, config(**changes), lake=lake, **given)
        made.append(writer)
        return consumer, writer

    yield make
    for writer in made:
        writer.__exit__(RuntimeError, None, None)


@pytest.fixture
def ingest_settings(
    lake: SparkLake, bootstrap: str, group: str, topic: Callable[..., str], namespace: str, warehouse: Path
) -> dict[str, Any]:
    """The configuration of an ingest of a topic with two partitions; its batches are short."""
    name = topic(partitions=2)
    return {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "topics": [name],
        "lake.format": "delta" if isinstance(lake, DeltaLake) else "iceberg",
        "lake.warehouse": str(warehouse),
        "lake.tables": {name: f"{namespace}.orders"},
        "batch.max.age": "100 ms",
    }


@pytest.fixture
def rows(spark: Any) -> Callable[[str], list[Any]]:
    """Return a table's (topic, partition, offset), sorted."""

    def read(table: str) -> list[Any]:
        found = spark.table(table).select("topic", "partition", "offset").collect()
        return sorted(tuple(row) for row in found)

    return read


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry for one test."""
    with serve_registry() as registry:
        yield registry
