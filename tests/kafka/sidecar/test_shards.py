"""Sidecars that divide the groups among them, on a real broker."""

import json
import signal
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from support.many_groups import ManyGroupsSidecar
from trimtab.common.clock import SystemClock
from trimtab.sidecar.diagnostics.doctor.shard_checks import run_shard_checks
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.kafka.shard_membership import SHARDS, ShardMembership
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

pytestmark = [pytest.mark.broker, pytest.mark.slow]

INTERVAL = 0.5
TAKEOVER_S = 5 * INTERVAL + 15  # as docs/sidecar.md states it
GROUPS = 12
Start = Callable[[], ManyGroupsSidecar]


@pytest.fixture
def common(bootstrap: str, group: str) -> dict[str, Any]:
    """The settings that all groups of a test share."""
    return {
        "bootstrap": bootstrap,
        "capacity": "1 MB/s",
        "interval": f"{INTERVAL} s",
        "window": "2 s",
        "timeout": "3 s",
        **{f"{name}-topic": f"{group}.{name}" for name in ("plan", "write-rate", "decision")},
    }


@pytest.fixture
def names(group: str) -> list[str]:
    return [f"{group}-{n}" for n in range(GROUPS)]


@pytest.fixture
def start(
    tmp_path: Path, common: dict[str, Any], names: list[str], topic: Any, group: str
) -> Iterator[Start]:
    """Start sidecars with the same file; all are killed after the test."""
    running: list[ManyGroupsSidecar] = []
    read = topic(partitions=2)
    entries = [{"group": name, "topics": read} for name in names]
    body = {**common, "groups": entries, "shard-topic": f"{group}.shards"}

    def start() -> ManyGroupsSidecar:
        running.append(ManyGroupsSidecar(tmp_path / str(len(running)), body))
        return running[-1]

    yield start
    for sidecar in running:
        if sidecar.process.poll() is None:
            sidecar.process.send_signal(signal.SIGCONT)
        sidecar.close()


def list_managed(sidecar: ManyGroupsSidecar) -> set[str]:
    return {name for name, state in sidecar.states().items() if state == "managed"}


def divide_all(sidecars: list[ManyGroupsSidecar], names: list[str]) -> bool:
    """Return whether each group is managed by one of these sidecars, and each sidecar has some."""
    managed = [list_managed(sidecar) for sidecar in sidecars]
    return all(managed) and sorted(name for one in managed for name in one) == sorted(names)


def assert_one_author_after_the_other(common: dict[str, Any], names: list[str]) -> None:
    """No author of a group's decisions comes back after another one's, unless it took ownership again."""
    admin = AdminClient({"bootstrap.servers": common["bootstrap"]})
    for name in names:
        records = ControlTopicStore(
            load_settings(None, {**common, "group": name}), admin
        ).read_new_decisions()
        authors = [(r.author.ownership_term, r.author.id) for r in records if r.author is not None]
        turns = [author for author, _ in groupby(authors)]
        assert turns == sorted(set(turns)), name
        assert len({term for term, _ in turns}) == len(turns), name


def test_each_group_has_one_sidecar_through_joins_deaths_and_pauses(
    start: Start, common: dict[str, Any], names: list[str], eventually: Any
) -> None:
    """A second sidecar gets a share, a dead or frozen one's groups are taken over; none ever has two."""
    first = start()
    eventually(lambda: list_managed(first) == set(names), 40)
    second = start()
    eventually(lambda: divide_all([first, second], names), 40)
    shown = json.loads(first.get("/groups"))
    assert shown["shards"] == {"owned": SHARDS // 2, "count": SHARDS, "error": ""}
    assert set(shown["elsewhere"]) == list_managed(second)

    first.process.send_signal(signal.SIGSTOP)
    eventually(lambda: list_managed(second) == set(names), TAKEOVER_S)
    first.process.send_signal(signal.SIGCONT)
    eventually(lambda: divide_all([first, second], names), 40)

    second.stop(signal.SIGKILL)
    eventually(lambda: list_managed(first) == set(names), TAKEOVER_S)
    third = start()
    eventually(lambda: divide_all([first, third], names), 40)
    third.stop(signal.SIGTERM)  # leaves at once: nobody waits for its silence
    eventually(lambda: list_managed(first) == set(names), 5)
    assert_one_author_after_the_other(common, names)


@pytest.fixture
def member_settings(common: dict[str, Any], group: str) -> SidecarSettings:
    return load_settings(None, {**common, "group": group})


class Members:
    """Memberships in one topic, each asked by hand as rounds would."""

    def __init__(self, settings: SidecarSettings, topic: str) -> None:
        self._settings, self._topic = settings, topic
        self.admin = AdminClient({"bootstrap.servers": settings.bootstrap})
        self.members: list[ShardMembership] = []

    def join(self, hang_timeout: float = 60.0) -> ShardMembership:
        member = ShardMembership(self._settings, self.admin, self._topic, SystemClock(), hang_timeout)
        member.start()
        self.members.append(member)
        return member

    def has_all(self, *members: ShardMembership) -> bool:
        """Return whether these have all shards, each some, and none twice."""
        owned = [member.begin_round().numbers for member in members]
        return all(owned) and sorted(n for numbers in owned for n in numbers) == list(range(SHARDS))

    def examine(self) -> str:
        """Return the doctor's first finding."""
        return run_shard_checks(self._settings, self._topic, SystemClock())[0].message


@pytest.fixture
def members(member_settings: SidecarSettings, group: str) -> Iterator[Members]:
    made = Members(member_settings, f"{group}.shards")
    yield made
    for member in made.members:
        member.close()


def test_a_sidecar_whose_rounds_hang_loses_its_shards(members: Members, eventually: Any) -> None:
    """The process lives and its thread runs, but no round asks: the other has all shards, until one asks."""
    hanging, other = members.join(hang_timeout=2.0), members.join()
    eventually(lambda: members.has_all(hanging, other))
    eventually(lambda: members.has_all(other), 40)
    eventually(lambda: members.has_all(hanging, other), 40)
    assert not hanging.get_error()


def test_a_sidecar_that_leaves_gives_its_shards_up_at_once(members: Members, eventually: Any) -> None:
    """Its session does not have to expire; the doctor counts who is left."""
    assert members.examine() == "missing; the first sidecar creates it"
    leaving, other = members.join(), members.join()
    eventually(lambda: members.has_all(leaving, other))
    eventually(lambda: members.examine().startswith("2 sidecars have all 60 shards; group "))
    leaving.close()
    assert not leaving.begin_round().numbers
    eventually(lambda: members.has_all(other), 3)
    other.close()
    eventually(lambda: members.examine() == "no sidecar is a member of its group")
