"""What a plan's target says is what a sidecar's workers do, on a real broker."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any

import pytest

from support.sidecar_bench import CAPACITY, PARTITIONS, SidecarBench
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan

pytestmark = pytest.mark.broker

FOLLOWED_WITHIN_S = 30.0  # a plan by the group; a busy machine has taken more than 8 s


class PlacementWatch:
    """Compares the placements of a group with its plan's target."""

    def __init__(self, bench: SidecarBench) -> None:
        self.carried_out: set[tuple[int, int]] = set()  # epoch and revision
        self.wrong: list[Placement] = []
        self._bench = bench
        self._last: Placement | None = None
        self._since = monotonic()

    def sees_target(self) -> bool:
        """Return whether the planned workers own what the target gives them; keep what differs for long."""
        placement = self._read_placement()
        if placement != self._last:
            self._last, self._since = placement, monotonic()
        if placement is None:
            return False
        is_target = placement.equals_target()
        if is_target:
            self.carried_out.add((placement.plan.epoch, placement.plan.target.revision))
        elif monotonic() - self._since > FOLLOWED_WITHIN_S and placement not in self.wrong:
            self.wrong.append(placement)
        return is_target

    def _read_placement(self) -> "Placement | None":
        """Return the placement of a settled group, None while it changes."""
        if not self._bench.state.exists() or not self._bench.pids() or not self._bench.is_settled():
            return None
        plan = self._bench.plan()
        group = self._bench.monitor.describe_group()
        return Placement(plan, {m.instance: frozenset(m.owned_partitions) for m in group.members})


@dataclass(frozen=True)
class Placement:
    """Partitions by instance under a plan."""

    plan: GroupPlan
    owned: Mapping[str, frozenset[TopicPartition]]

    def equals_target(self) -> bool:
        """Return whether named consumers own their shares, and one other member each of the other shares."""
        target = self.plan.target
        if target is None:
            return False
        shares = [
            frozenset(
                TopicPartition(topic, partition)
                for topic, numbers in target.partitions.items()
                for partition, number in enumerate(numbers)
                if number == consumer
            )
            for consumer in range(1, target.size + 1)
        ]
        named = {n: share for n, share in zip(target.consumers, shares, strict=False) if n in self.owned}
        others = [owned for name, owned in self.owned.items() if owned and name not in named]
        left = [share for share in shares if share and share not in named.values()]
        return named.items() <= self.owned.items() and set(others) == set(left)


def test_every_placement_is_its_plans_target(bench: SidecarBench, eventually: Any) -> None:
    """Scale-up, a killed worker, restarts of the sidecar and of its workers, scale-down by drains."""
    watch = PlacementWatch(bench)
    bench.flow.order = tuple(n for n in range(PARTITIONS) for _ in range(n + 1))  # unequal loads
    bench.flow.rate = 2.4 * CAPACITY
    bench.start()
    eventually(lambda: watch.sees_target() and len(bench.pids()) >= 3, 120)
    os.kill(next(iter(bench.pids().values())), signal.SIGKILL)
    before = bench.pids()
    eventually(lambda: bench.pids() != before and watch.sees_target(), 60)
    bench.stop(signal.SIGKILL)
    bench.start()
    eventually(lambda: bench.log.read_text().count("is in force") == 1 and watch.sees_target(), 60)
    workers = set(bench.pids().values())
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "restart", "--state-dir", str(bench.state)]
    subprocess.run(command, check=True, capture_output=True)
    eventually(lambda: watch.sees_target() and not workers & set(bench.pids().values()), 150)
    bench.flow.rate = 0.4 * CAPACITY
    eventually(lambda: watch.sees_target() and bench.plan().replicas == 1, 120)
    assert watch.wrong == []
    assert len(watch.carried_out) >= 3, watch.carried_out
