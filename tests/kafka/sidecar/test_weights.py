"""A sidecar that weighs partitions by a query, on a real broker."""

import signal
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest
import yaml

from support.prometheus_server import PrometheusServer, serve_prometheus
from support.sidecar_bench import CAPACITY, PARTITIONS, SidecarBench

pytestmark = pytest.mark.broker


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture
def prometheus() -> Iterator[PrometheusServer]:
    with serve_prometheus() as server:
        yield server


def tell_weights(bench: SidecarBench, prometheus: PrometheusServer, *weights: float) -> None:
    topic = bench.settings["topics"]
    prometheus.tell(
        *(({"topic": topic, "partition": str(n)}, str(weight)) for n, weight in enumerate(weights))
    )


def test_replicas_and_placement_follow_the_weights_told(
    bench: SidecarBench, prometheus: PrometheusServer, eventually: Eventually
) -> None:
    """Nothing is written, but one partition weighs as much as the seven others; it is placed alone.

    While Prometheus fails nothing is scaled down, and the log names it.
    """
    bench.settings |= {
        "weight-source": "prometheus",
        "weight-query": "costs",
        "prometheus-url": prometheus.url,
    }
    bench.config.write_text(yaml.safe_dump(bench.settings))
    light = 0.8 * CAPACITY / (PARTITIONS - 1)
    tell_weights(bench, prometheus, 0.8 * CAPACITY, *[light] * (PARTITIONS - 1))
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) == 2 and bench.is_settled(), 90)
    members = bench.monitor.describe_group().members
    assert sorted(len(member.owned_partitions) for member in members) == [1, PARTITIONS - 1]
    prometheus.status, answer = 503, prometheus.body
    eventually(lambda: "weights: " in bench.log.read_text(), 30)
    holds = bench.count_holds()
    eventually(lambda: bench.count_holds() > holds + 3, 30)
    assert bench.plan().replicas == 2
    prometheus.status, prometheus.body = 200, answer
    tell_weights(bench, prometheus, *[light / 4] * PARTITIONS)
    eventually(lambda: bench.plan().replicas == 1 and bench.is_settled(), 90)
    assert bench.stop(signal.SIGTERM) == 0
