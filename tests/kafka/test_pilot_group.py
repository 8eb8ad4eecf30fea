"""Groups of the new protocol as a whole: scaled by a sidecar process, and with several brokers."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from sidecar_bench import CAPACITY, PARTITIONS, SidecarBench

from trimtab.cli.broker.broker_config import ASSIGNOR_PROPERTIES
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

pytestmark = pytest.mark.broker

WORKER = Path(__file__).parent / "new_protocol_worker.py"


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
