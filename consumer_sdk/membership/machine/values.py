"""Values that go into a `ClassicMember` and come out of it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, TypeAlias

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_protocol.apis import Api
from trimtab.consumer_sdk.client.membership_events import CommitPosition

Partitions: TypeAlias = frozenset[TopicPartition]
Protocols: TypeAlias = Sequence[tuple[str, bytes]]  # assignors with the encoded subscription, preferred first

NO_ANSWER: Final = -100  # in place of a code: the connection broke, or the answer was late


class Phase(Enum):
    """What a member does."""

    OUTSIDE = auto()  # it is no member, or joins again after an error
    JOINING = auto()
    LEADING = auto()  # the driver computes the assignments
    SYNCING = auto()
    STABLE = auto()
    ENDED = auto()  # by an error that a retry cannot fix


@dataclass(frozen=True, slots=True)
class MemberOptions:
    """Settings of a member; times in seconds."""

    group: str
    protocol: str  # name of our assignor
    group_instance_id: str | None = None
    session_timeout: float = 45.0
    rebalance_timeout: float = 300.0  # max.poll.interval.ms
    heartbeat_interval: float = 0.25
    metadata_max_age: float = 30.0
    request_timeout: float = 30.0
    starts_at_release: bool = False

    @property
    def is_static(self) -> bool:
        """Whether the membership outlasts a restart (KIP-345)."""
        return self.group_instance_id is not None


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """Offsets to commit, while the membership lasts and `still_owned` at the time of the request."""

    offsets: Mapping[TopicPartition, CommitPosition]
    epoch: int
    still_owned: Callable[[], bool]
    is_confirmation: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class MemberRequest:
    """A request to the coordinator, or to any broker to find it."""

    api: Api
    fields: Mapping[str, Any]
    sent_at: float
    answer_by: float
    generation: int = -1
    subject: Any = None  # commit, or awaited partitions


@dataclass(frozen=True, slots=True)
class CoordinatorFound:
    """Connect to this broker."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class CoordinatorLost:
    """Close the connection to the coordinator."""

    why: str


@dataclass(frozen=True, slots=True)
class LeadRequested:
    """Compute the assignments, and hand them to `ClassicMember.assign`."""

    protocol: str
    members: Mapping[str, bytes]  # encoded subscriptions
    is_decided: bool = False  # the broker keeps the last assignment: a static leader returned (KIP-814)


@dataclass(frozen=True, slots=True)
class RoundEnded:
    """The member is in a new generation."""

    generation: int
    protocol: str
    assigned: Partitions
    user_data: bytes | None
    fault: str = ""  # why the assignment is not followed


@dataclass(frozen=True, slots=True)
class Assigned:
    """The member owns these partitions from now on."""

    partitions: Partitions
    epoch: int


@dataclass(frozen=True, slots=True)
class Revoked:
    """These partitions have to be released: `ClassicMember.release`."""

    partitions: Partitions


@dataclass(frozen=True, slots=True)
class Lost:
    """The membership ended, and with it the right to these partitions."""

    partitions: Partitions
    epoch: int  # of the next membership


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """A commit's result: 0, the code of its first error, or NO_ANSWER."""

    commit: Commit
    code: int
    refused: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])


@dataclass(frozen=True, slots=True)
class TopicsRead:
    """Metadata has arrived."""

    missing: frozenset[str]  # of the subscribed topics


@dataclass(frozen=True, slots=True)
class Left:
    """The member has left the group, or its request to leave got no answer in time."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The member cannot be in the group."""

    code: int
    topics: frozenset[str] = frozenset()  # denied ones


MemberEvent: TypeAlias = (
    CoordinatorFound
    | CoordinatorLost
    | LeadRequested
    | RoundEnded
    | Assigned
    | Revoked
    | Lost
    | CommitAnswered
    | TopicsRead
    | Left
    | Ended
)
