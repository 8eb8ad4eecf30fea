"""Groups of the new protocol as a whole: scaled by a sidecar process, and with several brokers."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from support.sidecar_bench import CAPACITY, PARTITIONS, SidecarBench
from trimtab.assignor.model import TopicPartition
from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.kafka.brokers import connect_brokers
from trimtab.sidecar.pilot.pilot import PlanPilot
from trimtab.sidecar.settings.settings import load_settings

pytestmark = pytest.mark.broker

CLUSTER_PROPERTIES = {
    **ASSIGNOR_PROPERTIES,
    "offsets.topic.num.partitions": "6",
    "offsets.topic.replication.factor": "3",
}
WORKER = Path(__file__).parents[2] / "workers" / "new_protocol_worker.py"


@pytest.fixture
def bench(group: str, tmp_path: Path) -> Iterator[SidecarBench]:
    """A sidecar with workers of unmodified librdkafka, on a broker with the plugin."""
    with EmbeddedBroker(properties=dict(ASSIGNOR_PROPERTIES)) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(30)
        bench = SidecarBench(broker.bootstrap, group, "t", tmp_path, WORKER)
        yield bench
        bench.close()


def test_a_group_of_unmodified_clients_is_scaled(bench: SidecarBench, eventually: Any) -> None:
    """Workers are added, drained and stopped; none gets SIGTERM while it owns a partition."""
    bench.flow.rate = 2.4 * CAPACITY
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) >= 3, 60)
    eventually(bench.is_settled, 60)
    eventually(lambda: "the broker assigns as planned" in bench.page("/decisions"), 30)
    bench.flow.rate = 0.4 * CAPACITY
    eventually(lambda: bench.plan().replicas == 1 and bench.is_settled(), 90)
    owned_at_sigterm = re.findall(r"SIGTERM while owning (\d+)", bench.logs())
    assert owned_at_sigterm
    assert set(owned_at_sigterm) == {"0"}


class Cluster:
    """Three brokers with the plugin; the first is the only controller, so groups live on another."""

    def __init__(self, stack: ExitStack) -> None:
        first = stack.enter_context(EmbeddedBroker(properties=CLUSTER_PROPERTIES))
        peers = [first.create_peer({**CLUSTER_PROPERTIES, "node.id": str(node)}) for node in (2, 3)]
        self.brokers = {n: stack.enter_context(peer) for n, peer in enumerate(peers, 2)}
        self.bootstrap = ",".join(broker.bootstrap for broker in (first, *peers))
        self.admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def find_coordinator(self, group: str) -> int:
        # not by librdkafka: a group whose coordinator is not there yet never gets an answer
        settings = load_settings(None, {"bootstrap": self.bootstrap, "group": group, "capacity": 1})
        with closing(connect_brokers(settings, SystemClock())) as brokers:
            return brokers.retry(lambda: brokers.find_coordinator(group))

    def choose_group(self, prefix: str) -> str:
        """Return the name of a group whose coordinator may be killed."""
        names = (f"{prefix}-{number}" for number in count())
        return next(name for name in names if self.find_coordinator(name) in self.brokers)


@pytest.mark.slow
def test_a_pilot_follows_its_group_to_another_coordinator(group: str, eventually: Any) -> None:
    """The coordinator is killed: the group keeps its plan, and the pilot carries the next one."""
    with ExitStack() as stack:
        cluster = Cluster(stack)
        eventually(lambda: len(cluster.admin.list_topics(timeout=10).brokers) == 3)
        cluster.admin.create_topics([NewTopic("t", 4, 3)])["t"].result(30)
        name = cluster.choose_group(group)
        config = {"bootstrap.servers": cluster.bootstrap, "group.id": name, "group.protocol": "consumer"}
        consumers = {
            client: Consumer({**config, "client.id": client, "reconnect.backoff.max.ms": 500, "log_level": 0})
            for client in "ab"
        }
        for consumer in consumers.values():
            consumer.subscribe(["t"])
            stack.callback(consumer.close)

        def owners() -> dict[str, list[int]]:
            for consumer in consumers.values():
                consumer.poll(0.05)
            return {c: sorted(p.partition for p in consumers[c].assignment()) for c in consumers}

        given = {"bootstrap": cluster.bootstrap, "group": name, "topics": "t", "capacity": 1e6}
        pilot = PlanPilot(load_settings(None, given), SystemClock(), lambda: "trimtab")
        stack.callback(pilot.close)

        def is_owned(epoch: int, numbers: tuple[int, ...], **expected: list[int]) -> bool:
            target = PlanTarget(epoch, ("a", "b"), 0, {"t": numbers})
            status = pilot.carry_out(GroupPlan(name, epoch, 0.0, 2, "mbf", 1e6, target=target), {})
            return owners() == expected and status is not None and status.is_steering

        eventually(lambda: is_owned(1, (1, 1, 1, 2), a=[0, 1, 2], b=[3]), 60)
        killed = cluster.find_coordinator(name)
        os.kill(cluster.brokers[killed].pid, signal.SIGKILL)
        eventually(lambda: is_owned(2, (1, 1, 2, 2), a=[0, 1], b=[2, 3]), 120)
        assert cluster.find_coordinator(name) != killed


@pytest.fixture
def config(config: dict[str, Any]) -> dict[str, Any]:
    """Settings of both protocols: the broker has the heartbeat interval of the new one."""
    return {name: value for name, value in config.items() if name != "heartbeat.interval.ms"}


@pytest.mark.slow
def test_trimtabs_consumers_follow_their_group_to_another_coordinator(
    group: str, start: Any, log: Any, eventually: Any
) -> None:
    """The coordinator is killed: each record is read once, before and after."""
    with ExitStack() as stack:
        cluster = Cluster(stack)
        eventually(lambda: len(cluster.admin.list_topics(timeout=10).brokers) == 3)
        cluster.admin.create_topics([NewTopic("t", PARTITIONS, 3)])["t"].result(30)
        name = cluster.choose_group(group)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
        own = {"bootstrap_servers": cluster.bootstrap, "group_id": name, "group_protocol": "consumer"}
        workers = [start(client, ["t"], **own) for client in "ab"]
        eventually(lambda: sum(len(w.owned) for w in workers) == PARTITIONS and all(w.owned for w in workers))

        def write_and_read(total: int) -> None:
            for _ in range(100):
                for number in range(PARTITIONS):
                    producer.produce("t", b"x", partition=number)
            assert producer.flush(120) == 0
            eventually(lambda: sum(map(len, log.offsets().values())) >= total * PARTITIONS, 60)

        write_and_read(100)
        killed = cluster.find_coordinator(name)
        os.kill(cluster.brokers[killed].pid, signal.SIGKILL)
        write_and_read(200)
        expected = {TopicPartition("t", number): list(range(200)) for number in range(PARTITIONS)}
        assert {p: sorted(offsets) for p, offsets in log.offsets().items()} == expected
        assert cluster.find_coordinator(name) != killed
        for worker in workers:
            worker.stop()
