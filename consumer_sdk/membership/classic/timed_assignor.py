"""The member's assignor, which knows when joins were sent and assignments arrived."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import Any

from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import decode_assignment_data
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.consumer_sdk.client.commit_metadata import format_round_token
from trimtab.consumer_sdk.membership.classic.coordinator import RawSubscriptions
from trimtab.consumer_sdk.membership.release_watch import ReleaseWatch


class TimedAssignor(TrimtabAssignor):
    """TrimtabAssignor that records the times of joins and assignments, and what the last round promised."""

    def __init__(
        self,
        clock: Clock,
        *settings: Any,
        starts_at_release: bool = False,
        confirms_releases: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(*settings, **more)
        self._clock = clock
        self._starts_at_release = starts_at_release
        self._data = replace(self._data, confirms_releases=confirms_releases)
        self._only_round_in = -1  # generation of a round that none follows if releases are confirmed
        self._claimed_at_join = False  # whether the last JoinGroup claimed partitions
        self._emptied_in = -1  # generation of a round that took all of them away
        self.release_watch: ReleaseWatch | None = None  # of the last round
        self.release_token = ""  # of the last round, for the partitions that it took away
        self._join_sent_at = clock.monotonic()
        self.joined_at = self._join_sent_at  # send time of the last answered JoinGroup
        self.assigned_at = -inf
        self.assignment_count = 0
        self.shorten_heartbeats: Callable[[], None] = lambda: None  # called if another round follows

    def metadata(self, topics: Iterable[str]) -> Any:
        """Record the time; called just before each JoinGroup is sent."""
        self._join_sent_at = self._clock.monotonic()
        subscription = super().metadata(topics)
        self._claimed_at_join = bool(subscription.owned_partitions)
        return subscription

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Record the times of the join and of the assignment; called when SyncGroup is answered."""
        self.joined_at = self._join_sent_at
        self.assigned_at = self._clock.monotonic()
        self.assignment_count += 1
        placement = decode_assignment_data(assignment.user_data)
        token = self.release_token = format_round_token(generation, placement.decision_fingerprint)
        watches = self._starts_at_release and placement.starts_at_release and token
        promised = [TopicPartition(topic, n) for topic, numbers in placement.promised for n in numbers]
        self._only_round_in = generation if placement.is_only_round and token else -1
        at = self.assigned_at
        watch = ReleaseWatch(promised, generation, token, at, is_only_round=placement.is_only_round)
        self.release_watch = watch if watches else None
        # Until the second round the moved partitions have no reader (KIP-429).
        if placement.round_follows:
            self.shorten_heartbeats()
        keeps_any = bool(assignment.partitions() or promised)
        self._emptied_in = generation if token and self._claimed_at_join and not keeps_any else -1
        super().on_assignment(assignment, generation)

    def forget_promise(self) -> None:
        """Look for no release any more: a round of another assignor promises nothing."""
        self.release_watch, self.release_token = None, ""

    def is_only_round_in(self, generation: int) -> bool:
        """Return whether this generation's round needs none after it, if its releases are confirmed."""
        # Not the last round of ours: the group may have had one of another assignor since, which needs two.
        return 0 <= generation == self._only_round_in

    def is_emptied_in(self, generation: int) -> bool:
        """Return whether a leader of ours took all partitions away in this generation and promised none."""
        return 0 <= generation == self._emptied_in

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Lead a rebalance on the raw subscriptions."""
        everyone: RawSubscriptions = members[0]
        return self.assign_decoded(cluster, everyone.subscriptions)
