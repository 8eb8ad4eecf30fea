"""The renewal thread of the lease, step by step: a hanging loop and unexpected errors."""

import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

import pytest

from support.ticking import Ticking
from trimtab.sidecar.leadership.leader_election import LEASE_DURATION_S
from trimtab.sidecar.targets.kubernetes.api_client import KubernetesApi
from trimtab.sidecar.targets.kubernetes.lease_lock import LeaseElection

PATIENCE = 40.0


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class Server:
    """Keeps one lease; fails as a test says."""

    def __init__(self) -> None:
        self.body: dict[str, Any] | None = None
        self.fails: Exception | None = None
        self.calls = 0

    def read_lease(self, _: str) -> dict[str, Any] | None:
        self.calls += 1
        if self.fails is not None:
            raise self.fails
        return self.body

    def create_lease(self, body: dict[str, Any]) -> dict[str, Any]:
        return self._kept(body, 1)

    def replace_lease(self, _: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._kept(body, int(body["metadata"]["resourceVersion"]) + 1)

    @property
    def holder(self) -> str | None:
        return None if self.body is None else self.body["spec"]["holderIdentity"]

    def _kept(self, body: dict[str, Any], version: int) -> dict[str, Any]:
        metadata = {**body["metadata"], "resourceVersion": str(version)}
        self.body = {**body, "metadata": metadata}
        return self.body


def election(server: Server, me: str, clock: Ticking) -> LeaseElection:
    return LeaseElection(cast("KubernetesApi", server), "lease", me, clock, PATIENCE)


def test_a_hanging_loop_loses_its_lease() -> None:
    """It is released, not acquired again, and acquired once the loop runs and it is free."""
    server, clock = Server(), Ticking()
    one, two = election(server, "one", clock), election(server, "two", clock)
    one._acquire_or_renew()
    assert (one.is_leader(), server.holder) == (True, "one")
    for _ in range(20):  # it renews while the loop asks, and for as long as a slow turn may take
        clock.now += PATIENCE / 20
        one._acquire_or_renew()
    assert server.holder == "one"
    clock.now += 1
    one._acquire_or_renew()
    one._acquire_or_renew()
    assert server.holder is None
    two._acquire_or_renew()
    assert server.holder is None  # two hangs as well
    assert not two.is_leader()
    two._acquire_or_renew()
    assert (two.is_leader(), server.holder) == (True, "two")
    assert not one.is_leader()
    one._acquire_or_renew()
    clock.now += LEASE_DURATION_S
    one._acquire_or_renew()
    assert (one.is_leader(), server.holder) == (True, "one")


def test_an_unexpected_error_does_not_end_the_election(
    eventually: Eventually, caplog: pytest.LogCaptureFixture
) -> None:
    """It costs the lead at once, is logged once with its traceback, and the thread retries."""
    server, clock = Server(), Ticking()
    one = election(server, "one", clock)
    one._acquire_or_renew()
    assert one.is_leader()
    server.fails = KeyError("metadata")
    with caplog.at_level(logging.ERROR):
        one.start()
        try:
            eventually(lambda: server.calls >= 3)
            assert not one.is_leader()
            server.fails = None
            eventually(one.is_leader)
        finally:
            one.close()
    (logged,) = [record for record in caplog.records if "unexpected" in record.message]
    assert logged.exc_info is not None
