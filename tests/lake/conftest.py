"""Writers over a consumer that is a list of values: the rest of the path is real."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.config import LakeConfig, parse
from trimtab.consumer_sdk.lake.iceberg import IcebergLake
from trimtab.consumer_sdk.lake.writer import LakeWriter


@dataclass
class FakeMessage:
    """confluent-kafka's message, as far as the sink looks."""

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
    """A consumer over lists of values.

    Keeps positions, hands out records in order, notes commits.
    """

    log: dict[TopicPartition, list[bytes | None]]
    positions: dict[TopicPartition, int] = field(default_factory=dict)
    committed: dict[TopicPartition, int] = field(default_factory=dict)
    callbacks: deque[Callable[[], None]] = field(default_factory=deque)
    started: set[TopicPartition] = field(default_factory=set)

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
            del self.positions[TopicPartition(p.topic, p.partition)]

    def commit(self, *, offsets: Sequence[RawPartition], asynchronous: bool = True) -> None:  # noqa: ARG002
        self.committed |= {TopicPartition(p.topic, p.partition): p.offset for p in offsets}

    def join(self, writer: LakeWriter, *partitions: TopicPartition) -> None:
        """Own these, as the group would have it."""
        writer.on_assign(self, [RawPartition(*p) for p in partitions])
        for p in partitions:
            self.positions.setdefault(p, self.committed.get(p, 0))

    def leave(self, writer: LakeWriter, *partitions: TopicPartition) -> None:
        """Give these up, as the group would have it."""
        for p in partitions:
            self.positions.pop(p, None)
        writer.on_revoke(self, [RawPartition(*p) for p in partitions])


@pytest.fixture(scope="session")
def fakes() -> SimpleNamespace:
    return SimpleNamespace(Consumer=FakeConsumer, Message=FakeMessage)


@pytest.fixture
def config(namespace: str, warehouse: Path) -> Callable[..., LakeConfig]:
    """Make a configuration.

    Tables in this test's namespace, batches that go at once unless told otherwise.
    """

    def make(**changes: Any) -> LakeConfig:
        base = {
            "group.id": "g",
            "enable.auto.commit": False,
            "lake.warehouse": str(warehouse),
            "lake.table": namespace + ".{topic}",
            "batch.wait": 0,
        }
        return parse(base | {name.replace("_", "."): value for name, value in changes.items()})

    return make


@pytest.fixture
def writers(
    lake: IcebergLake, config: Callable[..., LakeConfig]
) -> Iterator[Callable[..., tuple[FakeConsumer, LakeWriter]]]:
    """Make (consumer, writer) pairs over a log; whatever is left open is closed at the end."""
    made: list[LakeWriter] = []

    def make(log: dict[Any, list[bytes | None]], **changes: Any) -> tuple[FakeConsumer, LakeWriter]:
        crash = changes.pop("crash", print)
        consumer = FakeConsumer({TopicPartition(*p): values for p, values in log.items()})
        writer = LakeWriter(consumer, config(**changes), lake=lake, crash=crash)
        made.append(writer)
        return consumer, writer

    yield make
    for writer in made:
        writer.__exit__(RuntimeError, None, None)


@pytest.fixture
def rows(spark: Any) -> Callable[[str], list[Any]]:
    """Return a table's (topic, partition, offset), sorted."""

    def read(table: str) -> list[Any]:
        found = spark.table(table).select("topic", "partition", "offset").collect()
        return sorted(tuple(row) for row in found)

    return read
