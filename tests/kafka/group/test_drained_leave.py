"""A member that the plan drains leaves the group in place of the second round, on a real broker."""

from collections.abc import Callable
from typing import Any

import pytest

from trimtab.consumer_sdk.membership.classic import coordinator

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


@pytest.mark.usefixtures("patient_releases")
def test_a_scale_down_has_two_rebalances(
    topic: Any, start: Any, feed: Any, log: Any, control: Any, eventually: Eventually
) -> None:
    """The drained leader's leave is the second round, its stop starts none, the others keep theirs."""
    name = topic(partitions=6)
    control.plan(1, replicas=3)
    one = start("one", [name], **control.topics)
    eventually(lambda: len(one.owned) == 6)  # alone, so it leads until it leaves
    two, three = (start(who, [name], **control.topics) for who in ("two", "three"))
    eventually(lambda: len(one.owned) == len(two.owned) == len(three.owned) == 2)
    feed.write(name, 6, 600)
    eventually(lambda: len(log.records) == 600)
    before = two.consumer.generation_id()
    begun = len(log.tenures)
    assert [coordinator.is_leader(who.consumer._member.client) for who in (one, two)] == [True, False]
    control.plan(2, replicas=2, draining=("one",))
    eventually(lambda: len(two.owned) == len(three.owned) == 3)
    eventually(lambda: one.consumer.generation_id() == -1)
    feed.write(name, 6, 600)
    eventually(lambda: len(log.records) == 1200)
    assert len(log.tenures) == begun + 2
    one.stop()
    probe = start("probe", [name], **control.topics)  # its only round follows any third one
    eventually(lambda: probe.owned and two.consumer.generation_id() == probe.consumer.generation_id())
    assert two.consumer.generation_id() == before + 3
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())


def test_a_member_comes_back_as_soon_as_no_plan_drains_it(
    topic: Any, start: Any, feed: Any, log: Any, control: Any, eventually: Eventually
) -> None:
    """It reads the plans while it is away; a poll that is late then has no consequence."""
    name = topic(partitions=4)
    control.plan(1, replicas=2)
    drained, other = (
        start(who, [name], max_poll_interval_ms=6000, session_timeout_ms=6000, **control.topics)
        for who in ("drained", "other")
    )
    eventually(lambda: len(drained.owned) == len(other.owned) == 2)
    control.plan(2, replicas=1, draining=("drained",))
    eventually(lambda: drained.consumer.generation_id() == -1 and len(other.owned) == 4)
    assert not drained.consumer.holds_lease()
    control.plan(3, replicas=2)
    eventually(lambda: len(drained.owned) == len(other.owned) == 2)
    assert drained.consumer.holds_lease()
    feed.write(name, 4, 400)
    eventually(lambda: len(log.records) == 400)
    assert all(sorted(offsets) == list(range(100)) for offsets in log.offsets().values())


def test_a_static_member_stays(topic: Any, start: Any, control: Any, eventually: Eventually) -> None:
    """Its membership is the name's, which the broker keeps for a session."""
    name = topic(partitions=4)
    control.plan(1, replicas=2)
    drained, other = (
        start(who, [name], **{"group.instance.id": who}, **control.topics) for who in ("drained", "other")
    )
    eventually(lambda: len(drained.owned) == len(other.owned) == 2)
    before = other.consumer.generation_id()
    control.plan(2, replicas=1, draining=("drained",))
    eventually(lambda: len(other.owned) == 4)
    eventually(lambda: drained.consumer.generation_id() == other.consumer.generation_id() == before + 2)
