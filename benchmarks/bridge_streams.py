"""What bench_bridge produces, and what each of its reads must return: events, or changes by key.

Rules of the changes:

1. A key lives in one partition: its number modulo that of the partitions. Most changes are updates;
   some are deletes, half of them with a tombstone, and a few move a row to another key.
2. The rows due are a replay of the topic in plain Python, of each partition up to the end of the read's
   cut. It reads the topic with a consumer of its own and shares no code with the sink.
3. A key without its row is missing, each further row of a key is doubled, and any row that is not the
   newest of its key is stale, among them rows of deleted keys.
"""

import random
from argparse import Namespace
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from itertools import count
from time import monotonic
from typing import Any, Final, NamedTuple

import fastavro
import numpy as np
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from benchmarks import harness

DELETES: Final = 0.2  # share of the changes
MOVES: Final = 0.05  # share of the changes: to another key
REPLAY_TIMEOUT_S: Final = 60.0
SCHEMA_PREFIX: Final = b"\0" + (1).to_bytes(4)  # the registry has one schema
_COLUMNS: Final = [{"name": name, "type": "long"} for name in ("id", "version")]
_ROW: Final = {"type": "record", "name": "Value", "fields": _COLUMNS}
_SIDES: Final = [{"name": "before", "type": ["null", _ROW]}, {"name": "after", "type": ["null", "Value"]}]
ENVELOPE: Final = {
    "type": "record",
    "name": "Envelope",
    "fields": [*_SIDES, {"name": "op", "type": "string"}],
}
_PARSED: Final = fastavro.parse_schema(ENVELOPE)

Ends = Mapping[int, int]
"""Partition → the offset behind the last record of a cut."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Records to produce, the settings of the sink, and the comparison of a read with its cut."""

    records: Iterator[harness.Record]
    settings: Mapping[str, Any]
    count_differences: Callable[[Any, Ends], Mapping[str, int]]  # rows in Arrow


@contextmanager
def stream_events(bootstrap: str, topic: str, arguments: Namespace) -> Generator[Stream]:
    """Yield events, each of which is a row."""
    del bootstrap, topic
    yield Stream(harness.steady_records(arguments.partitions), {}, count_record_differences)


def count_record_differences(rows: Any, ends: Ends) -> Mapping[str, int]:
    """Return the numbers of missing and of surplus records; offsets begin at 0 and have no holes."""
    partitions, offsets = (np.asarray(rows.column(name).cast("int64")) for name in ("partition", "offset"))
    inside = offsets < np.array([ends[number] for number in sorted(ends)])[partitions]
    distinct = len(np.unique((partitions << 40 | offsets)[inside]))
    return {"missing": sum(ends.values()) - distinct, "doubled": len(offsets) - distinct}


@contextmanager
def stream_changes(bootstrap: str, topic: str, arguments: Namespace) -> Generator[Stream]:
    """Yield changes by key, and serve the registry of their schema. Needs PYTHONPATH=tests."""
    from support.lake.fake_registry import serve_registry  # noqa: PLC0415 - events need no tests

    settings = {"lake.write": "upsert", "lake.key": "id", "lake.decoder": "avro"}
    keys = arguments.keys // arguments.partitions * arguments.partitions
    changes = draw_changes(random.Random(1), keys, arguments.partitions)  # noqa: S311 - no secret
    with serve_registry() as registry, closing(TopicReplay(bootstrap, topic, arguments.partitions)) as replay:
        registry.add("changes", ENVELOPE)
        yield Stream(changes, settings | {"schema.registry.url": registry.url}, replay.count_differences)


STREAMS: Final = {"append": stream_events, "upsert": stream_changes}
"""By `lake.write`."""


def draw_changes(chance: random.Random, keys: int, partitions: int) -> Iterator[harness.Record]:
    """Yield Debezium's changes of rows with the keys below `keys`, a multiple of the partitions."""
    for version in count():
        key, kind = chance.randrange(keys), chance.random()
        row = {"id": key, "version": version}
        envelope: dict[str, Any] = {"op": "u", "before": None, "after": row}
        if kind < DELETES:
            envelope = {"op": "d", "before": row, "after": None}
        elif kind < DELETES + MOVES:
            moved = row | {"id": (key + partitions) % keys}  # in the same partition
            envelope = {"op": "u", "before": row, "after": moved}
        yield harness.Record(key % partitions, encode_change(envelope), b"%d" % key)
        if kind < DELETES / 2:
            yield harness.Record(key % partitions, None, b"%d" % key)


