"""Three brokers in three racks: traffic across racks falls to the minimum."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, closing
from threading import Event
from time import monotonic
from typing import Any
from uuid import uuid4

import pytest
from aiokafka import AIOKafkaConsumer
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import TopicPartitionState

from support.benchmarks import run_benchmark
from trimtab.assignor.clients import aiokafka, kafka_python
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.main import main
from trimtab.consumer_sdk import Consumer

pytestmark = pytest.mark.broker

PROTOCOL = 0.05
"""Fraction of the bytes allowed for fetch responses without records."""

SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
POLLS = 200
TIMEOUT = 0.5  # seconds of a poll


def properties(node: int) -> dict[str, str]:
    rack = "abc"[node - 1]
    return {"node.id": str(node), "broker.rack": rack, "replica.selector.class": SELECTOR}


@pytest.fixture(scope="module")
def racks() -> Iterator[str]:
    """Start brokers 1, 2 and 3 in racks a, b and c."""
    with ExitStack() as stack:
        first = stack.enter_context(EmbeddedBroker(properties=properties(1)))
        for node in (2, 3):
            stack.enter_context(first.create_peer(properties(node)))
        yield first.bootstrap


def topic(bootstrap: str, *replicas: list[int]) -> str:
    """Create a topic on these brokers, leader first, with a record in each partition."""
    name = f"racks-{uuid4().hex[:8]}"
    new = NewTopic(name, len(replicas), replica_assignment=list(replicas))
    admin = AdminClient({"bootstrap.servers": bootstrap})
    deadline = monotonic() + 90
    while len(admin.list_topics(timeout=30).brokers) < 3:
        assert monotonic() < deadline, "three brokers do not know each other"
        Event().wait(0.1)
    admin.create_topics([new])[name].result(30)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(len(replicas)):
        producer.produce(name, b"x" * 100, partition=number)
    assert producer.flush(30) == 0
    return name


def test_rack_aware_reduces_cross_rack_bytes_to_the_optimum(racks: str) -> None:
    """Without racks over a tenth of the bytes crosses racks; with rack-aware only protocol overhead."""
    ways = ("--ways", "before", "rack_aware", "--mb", "3", "--bootstrap", racks)
    figures = run_benchmark("consumer.bench_fetch_racks", *ways)
    assert figures["optimum"] == 0
    assert figures["rack_aware"]["share"] < figures["optimum"] + PROTOCOL
    assert figures["rack_aware"]["fetched_mb"] > 3
    assert figures["before"]["share"] > 2 * PROTOCOL


def test_kafka_python_reads_from_the_follower_in_its_rack(
    racks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With client_rack, kafka-python fetches from broker 2 although broker 1 leads."""
    name = topic(racks, [1, 2])
    chosen: list[int] = []  # by the leader's answers; one of the follower, -1, ends the choice until the next
    update = TopicPartitionState.update_preferred_read_replica

    def record(state: Any, node: int, until: float) -> Any:
        chosen.append(node)
        return update(state, node, until)

    monkeypatch.setattr(TopicPartitionState, "update_preferred_read_replica", record)
    consumer: Any = KafkaConsumer(
        name,
        bootstrap_servers=racks,
        group_id=name,
        auto_offset_reset="earliest",
        client_rack="b",
        partition_assignment_strategy=[kafka_python.TrimtabAssignor("rack-aware", rack="b")],
    )
    with closing(consumer):
        for _ in range(POLLS):
            consumer.poll(TIMEOUT * 1000)
            if 2 in chosen:
                break
        else:
            pytest.fail(f"it still reads from the leader: {chosen}")


def test_aiokafka_reads_from_the_follower_in_its_rack(racks: str) -> None:
    """aiokafka, whose assignor gets the rack as a setting, fetches from broker 2 although broker 1 leads."""
    name = topic(racks, [1, 2])

    async def preferred() -> int:
        strategy = aiokafka.EagerTrimtabAssignor.with_settings("rack-aware", rack="b")
        consumer = AIOKafkaConsumer(
            name,
            bootstrap_servers=racks,
            group_id=name,
            auto_offset_reset="earliest",
            client_rack="b",
            partition_assignment_strategy=(strategy,),
        )
        await consumer.start()
        try:
            for _ in range(POLLS):
                await consumer.getmany(timeout_ms=int(TIMEOUT * 1000))
                cached: dict[Any, Any] = consumer._fetcher._preferred_read_replica
                if cached:
                    return int(next(iter(cached.values()))[0])
        finally:
            await consumer.stop()
        return 1

    assert asyncio.run(preferred()) == 2


def test_commands_show_cross_rack_traffic(racks: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`plan`, `top` and `doctor` report one of two partitions without a replica in the consumer's rack."""
    name = topic(racks, [1, 2], [3, 2])
    config = {
        "bootstrap.servers": racks,
        "group.id": name,
        "client.rack": "a",
        "trimtab.instance": "reader",
        "trimtab.heuristic": "rack-aware",
        "auto.offset.reset": "earliest",
    }
    options = ("--bootstrap", racks, "--group", name)
    stranded = f"no member is in a rack with a replica of {name}-1"
    with Consumer(config) as consumer:
        consumer.subscribe([name])
        for _ in range(POLLS):
            consumer.consume(10, timeout=TIMEOUT)
            if len(consumer.assignment()) == 2:
                break
        measured = ("--capacity", "1 MB/s", "--format", "json")
        assert main(["plan", *options, *measured, "--seconds", "1"]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert plan["notes"] == ["replicas are in b, c, but no member is", stranded]
        assert main(["top", *options, *measured, "--once", "--window", "1"]) == 0
        shown = json.loads(capsys.readouterr().out)["cross_rack_traffic"]
        assert (shown["partitions"], shown["without_local_replica"], shown["racks_without_members"]) == (
            1,
            1,
            ["b", "c"],
        )
        main(["doctor", *options, "--topics", name])  # fails, since no sidecar runs
        output = capsys.readouterr().out
        assert "partitions read from other racks: 1" in output
        assert "every broker has a replica.selector.class" in output
