"""What the member's thread tells the application's thread, in order, through one queue."""

from dataclasses import dataclass, field
from threading import Event
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import TrimtabError

PartitionSet: TypeAlias = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class PartitionsAssigned:
    """These partitions are ours from now on; nobody else reads them.

    `membership_epoch` counts the losses before: what was owned in an earlier one is not ours any more.
    """

    partitions: PartitionSet
    membership_epoch: int = 0


@dataclass(frozen=True, slots=True)
class PartitionsRevoked:
    """These partitions must go; the next owner waits until `released` is set."""

    partitions: PartitionSet
    released: Event = field(default_factory=Event)


@dataclass(frozen=True, slots=True)
class PartitionsLost:
    """These partitions went without asking: the group took us for dead; commit nothing."""

    partitions: PartitionSet


@dataclass(frozen=True, slots=True)
class CommitCompleted:
    """An asynchronous commit ended; `error` is None where it went well."""

    offsets: "dict[TopicPartition, CommitPosition]"
    error: Exception | None


@dataclass(frozen=True, slots=True)
class MembershipEnded:
    """The member's thread has ended with an error that retrying does not heal."""

    error: TrimtabError


@dataclass(frozen=True, slots=True)
class CommitPosition:
    """An offset to commit: the next one to read, with the metadata kept beside it."""

    offset: int
    metadata: str = ""


MembershipEvent: TypeAlias = (
    PartitionsAssigned | PartitionsRevoked | PartitionsLost | CommitCompleted | MembershipEnded
)
