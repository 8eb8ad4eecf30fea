"""Promised partitions are read at their owner's last commit (`trimtab.start.at.release`)."""

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from trimtab.assignor.rebalance.leader import RebalanceRound
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.consumer_sdk.membership import release_watch
from trimtab.consumer_sdk.membership.classic import coordinator, group_commits, member
from trimtab.consumer_sdk.membership.classic.timed_assignor import TimedAssignor

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


def commit_positions(consumer: Any) -> list[Any]:
    """Commit the offsets of the next records, also unchanged ones; return the partitions."""
    offsets = [p for p in consumer.position(consumer.assignment()) if p.offset >= 0]
    return list(consumer.commit(offsets=offsets, asynchronous=False))


@pytest.fixture
def sole_reader(topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually) -> tuple[str, Any]:
    """Topic of four partitions, and the group's only consumer, which has read 400 records of it."""
    name = topic(partitions=4)
    feed.write(name, 4, 400)
    first = start("w0", [name])
    eventually(lambda: len(log.records) == 400)
    return name, first


def test_a_released_partition_waits_for_no_other_members_flush(
    topic: Any, start: Any, feed: Any, log: Any, control: Any, eventually: Eventually
) -> None:
    """Partitions of one member are read while another one has yet to give up its own, each record once."""
    name = topic(partitions=6)
    one, slow, two = (start(who, [name], **control.topics) for who in ("one", "slow", "two"))
    eventually(lambda: len(one.owned) == len(slow.owned) == len(two.owned) == 2)
    feed.write(name, 6, 600)
    eventually(lambda: len(log.records) == 600)
    owned_by_one, owned_by_slow = set(one.owned), set(slow.owned)
    slow.revocation_s = 30.0
    control.plan(1, replicas=1, draining=("one", "slow"))
    eventually(lambda: owned_by_one <= two.owned)
    assert slow.owned == owned_by_slow
    feed.write(name, 6, 600)
    eventually(lambda: {p for p, *_ in log.records[600:]} >= owned_by_one)
    assert slow.owned == owned_by_slow
    slow.may_release.set()
    eventually(lambda: len(two.owned) == 6)
    eventually(lambda: len(log.records) == 1200)
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())
    eventually(lambda: len(commit_positions(two.consumer)) == 6)
    restarted = start("three", [name], **control.topics)
    eventually(lambda: restarted.owned)
    feed.write(name, 6, 600)
    eventually(lambda: len(log.records) == 1800)
    assert all(sorted(offsets) == list(range(300)) for offsets in log.offsets().values())


@pytest.mark.usefixtures("patient_releases")
def test_a_move_has_one_round(  # noqa: PLR0913 - fixtures
    sole_reader: Any,
    start: Any,
    feed: Any,
    log: Any,
    admin: AdminClient,
    group: str,
    *,
    eventually: Eventually,
) -> None:
    """The next owner reads and commits in the generation that took the partition from the former one."""
    name, first = sole_reader
    before = first.consumer.generation_id()
    second = start("w1", [name])
    eventually(lambda: len(second.owned) == len(first.owned) == 2)
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 800)
    eventually(lambda: len(commit_positions(second.consumer)) == 2)
    described = admin.describe_consumer_groups([group])[group].result(30).members
    shown = {(p.topic, p.partition) for m in described for p in m.assignment.topic_partitions}
    assert shown == {(name, number) for number in range(4)}
    assert first.consumer.generation_id() == second.consumer.generation_id() == before + 1
    third = start("w2", [name])  # its round follows any second one
    eventually(lambda: third.owned and len(first.owned) + len(second.owned) == 3)
    assert first.consumer.generation_id() == third.consumer.generation_id() == before + 2
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 1200)
    assert all(sorted(offsets) == list(range(300)) for offsets in log.offsets().values())


