"""A consumer reads on while the group rebalances: only partitions that move pause (KIP-429)."""

import json
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, ConsumerGroupState, KafkaException
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from support.steady import Background
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.membership.classic import coordinator

pytestmark = pytest.mark.broker

PARTITIONS = 15
INTERVAL_S = 0.02  # between the records of a partition
REVOCATION_S = 3.0  # time that one member needs to release partitions, as a sink's last flush does
LEAST_LIMIT_S = 0.25  # a twelfth of the pause that librdkafka's default heartbeat interval makes
OUTSIDE = "outside"


class Pulse(Background):
    """Produces a record to each partition at a fixed interval."""

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL_S):
            for number in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=number)
            self._producer.poll(0)


class Rebalances:
    """Longest time between two reads of a partition that a consumer kept, by rebalance.

    The limit is three times that of a reader in the same process without a group: on a busy machine
    both wait for the processor.
    """

    def __init__(self, admin: AdminClient, group: str, log: Any, eventually: Callable[..., None]) -> None:
        self._admin = admin
        self._group = group
        self._log = log
        self._eventually = eventually
        self._phases: dict[str, tuple[set[TopicPartition], float, float]] = {}
        self.consumer: Any = None

    def settle(
        self, members: int, partitions: int = PARTITIONS, until: Callable[[], object] = lambda: True
    ) -> None:
        """Wait until that many members own all partitions."""

        def is_settled() -> bool:
            try:
                group = self._admin.describe_consumer_groups([self._group])[self._group].result(30)
            except KafkaException:  # a new broker's coordinator starts with the first request
                return False
            owned = [len(m.assignment.topic_partitions) for m in group.members]
            is_stable = group.state is ConsumerGroupState.STABLE
            return is_stable and len(owned) == members and sum(owned) == partitions and bool(until())

        self._eventually(is_settled, 60)

    @contextmanager
    def watch(self, kind: str) -> Generator[None]:
        """Measure while the block runs; at its end the group has settled."""
        before = {p for p in self.consumer.owned if p.partition < PARTITIONS}  # later ones get no records
        for reader in (self.consumer.name, OUTSIDE):
            self._eventually(lambda r=reader: before <= self._list_read(r))
        begin = monotonic()
        yield
        kept = before & self.consumer.owned
        assert kept, f"{kind}: of {before} the consumer kept no partition"
        self._phases[kind] = (kept, begin, monotonic())

    def measure(self) -> tuple[dict[str, float], float]:
        """Return the gap of each rebalance, and the limit, in seconds."""
        end = monotonic()
        self._eventually(lambda: self._log.records[-1][3] > end)
        gaps = {kind: self._longest_gap(self.consumer.name, *phase) for kind, phase in self._phases.items()}
        outside = max(self._longest_gap(OUTSIDE, *phase) for phase in self._phases.values())
        return gaps, max(3 * outside, LEAST_LIMIT_S)

    def _list_read(self, reader: str) -> set[TopicPartition]:
        return {partition for partition, _, name, _ in self._log.records[:] if name == reader}

    def _longest_gap(self, reader: str, kept: set[TopicPartition], begin: float, end: float) -> float:
        times: dict[TopicPartition, list[float]] = {partition: [] for partition in kept}
        for partition, _, name, at in self._log.records[:]:
            if name == reader and partition in kept:
                times[partition].append(at)
        now = monotonic()  # a partition that is read no more has a gap until now
        pairs = (pair for reads in times.values() for pair in pairwise([*reads, now]))
        return max(after - before for before, after in pairs if after > begin and before < end)


@pytest.fixture
def name(topic: Callable[..., str], bootstrap: str) -> Iterator[str]:
    """A topic that is written to until the test ends."""
    name = topic(partitions=PARTITIONS)
    pulse = Pulse(bootstrap, name)
    yield name
    pulse.stop()


@pytest.fixture
def outside(bootstrap: str, log: Any, name: str) -> Iterator[None]:
    """Reads all partitions in this process without a group."""
    stop = Event()

    def read() -> None:
        consumer = ConfluentConsumer({"bootstrap.servers": bootstrap, "group.id": OUTSIDE})
        consumer.assign([RawPartition(name, number, OFFSET_END) for number in range(PARTITIONS)])
        while not stop.is_set():
            for message in consumer.consume(500, timeout=0.05):
                partition = TopicPartition(message.topic(), message.partition())
                log.records.append((partition, message.offset(), OUTSIDE, monotonic()))
        consumer.close()

    thread = Thread(target=read)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.fixture
