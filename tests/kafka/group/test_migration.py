"""A group changes to the new protocol (KIP-848) and back, one member at a time, under load."""

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from support.steady import Background
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import Consumer, GroupMembershipError

pytestmark = pytest.mark.broker

PARTITIONS = 6
CLASSIC: dict[str, Any] = {}
READY = {"partition.assignment.strategy": "cooperative-sticky,trimtab"}
NEW = {"group.protocol": "consumer"}


class Load(Background):
    """Writes a record to each partition every ten milliseconds."""

    written = 0  # to each partition

    def _run(self) -> None:
        while not self._stop.wait(0.01):
            for number in range(PARTITIONS):
                self._producer.produce(self._topic, b"x", partition=number)
            self._producer.poll(0)
            self.written += 1


@pytest.fixture
def config(config: dict[str, Any], use_protocol: Any) -> dict[str, Any]:
    """Settings that both protocols take; a busy machine ends no session."""
    chosen: dict[str, Any] = use_protocol({**config, "session.timeout.ms": 30_000}, "consumer")
    return {name: value for name, value in chosen.items() if name not in NEW}


@pytest.fixture
def load(bootstrap: str, topic: Callable[..., str]) -> Iterator[Load]:
    """A topic that is written to until the test ends."""
    load = Load(bootstrap, topic(partitions=PARTITIONS))
    yield load
    load.stop()


def test_a_group_changes_its_protocol_and_back_without_a_loss(
    load: Load, start: Any, log: Any, eventually: Callable[..., None]
) -> None:
    """Every record is read once, and no partition has two owners at a time."""
    name = load._topic
    members = [start(f"m{n}", [name]) for n in range(3)]
    eventually(lambda: [len(m.owned) for m in members] == [2, 2, 2])
    for settings in (READY, NEW, READY, CLASSIC):
        for number, member in enumerate(members):
            member.stop()
            members[number] = start(member.name, [name], **settings)
            # Only then has nobody a partition to release: docs/any-client.md, "Limits".
            eventually(lambda: [len(m.owned) for m in members] == [2, 2, 2])
    load.stop()
    expected = {TopicPartition(name, p): list(range(load.written)) for p in range(PARTITIONS)}
    eventually(lambda: sum(map(len, log.offsets().values())) >= PARTITIONS * load.written)
    assert {p: sorted(offsets) for p, offsets in log.offsets().items()} == expected


def test_a_member_that_comes_too_early_is_told_what_blocks_it(
    load: Load, config: dict[str, Any], start: Any, log: Any, eventually: Callable[..., None]
) -> None:
    """The assignments of `trimtab` have user data; the group goes on without the member."""
    name = load._topic
    member = start("classic", [name])
    eventually(lambda: len(member.owned) == PARTITIONS)
    with closing(Consumer({**config, **NEW})) as early:
        early.subscribe([name])
        with pytest.raises(GroupMembershipError, match=r"GROUP_ID_NOT_FOUND.*trimtab doctor"):
            early.consume(1, timeout=20)
    before = len(log.records)
    eventually(lambda: len(log.records) > before)
    assert len(member.owned) == PARTITIONS
