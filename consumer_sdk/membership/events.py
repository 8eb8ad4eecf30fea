"""Events from the member's thread to the application's thread, in order, through one queue."""

from dataclasses import dataclass, field
from threading import Event
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import TrimtabError

PartitionSet: TypeAlias = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """The member owns the partitions from now on; no other member reads them.

    `membership_epoch` counts earlier losses: partitions of an earlier epoch are no longer owned.
    """

    partitions: PartitionSet
    membership_epoch: int = 0


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """The partitions must be released; the next owner waits until `released` is set."""

    partitions: PartitionSet
    released: Event = field(default_factory=Event)


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """The group removed this member and reassigned the partitions; they must not be committed."""

    partitions: PartitionSet


@dataclass(frozen=True, slots=True)
class CommitCompleted:
    """An asynchronous commit ended; `error` is None if it succeeded."""

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
