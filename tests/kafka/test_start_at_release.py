"""Promised partitions are read at their owner's last commit (`trimtab.start.at.release`)."""

from collections.abc import Callable
from typing import Any

import pytest

from trimtab.consumer_sdk.membership import release_watch

pytestmark = pytest.mark.broker

Eventually = Callable[..., None]


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
    slow.revocation_s = 4.0
    control.plan(1, replicas=1, draining=("one", "slow"))
    eventually(lambda: owned_by_one <= two.owned)
    assert slow.owned == owned_by_slow
    feed.write(name, 6, 600)
    eventually(lambda: {p for p, *_ in log.records[600:]} >= owned_by_one)
    assert slow.owned == owned_by_slow
    eventually(lambda: len(two.owned) == 6)
    eventually(lambda: len(log.records) == 1200)
    assert all(sorted(offsets) == list(range(200)) for offsets in log.offsets().values())
    eventually(lambda: len(two.consumer.commit(asynchronous=False)) == 6)
    restarted = start("three", [name], **control.topics)
    eventually(lambda: restarted.owned)
    feed.write(name, 6, 600)
    eventually(lambda: len(log.records) == 1800)
    assert all(sorted(offsets) == list(range(300)) for offsets in log.offsets().values())


def test_a_move_has_two_rounds_if_the_former_owner_joins_first(
    topic: Any, start: Any, feed: Any, log: Any, eventually: Eventually, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A next owner that begins while the second round is already due requests no third one."""
    monkeypatch.setattr(release_watch, "FIRST_LOOK_S", 0.1)  # heartbeats announce the second round before
    monkeypatch.setattr(release_watch, "JOIN_DELAY_S", 0.3)
    name = topic(partitions=4)
    feed.write(name, 4, 400)
    first = start("w0", [name])
    eventually(lambda: len(log.records) == 400)
    before = first.consumer.generation_id()
    second = start("w1", [name])
    eventually(lambda: len(second.owned) == 2 and second.consumer.generation_id() >= before + 2)
    third = start("w2", [name])  # its rounds follow any third one
    eventually(lambda: third.owned)
    eventually(lambda: third.consumer.generation_id() >= before + 4)
    assert first.consumer.generation_id() == before + 4
