"""Questions to the brokers through confluent-kafka's admin client; every answer may be partial.

What does not answer in time is absent from the answer, and `trouble` says so: a broker that is
away must neither stop the loop nor look like an idle partition.
"""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaException,
    admin,
)
from confluent_kafka import KafkaError as KafkaErrors
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.observation import GroupState, GroupView, Reader

STATES: Final = {
    ConsumerGroupState.STABLE: GroupState.STABLE,
    ConsumerGroupState.EMPTY: GroupState.EMPTY,
    ConsumerGroupState.DEAD: GroupState.EMPTY,  # the broker forgot an empty group
    ConsumerGroupState.PREPARING_REBALANCING: GroupState.REBALANCING,
    ConsumerGroupState.COMPLETING_REBALANCING: GroupState.REBALANCING,
}
_SPECS: Any = admin  # OffsetSpec is documented, but not in the package's __all__
LATEST: Final[Any] = _SPECS.OffsetSpec.latest()
EARLIEST: Final[Any] = _SPECS.OffsetSpec.earliest()
UNREACHED: Final = frozenset(
    {
        KafkaErrors._TRANSPORT,  # noqa: SLF001 - the names they are documented by
        KafkaErrors._TIMED_OUT,  # noqa: SLF001 - as above
        KafkaErrors._ALL_BROKERS_DOWN,  # noqa: SLF001 - as above
        KafkaErrors._RESOLVE,  # noqa: SLF001 - as above
    }
)
"""Errors of the client itself: nobody was there to refuse anything."""

GRACE: Final = 1.0
"""Seconds to wait for librdkafka's own timeout to be reported."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Partitions of topics, and the broker that leads each."""

    leaders: Mapping[TopicPartition, int]
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Offsets:
    """Offsets by partition; a partition that did not answer is absent."""

    values: Mapping[TopicPartition, int]
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Commits:
    """Committed offsets of the group and their metadata; `known` is False where nobody answered."""

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    notes: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    known: bool = True
    trouble: tuple[str, ...] = ()


class Brokers:
    """The cluster, asked about one group."""

    def __init__(self, client: Mapping[str, Any], group: str, timeout: float) -> None:
        self._client = dict(client)
        self._admin = AdminClient(self._client)
        self._group = group
        self._timeout = timeout

    @property
    def admin(self) -> AdminClient:
        """Return the client, for those who create topics."""
        return self._admin

    def layout(self) -> Layout:
        """Return every partition there is; none without an answer."""
        try:
            topics = self._admin.list_topics(timeout=self._timeout).topics
        except KafkaException as error:
            return Layout({}, (f"cluster metadata: {reason(error)}",))
        return Layout(
            {
                TopicPartition(name, number): partition.leader
                for name, topic in topics.items()
                if topic.error is None
                for number, partition in topic.partitions.items()
            }
        )

    def ends(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the offset after the last record of each partition."""
        return self._offsets(partitions, LATEST)

    def begins(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the offset of the first record there still is."""
        return self._offsets(partitions, EARLIEST)

    def group(self) -> tuple[GroupView, tuple[str, ...]]:
        """Return the group as its coordinator describes it."""
        try:
            asked = self._admin.describe_consumer_groups(
                [self._group], request_timeout=self._timeout
            )
            described = self._wait(asked[self._group])
        except KafkaException as error:
            if _code(error) == KafkaErrors.GROUP_ID_NOT_FOUND:
                return GroupView(GroupState.EMPTY), ()
            self._renew(error)
            return GroupView(), (f"group {self._group}: {reason(error)}",)
        state = STATES.get(described.state, GroupState.UNKNOWN)
        readers = sorted((_reader(m) for m in described.members), key=lambda r: r.id)
        return GroupView(state, tuple(readers)), ()

    def commits(self) -> Commits:
        """Return what the group has committed, for all topics it ever read."""
        try:
            asked = self._admin.list_consumer_group_offsets(
                [ConsumerGroupTopicPartitions(self._group)], request_timeout=self._timeout
            )
            answered = self._wait(asked[self._group]).topic_partitions
        except KafkaException as error:
            if _code(error) == KafkaErrors.GROUP_ID_NOT_FOUND:
                return Commits()
            self._renew(error)
            return Commits(known=False, trouble=(f"committed offsets: {reason(error)}",))
        offsets, notes = {}, {}
        for raw in answered:
            if raw.error is None and raw.offset >= 0:
                partition = TopicPartition(raw.topic, raw.partition)
                offsets[partition] = raw.offset
                if raw.metadata:
                    notes[partition] = raw.metadata
        return Commits(offsets, notes)

    def _offsets(self, partitions: Iterable[TopicPartition], spec: Any) -> Offsets:
        asked = {RawPartition(p.topic, p.partition): spec for p in partitions}
        if not asked:
            return Offsets({})
        try:
            futures = self._admin.list_offsets(asked, request_timeout=self._timeout)
        except KafkaException as error:
            return Offsets({}, (f"offsets: {reason(error)}",))
        values: dict[TopicPartition, int] = {}
        failed: list[str] = []
        for raw, future in futures.items():
            try:
                values[TopicPartition(raw.topic, raw.partition)] = self._wait(future).offset
            except KafkaException as error:
                failed.append(f"{raw.topic}-{raw.partition}: {reason(error)}")
        more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
        return Offsets(values, (f"offsets of {failed[0]}{more}",) if failed else ())

    def _renew(self, error: KafkaException) -> None:
        """Take a new client after a silence.

        librdkafka's admin client never finds a group's coordinator again if the broker was away
        while it was asked for: all later questions about the group time out (2.16, tried).
        """
        if _code(error) in (None, *UNREACHED):
            self._admin = AdminClient(self._client)

    def _wait(self, future: "Future[Any]") -> Any:
        try:
            return future.result(timeout=self._timeout + GRACE)
        except FutureTimeout:
            raise KafkaException("no answer in time") from None


def reason(error: KafkaException) -> str:
    """Return what the client says went wrong, without its codes."""
    inner: Any = error.args[0] if error.args else error
    return str(inner.str()) if hasattr(inner, "str") else str(inner)


def unreachable(error: KafkaException, bootstrap: str) -> str | None:
    """Return what to check where no broker was reached at all; None for any other error."""
    if _code(error) not in UNREACHED:
        return None
    return (
        f"no Kafka broker answers at {bootstrap} ({reason(error)}): is it running, and are the "
        "address (--bootstrap), security.protocol and the firewall right?"
    )


def _code(error: KafkaException) -> int | None:
    inner: Any = error.args[0] if error.args else None
    return int(inner.code()) if hasattr(inner, "code") else None


def _reader(member: Any) -> Reader:
    assigned = member.assignment.topic_partitions if member.assignment else []
    owned = frozenset(TopicPartition(p.topic, p.partition) for p in assigned)
    return Reader(member.member_id, member.client_id, owned)
