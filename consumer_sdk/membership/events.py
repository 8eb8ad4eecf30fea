"""What the member's thread tells the application's thread, in order, through one queue."""

from dataclasses import dataclass, field
from threading import Event
from typing import TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import TrimtabError

Partitions: TypeAlias = frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Assigned:
    """These partitions are ours from now on; nobody else reads them.

    `tenure` counts the losses before: what was owned in an earlier one is not ours any more.
    """

    partitions: Partitions
    tenure: int = 0


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions must go; the next owner waits until `done` is set."""

    partitions: Partitions
    done: Event = field(default_factory=Event)


@dataclass(frozen=True, slots=True)
class Lost:
    """These partitions went without asking: the group took us for dead; commit nothing."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Committed:
    """An asynchronous commit ended; `error` is None where it went well."""

    offsets: "dict[TopicPartition, Position]"
    error: Exception | None


@dataclass(frozen=True, slots=True)
class Failed:
    """The member's thread has ended with an error that retrying does not heal."""

    error: TrimtabError


@dataclass(frozen=True, slots=True)
class Position:
    """An offset to commit: the next one to read, with the metadata kept beside it."""

    offset: int
    metadata: str = ""


MembershipEvent: TypeAlias = Assigned | Revoked | Lost | Committed | Failed