def encode_change(envelope: Mapping[str, Any]) -> bytes:
    data = BytesIO()
    fastavro.schemaless_writer(data, _PARSED, envelope)
    return SCHEMA_PREFIX + data.getvalue()


class ChangedRow(NamedTuple):
    """A row without its key: where its change is in the topic, and the change's number."""

    partition: int
    offset: int
    version: int


def apply_change(rows: dict[int, ChangedRow], partition: int, offset: int, change: harness.Record) -> None:
    """Apply the change in a record of the topic to the rows by key."""
    if change.value is None:
        assert change.key is not None
        rows.pop(int(change.key), None)
        return
    envelope: Any = fastavro.schemaless_reader(BytesIO(change.value[len(SCHEMA_PREFIX) :]), _PARSED, None)
    if envelope["before"] is not None:
        rows.pop(envelope["before"]["id"], None)
    if envelope["after"] is not None:
        rows[envelope["after"]["id"]] = ChangedRow(partition, offset, envelope["after"]["version"])


def compare_rows(due: Mapping[int, ChangedRow], found: Iterable[tuple[int, ChangedRow]]) -> dict[str, int]:
    """Return the numbers of missing, doubled and stale rows (rule 3)."""
    rows = list(found)
    keys = Counter(key for key, _ in rows)
    stale = sum(due.get(key) != row for key, row in rows)
    return {"missing": len(due.keys() - keys.keys()), "doubled": len(rows) - len(keys), "stale": stale}


@dataclass(slots=True)
class _PartitionReplay:
    next: int = 0  # the first offset that is not applied
    waiting: deque[Any] = field(default_factory=deque[Any])  # messages from there on


class TopicReplay:
    """Rows of a topic's changes up to ends that never go back, until closed."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._rows: dict[int, ChangedRow] = {}
        self._partitions = {number: _PartitionReplay() for number in range(partitions)}
        names = {"bootstrap.servers": bootstrap, "group.id": "bench-bridge-replay"}
        self._consumer = Consumer({**names, "enable.auto.commit": False})
        self._consumer.assign([RawPartition(topic, number, 0) for number in range(partitions)])

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def count_differences(self, rows: Any, ends: Ends) -> Mapping[str, int]:
        """Compare the rows of a read with the replay up to its ends."""
        self._fetch_until(ends)
        for number, end in ends.items():
            self._apply_until(number, end)
        names = ("id", "partition", "offset", "version")
        columns = (rows.column(name).to_pylist() for name in names)
        return compare_rows(self._rows, ((key, ChangedRow(*row)) for key, *row in zip(*columns, strict=True)))

    def _fetch_until(self, ends: Ends) -> None:
        deadline = monotonic() + REPLAY_TIMEOUT_S
        while any(self._find_fetched_end(number) < end for number, end in ends.items()):
            if monotonic() > deadline:
                raise TimeoutError(f"the topic was not read up to {ends} within {REPLAY_TIMEOUT_S:.0f} s")
            for message in self._consumer.consume(10_000, timeout=0.1):
                if message.error() is not None:
                    raise KafkaException(message.error())
                self._partitions[message.partition()].waiting.append(message)

    def _find_fetched_end(self, number: int) -> int:
        replayed = self._partitions[number]
        return int(replayed.waiting[-1].offset()) + 1 if replayed.waiting else replayed.next

    def _apply_until(self, number: int, end: int) -> None:
        replayed = self._partitions[number]
        if end < replayed.next:
            raise ValueError(f"partition {number}: the read ends at {end}, the one before at {replayed.next}")
        while replayed.next < end:
            message = replayed.waiting.popleft()
            change = harness.Record(number, message.value(), message.key())
            apply_change(self._rows, number, message.offset(), change)
            replayed.next = message.offset() + 1
