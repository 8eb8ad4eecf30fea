"""Bytes fetched across racks, without and with rack awareness: three brokers and consumers in three racks.

Every partition has two replicas, so each rack has two thirds of the partitions. Each mode has its own
group and topic; the records are written once all consumers have their partitions. The bytes fetched
from each broker are librdkafka's count of received bytes, including the protocol. `optimum` is the
minimum share of the load that must cross racks with even counts, from the assignor's solver.
"""

import json
import sys
import uuid
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import permutations
from random import Random
from threading import Event, Thread
from time import monotonic
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from trimtab.assignor import ConsumerGroup, Load, Member, PlacementPolicy, TopicPartition, place_partitions
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.consumer_sdk import Consumer

RACKS = ("a", "b", "c")
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
PATIENCE = 120.0
SEED = 2

WAYS = {
    "before": ("steady", False),
    "follower": ("steady", True),
    "steady": ("steady:rack_cost=2", True),
    "rack_aware": ("rack-aware", True),
}
"""Heuristic, and whether consumers set their rack."""


@dataclass
class Reader:
    """A consumer in a rack, run in a thread, with its received bytes by broker."""

    rack: str
    config: dict[str, Any]
    topic: str
    owned: set[int] = field(default_factory=set)
    records: int = 0
    received: dict[int, int] = field(default_factory=dict)
    counted: float = 0.0
    stop: Event = field(default_factory=Event)

    def start(self) -> Thread:
        thread = Thread(target=self._run, name=f"reader-{self.rack}")
        thread.start()
        return thread

    def _run(self) -> None:
        with Consumer({**self.config, "stats_cb": self._count}) as consumer:
            consumer.subscribe([self.topic], self._assigned, self._gone, self._gone)
            while not self.stop.is_set():
                self.records += len(consumer.consume(500, timeout=0.1))

    def _assigned(self, _: Any, partitions: list[Any]) -> None:
        self.owned |= {p.partition for p in partitions}

    def _gone(self, _: Any, partitions: list[Any]) -> None:
        self.owned -= {p.partition for p in partitions}

    def _count(self, statistics: str) -> None:
        brokers = json.loads(statistics)["brokers"].values()
        self.received = {b["nodeid"]: b["rxbytes"] for b in brokers if b["nodeid"] > 0}
        self.counted = monotonic()


def main() -> None:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--partitions", type=int, default=12)
    arguments.add_argument("--mb", type=float, default=24.0, help="megabytes per mode")
    arguments.add_argument("--ways", nargs="*", choices=list(WAYS), default=list(WAYS))
    arguments.add_argument("--bootstrap", help="running brokers 1 to 3 in racks a to c")
    options = arguments.parse_args()
    with nullcontext(options.bootstrap) if options.bootstrap else run_cluster() as bootstrap:
        results = {way: measure_way(bootstrap, way, options.partitions, options.mb) for way in options.ways}
    table = Table("way", "heuristic", "client.rack", "fetched MB", "across racks MB", "share")
    for way, row in results.items():
        heuristic, sets_rack = WAYS[way]
        figures = [f"{row['fetched_mb']:.2f}", f"{row['crossing_mb']:.2f}", f"{row['share']:.1%}"]
        table.add_row(way, heuristic, "yes" if sets_rack else "no", *figures)
    Console(width=120).print(table)
    harness.result({**results, "optimum": find_optimum(options.partitions)})


@contextmanager
def run_cluster() -> Iterator[str]:
    """Yield the address of three brokers in three racks."""
    with ExitStack() as stack:
        first = stack.enter_context(EmbeddedBroker(properties=_list_properties(1)))
        for node in (2, 3):
            stack.enter_context(first.create_peer(_list_properties(node)))
        yield first.bootstrap


def _list_properties(node: int) -> dict[str, str]:
    return {"node.id": str(node), "broker.rack": RACKS[node - 1], "replica.selector.class": SELECTOR}


def measure_way(bootstrap: str, way: str, partitions: int, mb: float) -> dict[str, float]:
    """Return the bytes that three consumers fetched, in total and from other racks."""
    print(way, file=sys.stderr)
    topic = _create_topic(bootstrap, partitions)
    readers = [Reader(rack, _configure_consumer(bootstrap, way, rack, topic), topic) for rack in RACKS]
    threads = [reader.start() for reader in readers]
    try:
        share = partitions // len(RACKS)
        _wait_until(lambda: all(len(reader.owned) == share for reader in readers))
        count = round(mb * 1e6 / 1000)
        harness.fill(bootstrap, topic, partitions, count, 1000)
        _wait_until(lambda: sum(reader.records for reader in readers) >= count)
        done = monotonic()
        _wait_until(lambda: all(reader.counted > done for reader in readers))
    finally:
        for reader in readers:
            reader.stop.set()
        for thread in threads:
            thread.join()
    fetched = sum(sum(reader.received.values()) for reader in readers)
    crossing = sum(
        size for reader in readers for node, size in reader.received.items() if RACKS[node - 1] != reader.rack
    )
    return {
        "fetched_mb": round(fetched / 1e6, 3),
        "crossing_mb": round(crossing / 1e6, 3),
        "share": round(crossing / fetched, 4),
    }


def _configure_consumer(bootstrap: str, way: str, rack: str, topic: str) -> dict[str, Any]:
    heuristic, sets_rack = WAYS[way]
    return {
        "bootstrap.servers": bootstrap,
        "group.id": f"{topic}-group",
        "auto.offset.reset": "earliest",
        "statistics.interval.ms": 200,
        "trimtab.heuristic": heuristic,
        "trimtab.instance": f"reader-{rack}",
        "trimtab.plan.topic": "",
        "trimtab.write.rate.topic": "",
        **({"client.rack": rack} if sets_rack else {}),
    }


def _place_replicas(partitions: int) -> list[list[int]]:
    """Return each partition's replicas, leader first: all pairs, in an order without a pattern."""
    pairs = [list(pair) for pair in permutations(range(1, len(RACKS) + 1), 2)]
    every = [pairs[n % len(pairs)] for n in range(partitions)]
    return Random(SEED).sample(every, partitions)  # noqa: S311 - no secret


def _create_topic(bootstrap: str, partitions: int) -> str:
    name = f"racks-{uuid.uuid4().hex[:8]}"
    new = NewTopic(name, partitions, replica_assignment=_place_replicas(partitions))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    _wait_until(lambda: len(admin.list_topics(timeout=10).brokers) == len(RACKS))
    admin.create_topics([new])[name].result(30)
    return name


def find_optimum(partitions: int) -> float:
    """Return the minimum cross-rack share of the load with equal write rates."""
    names = [TopicPartition("t", n) for n in range(partitions)]
    there = [{RACKS[node - 1] for node in nodes} for nodes in _place_replicas(partitions)]
    group = ConsumerGroup(
        tuple(Member(rack, frozenset({"t"}), rack=rack) for rack in RACKS),
        tuple(names),
        replica_racks=dict(zip(names, there, strict=True)),
    )
    plan = place_partitions(group, Load(dict.fromkeys(names, 1.0)), PlacementPolicy("rack-aware"))
    return round((plan.cross_rack_load or 0.0) / partitions, 4)


def _wait_until(condition: Any) -> None:
    pause, deadline = Event(), monotonic() + PATIENCE
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"not true within {PATIENCE} s")
        pause.wait(0.05)


if __name__ == "__main__":
    main()
