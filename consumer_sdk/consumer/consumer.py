"""The drop-in consumer: confluent-kafka's interface, Trimtab's assignor, exact ownership.

    with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "lake"}) as consumer:
        consumer.subscribe(["orders"], on_assign=start, on_revoke=flush, on_lost=drop)
        while running:
            for message in consumer.consume(5000, timeout=0.2):
                ...

Two planes (docs/design.md): a kafka-python member joins and commits (`membership.member`),
librdkafka fetches. The member never touches the data plane; this module does, on the application's
thread only, inside `poll`, `consume` and `close`. The rules:

1. Records are handed out only of owned partitions, and only while the member's lease holds, which
   is looked at before each fetch and before anything is handed out.
2. A revoked partition stops being fetched first, then `on_revoke` runs, then the offsets are
   committed, and only then does the next owner get it.
3. After a lost partition nothing of it is committed.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final, Self, TypeAlias

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition
from kafka.errors import KafkaError as KafkaPythonError
from kafka.errors import RebalanceInProgressError

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.consumer.client_adapters import (
    as_kafka_error,
    data_plane,
    key,
    key_of,
    offsets_of,
)
from trimtab.consumer_sdk.consumer.cluster_queries import Queries
from trimtab.consumer_sdk.consumer.fetch_control import rewind, starts, stop, warm_up
from trimtab.consumer_sdk.consumer.offset_reset import REPORTED, Resets
from trimtab.consumer_sdk.consumer.partition_state import Bookkeeping, parting
from trimtab.consumer_sdk.consumer.settings import parse
from trimtab.consumer_sdk.errors import ConsumerClosed
from trimtab.consumer_sdk.membership.events import (
    Assigned,
    Committed,
    Failed,
    Lost,
    MembershipEvent,
    Position,
    Revoked,
)
from trimtab.consumer_sdk.membership.member import Member

log = logging.getLogger("trimtab.consumer_sdk")

Callback: TypeAlias = Callable[["Consumer", list[RawPartition]], Any]

SLICE: Final = 0.02
"""Seconds of one wait for records: how late a waiting application notices an event."""

SLICE_REBALANCING: Final = 0.004
"""The same while a join is under way, since its end gives and takes partitions."""


class Consumer(Queries):
    """A group consumer with confluent-kafka's methods; not thread-safe, as theirs.

    `config` holds librdkafka's names and `trimtab.*` (docs/consumer.md). Raises SettingError for
    what cannot work and BrokerUnreachable when no broker answers. Methods raise `KafkaException`
    where confluent-kafka's do.
    """

    def __init__(self, config: Mapping[str, Any], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse(config)
        self._data = data_plane({**self._settings.data, **REPORTED})
        self._resets = Resets(self._data, self._settings.data)
        self._book = Bookkeeping()
        self._member: Member | None = None
        self._callbacks: dict[str, Callback | None] = {}
        self._started: list[RawPartition] | None = None
        self._suspended = False
        self._trusted = False  # whether it is news that the coordinator is silent, or answers
        self._closed = False
        self._failure: TrimtabError | None = None
        self._next_commit = self._clock.monotonic() + self._settings.auto_commit_interval

    # -- group ------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: Callback | None = None,
        on_revoke: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Join the group for these topics; names that begin with "^" are patterns.

        Callbacks take (consumer, partitions) and run inside `poll`, `consume` or `close`.
        `on_assign` may call `assign` or `incremental_assign` to begin at offsets of its own;
        partitions are released when `on_revoke` returns; without `on_lost`, `on_revoke` is called
        for lost partitions too.
        """
        self._open()
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        if self._member is None:
            self._member = Member(self._settings, self._clock)
        self._member.start(topics)
        warm_up(self._data, topics)

    def unsubscribe(self) -> None:
        """Leave the group; partitions are revoked first."""
        self._leave()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, an error event, or None after `timeout` seconds (None: wait)."""
        messages = self.consume(1, -1 if timeout is None else timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records, fewer after `timeout` seconds (-1: wait).

        With `num_messages=0` only callbacks are served. Raises MembershipFailed when the group
        cannot be joined.
        """
        self._open()
        deadline = self._clock.monotonic() + (inf if timeout < 0 else timeout)
        messages = self._collect(num_messages, deadline)
        if messages and not self._still_ours():
            rewind(self._data, messages)
            return []
        return messages

    def close(self) -> None:
        """Revoke, commit, leave the group and free everything; may be called twice."""
        if self._closed:
            return
        try:
            self._leave()
        finally:
            self._closed = True
            self._data.close()

    def drain(self) -> None:
        """Ask the group to take everything from this consumer; it stays an idle member."""
        if self._member is not None:
            self._member.drain()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- offsets ----------------------------------------------------------------------------------

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[RawPartition] | None = None,
        asynchronous: bool = True,  # noqa: FBT001, FBT002 - confluent-kafka's signature
    ) -> list[RawPartition] | None:
        """Commit a record's, these, or all stored offsets, with the group's generation.

        Waits if not `asynchronous`. Raises KafkaException: ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID
        when the group went on without us, _ASSIGNMENT_LOST for a partition that is not ours,
        _NO_OFFSET for nothing at all.
        """
        self._open()
        positions = self._book.to_commit(self._offsets(message, offsets), offsets)
        if not positions:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001 - its public name
        if asynchronous:
            self._membership().commit_async(positions, self._book.tenure)
            return None
        self._commit_now(positions)
        return [RawPartition(*p, at.offset) for p, at in positions.items()]

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[RawPartition] | None = None
    ) -> None:
        """Note offsets for the next commit; needs enable.auto.offset.store=false."""
        if self._settings.auto_store:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _STORE_HINT))  # noqa: SLF001
        self._book.stored.update(self._owned_only(offsets_of(message, offsets)))

    def seek(self, partition: RawPartition) -> None:
        """Go on at another offset; the stored offset of before is forgotten."""
        self._book.stored.pop(key(partition), None)
        self._data.seek(partition)

    # -- partitions -------------------------------------------------------------------------------

    def assignment(self) -> list[RawPartition]:
        """Return the partitions that are read now."""
        return list(self._data.assignment())

    def assign(self, partitions: Sequence[RawPartition]) -> None:
        """Inside `on_assign`: begin at these offsets; without a subscription: read just these."""
        if self._member is None:
            self._data.assign(list(partitions))
            self._book.own(key(p) for p in partitions)
            return
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        """Inside `on_assign`: begin to read at these offsets."""
        wanted = [p for p in partitions if key(p) in self._book.owned]
        self._data.incremental_assign(wanted)
        if self._started is not None:
            self._started += wanted

    def unassign(self) -> None:
        """Stop reading; inside `on_revoke` and `on_lost` it has been done already."""
        if self._member is None:
            self._data.unassign()
            self._book = Bookkeeping()

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        """As in `unassign`: revoked partitions have stopped before the callback runs."""
        stop(self._data, [key(p) for p in partitions])

    def pause(self, partitions: Sequence[RawPartition]) -> None:
        """Stop handing out records of these partitions."""
        self._book.paused |= {key(p) for p in partitions}
        self._data.pause(list(partitions))

    def resume(self, partitions: Sequence[RawPartition]) -> None:
        """Go on with these partitions."""
        self._book.paused -= {key(p) for p in partitions}
        if not self._suspended:
            self._data.resume(list(partitions))

    def memberid(self) -> str | None:
        """Return the broker's id of this member, or None before the first join."""
        return (self._member.id or None) if self._member else None

    def generation(self) -> int:
        """Return the group's generation; -1 outside the group."""
        return self._member.generation if self._member else -1

    # -- inside -----------------------------------------------------------------------------------

    def _open(self) -> None:
        if self._closed:
            raise ConsumerClosed("the consumer is closed; make a new one")

    def _membership(self) -> Member:
        if self._member is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "subscribe first"))  # noqa: SLF001
        return self._member

    def _may_read(self) -> bool:
        """Hold back everything while the lease is over, and go on when it is renewed."""
        if self._member is None:
            return bool(self._book.owned)
        holds = self._member.may_read()
        if holds == self._suspended:
            self._suspended = not holds
            affected = [RawPartition(*p) for p in self._book.owned - self._book.paused]
            if affected and self._trusted:
                log.warning("the group's coordinator %s", "answers again" if holds else _SILENT)
            self._trusted &= bool(affected)
            (self._data.resume if holds else self._data.pause)(affected)
        self._trusted |= holds
        return holds

    def _still_ours(self) -> bool:
        """Look once more before records are handed out: this process may have been frozen."""
        waiting = () if self._member is None else tuple(self._member.inbox)
        return self._may_read() and not any(isinstance(e, Lost | Failed) for e in waiting)

    def _collect(self, count: int, deadline: float) -> list[Message]:
        """Fetch in slices; callbacks run only while nothing is held that they could give away."""
        messages: list[Message] = []
        while not messages or self._member is None or not self._member.inbox:
            if not messages:
                self._serve()
            left, wanted = deadline - self._clock.monotonic(), count - len(messages)
            if wanted > 0 and self._may_read():
                messages += self._fetch(wanted, max(0.0, min(left, self._slice())))
            elif left > 0:
                self._clock.sleep(min(left, self._slice()))
            if left <= 0 or (count and len(messages) >= count):
                break
        return messages

    def _slice(self) -> float:
        rebalancing = self._member is not None and self._member.rebalancing
        return SLICE_REBALANCING if rebalancing else SLICE

    def _fetch(self, wanted: int, timeout: float) -> list[Message]:
        messages = self._resets.settle(self._data.consume(wanted, timeout=timeout))
        if self._book.released:
            wall = self._clock.wall()
            for message in (m for m in messages if m.error() is None):
                self._book.first_read(key_of(message), wall)
        return messages

    def _serve(self) -> None:
        """Take everything from the inbox, in order; commit by the clock."""
        if self._member is None:
            return
        self._member.polled()
        while self._member.inbox:
            self._take(self._member.inbox.popleft())
        if self._failure is not None:
            raise self._failure
        now = self._clock.monotonic()
        if self._settings.auto_commit and now >= self._next_commit:
            self._next_commit = now + self._settings.auto_commit_interval
            if positions := self._book.to_commit(self._stored()):
                self._member.commit_async(positions, self._book.tenure)

    def _take(self, event: MembershipEvent) -> None:
        match event:
            case Assigned(partitions, tenure):
                self._book.tenure = tenure
                self._on_assigned(partitions)
            case Revoked(partitions, done):
                try:
                    self._on_revoked(partitions)
                finally:
                    done.set()
            case Lost(partitions):
                self._on_lost(partitions)
            case Committed(positions, error):
                self._on_committed(positions, error)
            case Failed(error):
                self._failure = error
                self._on_lost(frozenset(self._book.owned))

    def _on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        fresh = partitions - self._book.owned
        self._book.own(fresh)
        beginnings = starts(self._data, self._book, fresh, self._resets.begin)
        self._started = []
        try:
            self._call("assign", fresh)
        finally:  # also after a callback that failed: what is owned is read
            begun = {key(p) for p in self._started}
            self._started = None
            self._data.incremental_assign([p for p in beginnings if key(p) not in begun])
            # librdkafka remembers a pause beyond the end of an assignment; an owner begins afresh
            (self._data.pause if self._suspended else self._data.resume)(beginnings)

    def _on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        reached = {p: o for p, o in self._stored().items() if p in partitions}
        self._book.leaving = dict(reached)
        stop(self._data, partitions)
        try:
            self._call("revoke", partitions)
        finally:
            last = reached if self._settings.auto_commit else {}
            known = {p: o for p, o in self._book.committed.items() if p in partitions}
            self._book.forget(partitions)
            self._part({**known, **last})

    def _part(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what goes, with the time; after a failure the next owner reads it again."""
        if not offsets:
            return
        last = parting(offsets, self._clock.wall())
        try:
            self._membership().commit(last, self._book.tenure, timeout=5)
        except KafkaPythonError as error:
            log.warning("the last commit of %d partitions failed: %s", len(offsets), error)

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        gone = partitions & self._book.owned
        if not gone:
            return
        log.warning(
            "lost %s: the group went on without this consumer", ", ".join(map(str, sorted(gone)))
        )
        stop(self._data, gone)
        self._book.forget(gone)
        self._call("lost", gone)

    def _on_committed(
        self, positions: Mapping[TopicPartition, Position], error: Exception | None
    ) -> None:
        if error is None:
            self._book.on_committed(positions)
        else:
            retriable = getattr(error, "retriable", False)  # then the next one tells
            passing = retriable or isinstance(error, RebalanceInProgressError)
            log.log(
                logging.DEBUG if passing and self._settings.auto_commit else logging.WARNING,
                "commit of %d partitions failed: %s",
                len(positions),
                error,
            )
        if self._settings.on_commit is not None:
            answer = None if error is None else as_kafka_error(error)
            self._settings.on_commit(
                answer, [RawPartition(*p, at.offset) for p, at in positions.items()]
            )

    def _call(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        callback = self._callbacks.get(name)
        if callback is not None:
            callback(self, [RawPartition(*p) for p in sorted(partitions)])

    def _commit_now(self, positions: Mapping[TopicPartition, Position]) -> None:
        try:
            self._membership().commit(positions, self._book.tenure, timeout=30)
        except KafkaPythonError as error:
            raise KafkaException(as_kafka_error(error)) from error
        self._book.on_committed(positions)

    def _offsets(
        self, message: Message | None, offsets: Sequence[RawPartition] | None
    ) -> dict[TopicPartition, int]:
        if message is None and offsets is None:
            return self._stored()
        return self._owned_only(offsets_of(message, offsets))

    def _owned_only(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if strange := sorted(offsets.keys() - self._book.owned):
            names = ", ".join(map(str, strange))
            raise KafkaException(KafkaError(KafkaError._ASSIGNMENT_LOST, f"not ours: {names}"))  # noqa: SLF001
        return offsets

    def _stored(self) -> dict[TopicPartition, int]:
        """Return what a commit without arguments commits: stored offsets, or how far was read."""
        if not self._settings.auto_store:
            return dict(self._book.stored)
        reached = self._data.position([RawPartition(*p) for p in self._book.owned])
        offsets = {key(p): p.offset for p in reached if p.offset >= 0}
        return {**self._book.leaving, **offsets}

    def _leave(self) -> None:
        member = self._member
        if member is None:
            return
        member.stop()
        failed: list[Exception] = []
        while not member.stopped or member.inbox:
            while member.inbox:
                try:
                    self._take(member.inbox.popleft())
                except Exception as error:  # noqa: BLE001 - the group is left all the same
                    failed.append(error)
            self._clock.sleep(SLICE / 4)
        self._member = None
        if failed:
            raise failed[0]


_SILENT: Final = "has been silent for a session timeout: holding back all records until it answers"
_STORE_HINT: Final = "store_offsets() needs enable.auto.offset.store=false"
