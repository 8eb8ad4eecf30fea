"""Order of the membership callbacks, on which the lease depends."""

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
        self.calls: list[str] = []
        self.heartbeat = Heartbeat()
        self.rejoining = True
        self.refuses = False

    async def _send_heartbeat_request(self) -> None:
        if self.refuses:
            raise RebalanceInProgressError

    async def maybe_leave_group_async(self, reason: str = "") -> None:
        self.calls.append(f"leave: {reason}")
        self.reset_generation()

    def reset_generation(self, member_id: str = "") -> None:
        self.calls.append(f"reset {member_id}".rstrip())


class WatchedCoordinator(MemberCoordinator, RecordingCoordinator):
    """Our overrides on top of the recorder."""


@pytest.fixture
def watched() -> Any:
    calls: list[str] = []
    listener = MembershipListener(
        on_stable_heartbeat=lambda sent: calls.append(f"stable {sent}"),
        on_leaving=lambda: calls.append("leaving"),
        on_lost=lambda: calls.append("lost"),
        on_rejoin_needed=lambda: None,
        on_fenced=lambda: None,
    )
    coordinator = WatchedCoordinator(listener, "trimtab")
    coordinator.calls = calls
    coordinator.heartbeat.last_send = 7.0
    return coordinator


def test_leaving_is_reported_before_the_request(watched: Any) -> None:
    """Once the group knows, other members read: the lease must be over by then."""
    asyncio.run(watched.maybe_leave_group_async("why"))
    assert watched.calls == ["leaving", "leave: why", "lost", "reset"]


def test_a_loss_during_a_join_makes_the_next_attempt_prepare_again(watched: Any) -> None:
    """The rebalance listener then gets the partitions of the old membership as lost."""
    watched.reset_generation("given-id")
    assert watched.calls == ["lost", "reset given-id"]
    assert not watched.rejoining


def test_only_a_heartbeat_without_a_rebalance_is_stable(watched: Any) -> None:
    """The rebalance timeout starts at the last stable heartbeat."""
    asyncio.run(watched._send_heartbeat_request())
    watched.refuses = True
    with pytest.raises(RebalanceInProgressError):
        asyncio.run(watched._send_heartbeat_request())
    assert watched.calls == ["stable 7.0"]
