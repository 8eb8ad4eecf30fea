"""One of several sidecars leads, by a lease on a real API server."""

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

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(120)]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Frozen(LeaseElection):
    """A candidate whose thread can be stopped where it stands, as by a crash."""

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


def test_a_crashed_leader_is_followed(candidate: Callable[..., Frozen], eventually: Eventually) -> None:
    """The second one leads within 20 s, and not before the first one has stopped."""
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


def test_a_leader_that_hangs_is_followed(candidate: Callable[..., Frozen], eventually: Eventually) -> None:
    """Its process renews no lease for a loop that asks for nothing; the second one leads soon."""
    one = candidate("one", "hanging", patience=3.0)
    eventually(one.is_leader)
    two = candidate("two", "hanging")
    begun = monotonic()
    eventually(two.is_leader)  # one is not asked any more
    assert 3.0 <= monotonic() - begun < 20.0
    assert not one.is_leader()


def test_a_leader_that_ends_is_followed_at_once(
    candidate: Callable[..., Frozen], eventually: Eventually
) -> None:
    """It gives the lease up."""
    one = candidate("one", "ended")
    eventually(one.is_leader)
    two = candidate("two", "ended")
    eventually(lambda: two.get_leader() == "one")
    begun = monotonic()
    one.close()
    eventually(two.is_leader)
    assert monotonic() - begun < LEASE_DURATION_S / 2


def test_without_a_server_nobody_leads(
    candidate: Callable[..., Frozen], plane: ControlPlane, eventually: Eventually
) -> None:
    """A leader that cannot renew stops; when the server is back, it, or another one, leads."""
    one = candidate("one", "away")
    eventually(one.is_leader)
    plane.stop_api()
    try:
        eventually(lambda: not one.is_leader(), LEASE_RENEW_DEADLINE_S + 5)
    finally:
        plane.start_api()
    eventually(one.is_leader)


def test_the_lease_tells_people_who_leads(
    candidate: Callable[..., Frozen], cluster: Any, eventually: Eventually
) -> None:
    """Holder, length, times and the number of changes are as Kubernetes' own tools show them."""
    one = candidate("one", "shown")
    eventually(one.is_leader)
    spec = client.CoordinationV1Api(cluster.client).read_namespaced_lease("shown", NAMESPACE).spec
    assert (spec.holder_identity, spec.lease_duration_seconds) == ("one", int(LEASE_DURATION_S))
    assert spec.lease_transitions == 1
    assert spec.renew_time >= spec.acquire_time
