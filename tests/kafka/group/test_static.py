"""Static membership (KIP-345) on a real broker: restarts, absence, draining and fencing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.consumer_sdk import Consumer, GroupMembershipError

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]
ONE, TWO = {"group_instance_id": "one"}, {"group_instance_id": "two"}
LONG_SESSION = {"session_timeout_ms": 30_000}  # a restart on a busy machine takes seconds


def test_a_restart_within_the_session_moves_nothing(
    topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually
) -> None:
    """A static member gets its partitions back at once, in the same generation."""
    name = topic(partitions=4)
    one, two = start("one", [name], **ONE, **LONG_SESSION), start("two", [name], **TWO, **LONG_SESSION)
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 400)
    owned_before, other_owned, generation = set(one.owned), set(two.owned), two.consumer.generation_id()
    one.stop()
    feed.write(name, 4, 400)
    restarted = start("one", [name], **ONE, **LONG_SESSION)
    eventually(lambda: restarted.owned == owned_before)
    eventually(lambda: len(log.records) == 800)
    assert (two.owned, two.assigns) == (other_owned, 1)
    assert restarted.consumer.generation_id() == two.consumer.generation_id() == generation
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_others_read_for_a_member_that_stays_away_until_it_returns(
    topic: Any, start: Any, feed: Any, log: Any, control: Any, eventually: Eventually
) -> None:
    """After its session timeout others read its partitions; under the plan it gets back exactly those."""
    name = topic(partitions=4)
    target = PlanTarget(1, ("one", "two"), 0, {name: (1, 2, 1, 2)})
    control.publish_rates(name, 100.0, 100.0, 100.0, 100.0)
    control.plan(1, replicas=2, target=target)
    one, two = (start(who, [name], group_instance_id=who, **control.topics) for who in ("one", "two"))
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    owned_by_one, owned_by_two = set(one.owned), set(two.owned)
    assert {p.partition for p in owned_by_one} == {0, 2}
    one.stop()
    feed.write(name, 4, 400)
    eventually(lambda: two.owned == owned_by_one | owned_by_two)
    eventually(lambda: len(log.records) == 400)
    returned = start("one", [name], **ONE, **control.topics)
    eventually(lambda: (returned.owned, two.owned) == (owned_by_one, owned_by_two))
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 800)
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_a_draining_static_member_hands_over(topic: Any, start: Any, eventually: Eventually) -> None:
    """drain() moves a static member's partitions to the other member."""
    name = topic(partitions=4)
    one, two = start("one", [name], **ONE), start("two", [name], **TWO)
    eventually(lambda: len(one.owned) == len(two.owned) == 2)
    one.consumer.drain()
    eventually(lambda: len(two.owned) == 4)


def test_a_second_consumer_with_the_same_id_fences_the_first(
    topic: Any, config: dict[str, Any], feed: Any
) -> None:
    """The first consumer ends with a clear error, loses its partitions and does not rejoin."""
    name = topic(partitions=1)
    feed.write(name, 1, 5)
    lost: list[Any] = []
    settings = {**config, "group.instance.id": "same", "enable.auto.commit": False}
    first, second = Consumer(settings), Consumer(settings)
    try:
        first.subscribe([name], on_lost=lambda _, partitions: lost.extend(partitions))
        assert len(first.consume(5, timeout=60)) == 5
        second.subscribe([name])
        assert len(second.consume(5, timeout=60)) == 5
        with pytest.raises(
            GroupMembershipError, match=r"same group\.instance\.id: give each consumer its own"
        ):
            first.consume(1, timeout=60)
        assert [p.partition for p in lost] == [0]
        first.close()
        feed.write(name, 1, 1)
        assert len(second.consume(1, timeout=60)) == 1
    finally:
        first.close()
        second.close()


def test_a_fenced_consumer_never_joins_again(topic: Any, config: dict[str, Any], feed: Any) -> None:
    """A join that is due while the heartbeat is refused raises, or both consumers would fence each other."""
    name = topic(partitions=1)
    feed.write(name, 1, 5)
    settings = {**config, "group.instance.id": "same", "enable.auto.commit": False}
    first, second = Consumer(settings), Consumer(settings)
    try:
        first.subscribe([name])
        assert len(first.consume(5, timeout=60)) == 5
        group = first._member.client._coordinator
        # the member's thread is in the middle of an iteration: it has not seen the fence yet
        group._membership_listener = replace(group._membership_listener, on_fenced=lambda: None)
        second.subscribe([name])
        assert len(second.consume(5, timeout=60)) == 5
        with pytest.raises(GroupMembershipError, match=r"same group\.instance\.id"):
            first.consume(1, timeout=60)
        feed.write(name, 1, 1)
        assert len(second.consume(1, timeout=60)) == 1
    finally:
        first.close()
        second.close()