def rebalances(
    admin: AdminClient, group: str, log: Any, eventually: Callable[..., None], outside: None
) -> Rebalances:
    """Measures the group's rebalances."""
    del outside
    return Rebalances(admin, group, log, eventually)


@pytest.fixture
def config(config: dict[str, Any], control: Any) -> dict[str, Any]:
    """Configure the consumers with control topics of their own."""
    return {**config, **control.topics}


@pytest.fixture
def start_process(
    config: dict[str, Any], name: str, control: Any, rebalances: Rebalances, tmp_path: Path
) -> Iterator[Callable[[str], "subprocess.Popen[bytes]"]]:
    """Start the first members, in processes of their own; all are killed after the test."""
    running: list[subprocess.Popen[bytes]] = []

    def start(instance: str) -> "subprocess.Popen[bytes]":
        script = Path(__file__).parents[2] / "workers" / "reader.py"
        arguments = (
            config["bootstrap.servers"],
            config["group.id"],
            name,
            instance,
            str(tmp_path / instance),
            json.dumps(control.topics),
        )
        running.append(subprocess.Popen([sys.executable, str(script), *arguments]))
        rebalances.settle(len(running))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.wait(timeout=10)


def test_kept_partitions_are_read_through_every_rebalance(
    name: str, start: Any, start_process: Any, control: Any, admin: AdminClient, rebalances: Rebalances
) -> None:
    """Others join, leave, die, drain and lead; plans come and the topic grows: no kept partition pauses."""
    control.publish_rates(name, *[100.0] * PARTITIONS)
    leader, victim = map(start_process, ("leader", "victim"))
    one, slow, quick = (start(n, [name]) for n in ("one", "slow", "quick"))
    # The broker's assignment is complete before its partitions were handed over.
    rebalances.settle(5, until=lambda: {len(w.owned) for w in (one, slow, quick)} == {PARTITIONS // 5})
    rebalances.consumer, slow.revocation_s = one, REVOCATION_S
    with rebalances.watch("join"):
        joiner = start("joiner", [name])
        rebalances.settle(6, until=lambda: joiner.owned)
    with rebalances.watch("plan"):
        control.plan(1, replicas=5, heuristic="steady", capacity=350.0, draining=("joiner",))
        rebalances.settle(5, until=lambda: not joiner.owned)  # it has left
    with rebalances.watch("drain"):
        slow.consumer.drain()
        rebalances.settle(5, until=lambda: not slow.owned)
    with rebalances.watch("departure"):
        quick.stop()
        rebalances.settle(4)
    with rebalances.watch("growth"):
        admin.create_partitions([NewPartitions(name, PARTITIONS + 3)])[name].result(30)
        rebalances.settle(4, PARTITIONS + 3)
    with rebalances.watch("death"):
        victim.kill()
        rebalances.settle(3, PARTITIONS + 3)
    assert not any(coordinator.is_leader(w.consumer._member.client) for w in (one, slow))
    with rebalances.watch("death of the leader"):
        leader.kill()
        rebalances.settle(2, PARTITIONS + 3)
    gaps, limit = rebalances.measure()
    assert max(gaps.values()) <= limit, gaps


def test_an_eager_assignor_pauses_every_partition(name: str, start: Any, rebalances: Rebalances) -> None:
    """The same measurement finds the pause of confluent-kafka's `range`: all wait for the slowest member."""
    one, slow = (start(n, [name], client=eager_consumer) for n in ("one", "slow"))
    rebalances.settle(2, until=lambda: one.owned and slow.owned)
    rebalances.consumer, slow.revocation_s = one, REVOCATION_S
    with rebalances.watch("join"):
        start("joiner", [name], client=eager_consumer)
        rebalances.settle(3, until=lambda: one.owned)  # the group is stable before its members know it
    gaps, _ = rebalances.measure()
    assert gaps["join"] > REVOCATION_S / 2 > LEAST_LIMIT_S


def eager_consumer(config: dict[str, Any]) -> ConfluentConsumer:
    """Return confluent-kafka's own consumer with an eager assignor."""
    plain = {name: value for name, value in config.items() if not name.startswith("trimtab.")}
    return ConfluentConsumer({**plain, "partition.assignment.strategy": "range"})
