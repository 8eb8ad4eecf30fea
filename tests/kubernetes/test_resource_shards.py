"""Sidecars that divide the groups of resources among them, on a real API server."""

import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from cluster import scaler_resources
from cluster.scaler_resources import ScalerResourceClient
from support.many_groups import ManyGroupsSidecar

pytestmark = [pytest.mark.kubernetes, pytest.mark.broker]

NAMES = [f"orders-{n}" for n in range(8)]
TAKEOVER_S = 60.0  # its session's end, and 5 intervals; on a busy machine
Start = Callable[[], ManyGroupsSidecar]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


@pytest.fixture
def start(sidecar: scaler_resources.ManyGroupsSidecar, tmp_path: Path) -> Iterator[Start]:
    """Start sidecar processes with the same file; all are killed after the test."""
    running: list[ManyGroupsSidecar] = []
    body = {**sidecar.given, "shard-topic": f"{sidecar.group}.shards"}

    def start() -> ManyGroupsSidecar:
        running.append(ManyGroupsSidecar(tmp_path / str(len(running)), body))
        return running[-1]

    yield start
    for one in running:
        one.close()


def list_elsewhere(sidecar: ManyGroupsSidecar) -> set[str]:
    text = sidecar.get("/groups")
    return set(json.loads(text)["elsewhere"]) if text else set()


def test_each_resource_has_the_status_of_its_shards_sidecar(
    scalers: ScalerResourceClient,
    sidecar: scaler_resources.ManyGroupsSidecar,
    start: Start,
    eventually: Eventually,
) -> None:
    """Two sidecars write the status of all resources, each its own; the other replaces one that dies."""
    groups = {name: f"{sidecar.group}-{name}" for name in NAMES}
    first, second = start(), start()
    for name, group in groups.items():
        scalers.apply(name, group=group, capacity="1 MB/s")
    scalers.apply("bad", group=f"{sidecar.group}-bad", capacity="1 MB/s", heuristic="no-such")

    def are_divided() -> bool:
        owned = [set(one.states()) & set(groups.values()) for one in (first, second)]
        return all(owned) and not owned[0] & owned[1] and owned[0] | owned[1] == set(groups.values())

    def are_all(reason: str, generation: int) -> bool:
        status = {name: scalers.status(name) for name in NAMES}
        is_current = all(one.get("observedGeneration") == generation for one in status.values())
        return is_current and {scalers.reason(name) for name in NAMES} == {reason}

    eventually(are_divided, TAKEOVER_S)
    eventually(lambda: are_all("AdviceOnly", 1), TAKEOVER_S)
    eventually(lambda: scalers.reason("bad") == "InvalidSettings")
    eventually(lambda: "InvalidSettings" in dict(scalers.events("bad")))
    assert [reason for reason, _ in scalers.events("bad")] == ["InvalidSettings"]  # of one sidecar

    second.stop(signal.SIGKILL)
    eventually(lambda: set(first.states()) >= set(groups.values()), TAKEOVER_S)
    assert not list_elsewhere(first) & set(groups.values())
    for name in NAMES:
        scalers.patch(name, capacity="2 MB/s")
    eventually(lambda: are_all("AdviceOnly", 2), TAKEOVER_S)
