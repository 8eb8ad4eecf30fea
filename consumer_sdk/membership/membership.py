"""Interface between `Consumer` and its membership in a group, of the classic or the new protocol."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Protocol

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk.client.membership_events import CommitPosition, MembershipEvent, OwnershipCheck


class Membership(Protocol):
    """One membership in a consumer group, used by the application's threads."""

    @property
    def inbox(self) -> deque[MembershipEvent]:
        """Events in order, for one thread at a time."""
        ...

    def start(self, topics: Sequence[str]) -> None:
        """Join, or change the topics; patterns begin with "^"."""

    def wait(self, seconds: float) -> None:
        """Wait while no records are fetched; events may arrive."""

    def record_poll(self) -> None:
        """Record that the application polled."""

    def leave_if_overdue(self) -> None:
        """Leave until the next recorded poll, if it is late; called while only a thread of ours polls."""

    def holds_lease(self) -> bool:
        """Return whether records may be handed out."""
        ...

    @property
    def is_rebalancing(self) -> bool:
        """Whether partitions may change."""
        ...

    @property
    def member_id(self) -> str:
        """Member id; empty before the first join."""
        ...

    @property
    def generation_id(self) -> int:
        """Last known generation, or member epoch; -1 outside the group."""
        ...

    def read_generation(self) -> tuple[int, str]:
        """Return generation and member id of one membership; (-1, "") before the first join."""
        ...

    @property
    def release_token(self) -> str:
        """Token of the round that takes partitions away now, for their last commit; empty without one."""
        ...

    def is_current(self, epoch: int) -> bool:
        """Return whether partitions assigned in this epoch are still this member's."""
        ...

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these at the next login of each connection."""

    def drain(self) -> None:
        """Request an empty assignment for this member."""

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommitPosition],
        epoch: int,
        timeout: float,
        still_owned: OwnershipCheck = ...,
    ) -> None:
        """Commit and wait up to `timeout` seconds; `still_owned` runs just before the request."""

    def confirm_release(self, last: Mapping[TopicPartition, CommitPosition], epoch: int, at: float) -> None:
        """Have an answered last commit, begun `at` this time, confirmed to the next owners; do not wait."""

    def commit_async(
        self, offsets: Mapping[TopicPartition, CommitPosition], epoch: int, still_owned: OwnershipCheck, /
    ) -> None:
        """Commit in the background; `CommitCompleted` arrives in the inbox."""

    @property
    def plan(self) -> GroupPlan | None:
        """The plan in force; None without one, or before it has been read."""
        ...

    @property
    def decision_fault(self) -> str:
        """Why the plan or the leader's heuristic could not decide the last rebalance; empty if it did."""
        ...

    def stop(self) -> None:
        """Start to leave; the application serves `inbox` until `is_stopped`."""

    @property
    def is_stopped(self) -> bool:
        """Whether the group has been left."""
        ...
