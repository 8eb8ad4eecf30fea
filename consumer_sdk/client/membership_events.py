"""Events from the member's thread to the application's thread, in order, through one queue."""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from threading import Event
from typing import TypeAlias

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import TrimtabError

PartitionSet: TypeAlias = frozenset[TopicPartition]
OwnershipCheck: TypeAlias = Callable[[Iterable[TopicPartition]], bool]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """The member owns the partitions from now on; no other member reads them."""

    partitions: PartitionSet
    membership_epoch: int = 0  # lost memberships so far: partitions of an earlier one are not owned


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """The partitions must be released."""

    partitions: PartitionSet
    released: Event = field(default_factory=Event)  # the next owner waits for it


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """The group removed this member and reassigned the partitions; they must not be committed."""

    partitions: PartitionSet
    released: Event = field(default_factory=Event)  # the next join may wait for it


@dataclass(frozen=True, slots=True)
class CommitCompleted:
    """An asynchronous commit succeeded, or failed with `error`."""

    offsets: "dict[TopicPartition, CommitPosition]"
    error: Exception | None


@dataclass(frozen=True, slots=True)
class MembershipEnded:
    """The member's thread ended with an error that a retry cannot fix."""

    error: TrimtabError


@dataclass(frozen=True, slots=True)
class CommitPosition:
    """Offset to commit, of the next record to read, and its metadata."""

    offset: int
    metadata: str = ""


MembershipEvent: TypeAlias = (
    PartitionsAssigned | PartitionsRevoked | PartitionsLost | CommitCompleted | MembershipEnded
)


class EventInbox(deque[MembershipEvent]):
    """Events in order; `append` is atomic, so that any thread may add one, and wakes the application's."""

    def __init__(self, wake: Callable[[], object]) -> None:
        super().__init__()
        self._wake = wake

    def append(self, event: MembershipEvent) -> None:
        """Add an event, then wake."""
        super().append(event)
        self._wake()
