"""One of several sidecars leads, by a lease on a real API server."""

from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any, Protocol

import pytest
from kubernetes import client

from cluster.control_plane import ControlPlane
from cluster.workloads import NAMESPACE
from trimtab.common.clock import SystemClock
from trimtab.sidecar.leadership.leader_election import ACTS, LEASE
from trimtab.sidecar.targets.kubernetes.api_client import KubeApi, Place
from trimtab.sidecar.targets.kubernetes.lease_lock import Election
from trimtab.sidecar.targets.kubernetes.workload import Kind

pytestmark = [pytest.mark.kubernetes, pytest.mark.timeout(120)]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Frozen(Election):
    """A candidate whose thread can be stopped where it stands, as by a crash."""

    def crash(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.fixture
def candidate(plane: ControlPlane) -> Iterator[Callable[..., Frozen]]:
    opened: list[tuple[KubeApi, Frozen]] = []

    def start(me: str, lease: str, patience: float = 60.0) -> Frozen:
        api = KubeApi(Place(Kind.DEPLOYMENT, "any", NAMESPACE, plane.kubeconfig), 5.0)
        opened.append((api, Frozen(api, lease, me, SystemClock(), patience)))
        opened[-1][1].start()
        return opened[-1][1]

    yield start
    for api, one in opened:
        one.close()
        api.close()


def test_a_crashed_leader_is_followed(
    candidate: Callable[..., Frozen], eventually: Eventually
) -> None:
    """The second one leads within 20 s, and not before the first one has stopped."""
    one = candidate("one", "crashed")
    eventually(one.leads)
    two = candidate("two", "crashed")
    eventually(lambda: two.leader() == "one")
    assert not two.leads()
    one.crash()
    begun = monotonic()
    eventually(lambda: not one.leads())
    assert monotonic() - begun <= ACTS + 1
    assert not two.leads()
    eventually(two.leads)
    assert LEASE - 4 <= monotonic() - begun < 20.0


def test_a_leader_that_hangs_is_followed(
    candidate: Callable[..., Frozen], eventually: Eventually
) -> None:
    """Its process renews no lease for a loop that asks for nothing; the second one leads soon."""
    one = candidate("one", "hanging", patience=3.0)
    eventually(one.leads)
    two = candidate("two", "hanging")
    begun = monotonic()
    eventually(two.leads)  # one is not asked any more
    assert 3.0 <= monotonic() - begun < 20.0
    assert not one.leads()


def test_a_leader_that_ends_is_followed_at_once(
    candidate: Callable[..., Frozen], eventually: Eventually
) -> None:
    """It gives the lease up."""
    one = candidate("one", "ended")
    eventually(one.leads)
    two = candidate("two", "ended")
    eventually(lambda: two.leader() == "one")
    begun = monotonic()
    one.close()
    eventually(two.leads)
    assert monotonic() - begun < LEASE / 2


def test_without_a_server_nobody_leads(
    candidate: Callable[..., Frozen], plane: ControlPlane, eventually: Eventually
) -> None:
    """A leader that cannot renew stops; when the server is back, it, or another one, leads."""
    one = candidate("one", "away")
    eventually(one.leads)
    plane.stop_api()
    try:
        eventually(lambda: not one.leads(), ACTS + 5)
    finally:
        plane.start_api()
    eventually(one.leads)


def test_the_lease_tells_people_who_leads(
    candidate: Callable[..., Frozen], cluster: Any, eventually: Eventually
) -> None:
    """Holder, length, times and the number of changes are as Kubernetes' own tools show them."""
    one = candidate("one", "shown")
    eventually(one.leads)
    spec = client.CoordinationV1Api(cluster.client).read_namespaced_lease("shown", NAMESPACE).spec
    assert (spec.holder_identity, spec.lease_duration_seconds) == ("one", int(LEASE))
    assert spec.lease_transitions == 1
    assert spec.renew_time >= spec.acquire_time
