"""The member's assignor, which knows when joins were sent and assignments arrived."""

from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import decode_assignment_data
from trimtab.common.clock import Clock
from trimtab.consumer_sdk.membership.coordinator import RawSubscriptions


class TimedAssignor(TrimtabAssignor):
    """TrimtabAssignor that records the times of joins and assignments."""

    def __init__(self, clock: Clock, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self._clock = clock
        self._join_sent_at = clock.monotonic()
        self.joined_at = self._join_sent_at  # send time of the last answered JoinGroup
        self.assigned_at = -inf
        self.assignment_count = 0
        self.shorten_heartbeats: Callable[[], None] = lambda: None  # called if another round follows

    def metadata(self, topics: Iterable[str]) -> Any:
        """Record the time; called just before each JoinGroup is sent."""
        self._join_sent_at = self._clock.monotonic()
        return super().metadata(topics)

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Record the times of the join and of the assignment; called when SyncGroup is answered."""
        self.joined_at = self._join_sent_at
        self.assigned_at = self._clock.monotonic()
        self.assignment_count += 1
        # Until the second round the moved partitions have no reader (KIP-429).
        if decode_assignment_data(assignment.user_data).round_follows:
            self.shorten_heartbeats()
        super().on_assignment(assignment, generation)

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Lead a rebalance on the raw subscriptions."""
        everyone: RawSubscriptions = members[0]
        return self.assign_decoded(cluster, everyone.subscriptions)
