"""Members of the version before plans carried a target meet a plan with one, in both roles.

The older version is no stand-in: its own modules run in a process, from the archive beside this file. It was
made by `git archive --format=zip --prefix=trimtab/ d7a9085 FILES`, with the files that a leader imports.
"""

import json
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.record_parts import split_value

HERE = Path(__file__).parent
ARCHIVE = HERE / "trimtab-d7a9085.zip"
PROGRAM = HERE / "plugin_group.py"
TOPIC = "orders"
GROUP = "g"
CAPACITY = 100.0
HEADROOM = 0.9
RATES = (40.0, 35.0, 30.0, 25.0, 20.0, 15.0, 10.0, 5.0)


class VersionProcess:
    """Members of one version, in a process of their own."""

    def __init__(self, members: tuple[str, ...], *, older: bool) -> None:
        launcher = [HERE / "run_archived.py", ARCHIVE] if older else []
        self.members = members
        self._process = subprocess.Popen(
            [sys.executable, *launcher, PROGRAM, *members],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, method: str, *arguments: object) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([method, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)
        assert self._process.returncode == 0


class MixedGroup:
    """A group of members of both versions; every partition has at most one owner, or the test fails."""

    def __init__(self, older: VersionProcess, today: VersionProcess) -> None:
        self.versions = (older, today)
        self.owners: dict[int, str] = {}
        self.awaits_round = False
        self._generation = 0

    def publish(self, plan: GroupPlan) -> list[Any]:
        records = [b64encode(value).decode() for _, value in split_value(GROUP, plan.key, plan.encode())]
        return [version.ask("read", GROUP, records, RATES) for version in self.versions]

    def run_round(self, leader: str) -> None:
        subscriptions: dict[str, str] = {}
        for version in self.versions:
            subscriptions |= version.ask("join")
        (leading,) = (version for version in self.versions if leader in version.members)
        assigned = leading.ask("lead", leader, subscriptions)
        self._generation += 1
        before, self.owners = self.owners, {}
        for version in self.versions:
            for name, taken in version.ask("take", self._generation, assigned).items():
                assert not taken["fault"]
                self.awaits_round = taken["awaits_round"]
                for partition in taken["owned"]:
                    assert self.owners.setdefault(partition, name) == name
                    assert before.get(partition, name) == name, "its owner has not yet released it"

    def sum_loads(self) -> dict[str, float]:
        loads = {name: 0.0 for version in self.versions for name in version.members}
        for partition, owner in self.owners.items():
            loads[owner] += RATES[partition]
        return loads


@pytest.fixture(scope="module")
def versions() -> Iterator[tuple[VersionProcess, VersionProcess]]:
    """Two members of each version."""
    with ExitStack() as stack:
        older = VersionProcess(("old-1", "old-2"), older=True)
        stack.callback(older.close)
        today = VersionProcess(("new-1", "new-2"), older=False)
        stack.callback(today.close)
        yield older, today


@pytest.fixture
def group(versions: tuple[VersionProcess, VersionProcess]) -> MixedGroup:
    """Two new members of each version."""
    for version in versions:
        version.ask("start_anew")
    return MixedGroup(*versions)


def build_plan(epoch: int, numbers: tuple[int, ...], draining: tuple[str, ...] = ()) -> GroupPlan:
    """Return a plan with a target: number n stands for the n-th of the sorted members."""
    names = ("new-1", "new-2", "old-1", "old-2")
    target = PlanTarget(epoch, names, 0, {TOPIC: numbers})
    replicas = len(names) - len(draining)
    return GroupPlan(GROUP, epoch, 1.0, replicas, "mwf", CAPACITY, HEADROOM, draining=draining, target=target)


def list_targets(plan: GroupPlan) -> dict[int, str]:
    assert plan.target is not None
    numbers = plan.target.partitions[TOPIC]
    return {partition: plan.target.consumers[number - 1] for partition, number in enumerate(numbers)}


FIRST = build_plan(1, (1, 2, 3, 4, 1, 2, 3, 4))
SECOND = build_plan(2, (2, 1, 4, 3, 1, 2, 3, 4))


def test_the_archive_is_of_the_version_before_the_target() -> None:
    """It has the leader, and neither the target's module nor one of this version's."""
    names = set(ZipFile(ARCHIVE).namelist())
    assert "trimtab/assignor/rebalance/leader.py" in names
    assert not any("plan_target" in name or "placement_repair" in name for name in names)


def test_an_older_leader_reads_the_plan_and_decides_by_it(group: MixedGroup) -> None:
    """It knows no target; it places by the plan's heuristic, capacity, headroom and draining members."""
    older, today = group.publish(build_plan(1, (1, 1, 1, 2, 2, 2, 3, 3), draining=("old-2",)))
    assert ARCHIVE.name in older["module"]
    assert "target" not in older["fields"]
    assert ARCHIVE.name not in today["module"]
    assert "target" in today["fields"]
    assert older["plan"] == today["plan"] == [1, 3, ["old-2"]]
    group.run_round("old-1")
    loads = group.sum_loads()
    assert set(group.owners) == set(range(len(RATES)))
    assert loads["old-2"] == 0
    assert max(loads.values()) <= HEADROOM * CAPACITY


def test_members_of_the_older_version_follow_a_leader_that_carries_out_the_target(group: MixedGroup) -> None:
    """In two rounds where partitions move: first their owners release them."""
    for plan in (FIRST, SECOND):
        group.publish(plan)
        group.run_round("new-1")
        if group.awaits_round:
            group.run_round("new-2")
        assert group.owners == list_targets(plan)
    assert not group.awaits_round


@pytest.mark.parametrize(("first", "second"), [("old-1", "new-1"), ("new-1", "old-1")])
def test_the_leader_changes_its_version_between_the_rounds(
    group: MixedGroup, first: str, second: str
) -> None:
    """Whoever completes the decision: each partition is read, by one member, within the headroom."""
    group.publish(FIRST)
    group.run_round("new-1")
    group.publish(SECOND)
    group.run_round(first)
    for _ in range(3):
        group.run_round(second)
    assert not group.awaits_round
    assert set(group.owners) == set(range(len(RATES)))
    assert max(group.sum_loads().values()) <= HEADROOM * CAPACITY
    if second == "new-1":
        assert group.owners == list_targets(SECOND)


def test_an_older_member_reads_a_plan_of_100000_partitions_in_parts(group: MixedGroup) -> None:
    """All of it but the target."""
    names = tuple(f"consumer-{number:04d}" for number in range(1_000))
    numbers = tuple((7 * number) % 1_000 + 1 for number in range(100_000))
    target = PlanTarget(3, names, 0, {f"{TOPIC}-{n}": numbers for n in range(3)})
    plan = GroupPlan(GROUP, 3, 1.0, 1_000, "mwf", CAPACITY, HEADROOM, target=target)
    assert len(plan.encode()) > 900_000
    older, today = group.publish(plan)
    assert older["plan"] == today["plan"] == [3, 1_000, []]
