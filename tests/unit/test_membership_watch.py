"""What is told of the membership, and when: the lease hangs on the order."""

import asyncio
from typing import Any

import pytest
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.coordinator.heartbeat import Heartbeat
from kafka.errors import RebalanceInProgressError

from trimtab.consumer_sdk.membership.coordinator import MemberCoordinator, MembershipListener


class RecordingCoordinator(ConsumerCoordinator):  # type: ignore[misc] # kafka-python has no types
    """Records the calls; the names are kafka-python's."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.heartbeat = Heartbeat()
        self.rejoining = True
        self.refuses = False

    async def _send_heartbeat_request(self) -> None:
        if self.refuses:
            raise RebalanceInProgressError

    async def maybe_leave_group_async(self, reason: str = "") -> None:
        self.said.append(f"leave: {reason}")
        self.reset_generation()

    def reset_generation(self, member_id: str = "") -> None:
        self.said.append(f"reset {member_id}".rstrip())


class WatchedCoordinator(MemberCoordinator, RecordingCoordinator):
    """Our overrides on top of the recorder."""


@pytest.fixture
def watched() -> Any:
    said: list[str] = []
    listener = MembershipListener(
        on_stable_heartbeat=lambda sent: said.append(f"calm {sent}"),
        on_leaving=lambda: said.append("leaving"),
        on_lost=lambda: said.append("lost"),
        on_rejoin_needed=lambda: None,
        on_fenced=lambda: None,
    )
    coordinator = WatchedCoordinator(listener, "trimtab")
    coordinator.said = said
    coordinator.heartbeat.last_send = 7.0
    return coordinator


def test_leaving_is_told_before_the_group_hears_of_it(watched: Any) -> None:
    """Once the group knows, others read: the lease must be over by then."""
    asyncio.run(watched.maybe_leave_group_async("why"))
    assert watched.said == ["leaving", "leave: why", "lost", "reset"]


def test_a_loss_during_a_join_makes_the_next_try_prepare_anew(watched: Any) -> None:
    """So that the listener is asked to give up what the old membership owned."""
    watched.reset_generation("given-id")
    assert watched.said == ["lost", "reset given-id"]
    assert not watched.rejoining


def test_only_a_heartbeat_without_a_rebalance_counts_as_calm(watched: Any) -> None:
    """The rebalance timeout runs from the last one on."""
    asyncio.run(watched._send_heartbeat_request())
    watched.refuses = True
    with pytest.raises(RebalanceInProgressError):
        asyncio.run(watched._send_heartbeat_request())
    assert watched.said == ["calm 7.0"]
