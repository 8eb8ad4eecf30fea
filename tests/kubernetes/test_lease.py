"""Leader election of sidecars by a lease on a real API server."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Protocol

import pytest
from kubernetes import client

from cluster.control_plane import ControlPlane
from cluster.workloads import NAMESPACE
from trimtab.common.clock import SystemClock
from trimtab.sidecar.leadership.leader_election import LEASE_DURATION_S, LEASE_RENEW_DEADLINE_S
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi, ScaleTargetRef
from trimtab.sidecar.targets.kubernetes.lease_lock import LeaseElection
from trimtab.sidecar.targets.kubernetes.workload import WorkloadKind

pytestmark = pytest.mark.kubernetes


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Frozen(LeaseElection):
    """A candidate with a thread that can be stopped, as by a crash."""

    def crash(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def candidate(plane: ControlPlane) -> Iterator[Callable[..., Frozen]]:
    opened: list[tuple[KubernetesApi, Frozen]] = []

    def start(me: str, lease: str, patience: float = 60.0) -> Frozen:
        api = KubernetesApi(ScaleTargetRef(WorkloadKind.DEPLOYMENT, "any", NAMESPACE, plane.kubeconfig), 5.0)
        opened.append((api, Frozen(api, lease, me, SystemClock(), patience)))
        opened[-1][1].start()
        return opened[-1][1]

    yield start
    for api, one in opened:
        one.close()
        api.close()


def test_a_crashed_leader_is_replaced(candidate: Callable[..., Frozen], eventually: Eventually) -> None:
    """The second candidate leads within 20 s, and not before the first has stopped."""
    one = candidate("one", "crashed")
    eventually(one.is_leader)
    two = candidate("two", "crashed")
    eventually(lambda: two.get_leader() == "one")
    assert not two.is_leader()
    one.crash()
    begun = monotonic()
    eventually(lambda: not one.is_leader())
    assert monotonic() - begun <= LEASE_RENEW_DEADLINE_S + 1
    assert not two.is_leader()
    eventually(two.is_leader)
    assert LEASE_DURATION_S - 4 <= monotonic() - begun < 20.0


def test_a_hanging_leader_is_replaced(candidate: Callable[..., Frozen], eventually: Eventually) -> None:
    """The process stops renewing for a loop that makes no calls; the second candidate leads soon."""
    one = candidate("one", "hanging", patience=3.0)
    eventually(one.is_leader)
    two = candidate("two", "hanging")
    begun = monotonic()
    eventually(two.is_leader)  # the loop of `one` makes no calls any more
    assert 3.0 <= monotonic() - begun < 20.0
    assert not one.is_leader()


def test_a_leader_that_ends_is_replaced_at_once(
    candidate: Callable[..., Frozen], eventually: Eventually
) -> None:
    """It releases the lease."""
    one = candidate("one", "ended")
    eventually(one.is_leader)
    two = candidate("two", "ended")
    eventually(lambda: two.get_leader() == "one")
    begun = monotonic()
    one.close()
    eventually(two.is_leader)
    assert monotonic() - begun < LEASE_DURATION_S / 2


def test_without_an_api_server_there_is_no_leader(
    candidate: Callable[..., Frozen], plane: ControlPlane, eventually: Eventually
) -> None:
    """A leader that cannot renew stops; once the server is back, a candidate leads."""
    one = candidate("one", "away")
    eventually(one.is_leader)
    plane.stop_api()
    try:
        eventually(lambda: not one.is_leader(), LEASE_RENEW_DEADLINE_S + 5)
    finally:
        plane.start_api()
    eventually(one.is_leader)


def test_the_lease_shows_the_leader(
    candidate: Callable[..., Frozen], cluster: Any, eventually: Eventually
) -> None:
    """Holder, duration, times and transitions are as Kubernetes' own tools show them."""
    one = candidate("one", "shown")
    eventually(one.is_leader)
    spec = client.CoordinationV1Api(cluster.client).read_namespaced_lease("shown", NAMESPACE).spec
    assert (spec.holder_identity, spec.lease_duration_seconds) == ("one", int(LEASE_DURATION_S))
    assert spec.lease_transitions == 1
    assert spec.renew_time >= spec.acquire_time