@pytest.mark.usefixtures("patient_releases")
def test_a_new_placement_has_one_round(
    topic: Any, start: Any, feed: Any, log: Any, control: Any, *, eventually: Eventually
) -> None:
    """Two consumers that exchange partitions give and begin in the same generation, each record once."""
    name = topic(partitions=4)
    control.plan(1, replicas=2)
    one, two = (start(who, [name], **control.topics) for who in ("one", "two"))
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 400)
    before = one.consumer.generation_id()
    given, taken = min(one.owned), min(two.owned)
    shares = {"one": [*one.owned - {given}, taken], "two": [*two.owned - {taken}, given]}
    control.plan(2, replicas=2, target=PlanTarget.from_assignment(1, ("one", "two"), 0, shares))
    eventually(lambda: one.owned == {*shares["one"]} and two.owned == {*shares["two"]})
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 800)
    eventually(lambda: len(commit_positions(two.consumer)) == 2)
    assert one.consumer.generation_id() == two.consumer.generation_id() == before + 1
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_an_unconfirmed_release_has_a_second_round(
    sole_reader: Any,
    start: Any,
    feed: Any,
    log: Any,
    *,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A former owner with a commit in doubt joins again; the round confirms what its next owner has begun."""

    async def doubt(*_: Any) -> bool:
        return False

    monkeypatch.setattr(group_commits, "_confirm_release", doubt)
    name, first = sole_reader
    before = first.consumer.generation_id()
    second = start("w1", [name])
    eventually(lambda: len(second.owned) == 2 and second.consumer.generation_id() == before + 2)
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 800)
    eventually(lambda: len(commit_positions(second.consumer)) == 2)
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_the_application_reads_on_while_its_release_is_being_confirmed(
    sole_reader: Any,
    start: Any,
    feed: Any,
    log: Any,
    *,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Partitions that stay with their owner are not paused by those that it gives up."""
    confirm, is_asked, is_free = group_commits._confirm_release, Event(), Event()

    async def confirm_when_free(client: Any, *rest: Any) -> bool:
        is_asked.set()
        while not is_free.is_set():
            await coordinator.sleep_on_event_loop(client, 0.01)
        return await confirm(client, *rest)

    monkeypatch.setattr(group_commits, "_confirm_release", confirm_when_free)
    name, first = sole_reader
    second = start("w1", [name])
    try:
        eventually(is_asked.is_set)
        feed.write(name, 4, 400)
        eventually(lambda: {p for p, *_ in log.records[400:]} >= {*first.owned})
        assert len(first.owned) == 2
    finally:
        is_free.set()
    eventually(lambda: len(second.owned) == 2 and len(log.records) == 800)
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_a_move_beside_an_older_version_has_two_rounds(
    sole_reader: Any, start: Any, eventually: Eventually, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A next owner that begins while the second round is already due requests no third one."""
    monkeypatch.setattr(release_watch, "FIRST_LOOK_S", 0.1)  # heartbeats announce the second round before
    monkeypatch.setattr(release_watch, "JOIN_DELAY_S", 0.3)
    monkeypatch.setattr(RebalanceRound, "is_only_round", False)  # as of a leader of that version
    name, first = sole_reader
    before = first.consumer.generation_id()
    second = start("w1", [name])
    eventually(lambda: len(second.owned) == 2 and second.consumer.generation_id() >= before + 2)
    third = start("w2", [name])  # its rounds follow any third one
    eventually(lambda: third.owned)
    eventually(lambda: first.consumer.generation_id() == third.consumer.generation_id() >= before + 4)
    assert first.consumer.generation_id() == before + 4


class MixedAssignor(TimedAssignor):
    """Of an earlier version, which confirms no release, in the consumer of that name."""

    def __init__(self, *settings: Any, instance: str, confirms_releases: bool, **named: Any) -> None:
        confirms = confirms_releases and instance != "earlier"
        super().__init__(*settings, instance=instance, confirms_releases=confirms, **named)


@pytest.mark.usefixtures("patient_releases")
def test_a_consumer_of_an_earlier_version_gives_and_gets_in_two_rounds(
    topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling upgrade: each record once, and one round again as soon as the earlier version has left."""
    monkeypatch.setattr(member, "TimedAssignor", MixedAssignor)
    name = topic(partitions=6)
    first = start("w0", [name])
    eventually(lambda: len(first.owned) == 6)
    before = first.consumer.generation_id()

    def reads_all(count: int, each: int) -> None:
        feed.write(name, 6, 600)
        eventually(lambda: len(log.records) == count)
        assert all(sorted(offsets) == list(range(each)) for offsets in log.offsets().values())

    earlier = start("earlier", [name])
    eventually(lambda: len(earlier.owned) == 3)  # it gets three
    reads_all(600, 100)
    eventually(lambda: first.consumer.generation_id() == earlier.consumer.generation_id() == before + 2)
    second = start("w1", [name])
    eventually(lambda: len(second.owned) == len(earlier.owned) == 2)  # it gives one
    reads_all(1200, 200)
    eventually(lambda: first.consumer.generation_id() == second.consumer.generation_id() == before + 4)
    earlier.stop()
    eventually(lambda: len(first.owned) == len(second.owned) == 3)
    reads_all(1800, 300)
    third = start("w2", [name])
    eventually(lambda: len(third.owned) == len(first.owned) == len(second.owned) == 2)
    reads_all(2400, 400)
    assert third.consumer.generation_id() == before + 6
