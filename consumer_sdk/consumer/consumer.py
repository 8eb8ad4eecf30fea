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
    create_data_plane,
    offsets_to_commit,
    partition_of,
    to_confluent_error,
    to_partition,
)
from trimtab.consumer_sdk.consumer.cluster_queries import ClusterQueries
from trimtab.consumer_sdk.consumer.fetch_control import (
    resolve_start_offsets,
    seek_back,
    stop_fetching,
    warm_up_connections,
)
from trimtab.consumer_sdk.consumer.offset_reset import REPORTING_CONFIG, OffsetResetHandler
from trimtab.consumer_sdk.consumer.partition_state import PartitionState, build_final_commit
from trimtab.consumer_sdk.consumer.settings import parse_consumer_settings
from trimtab.consumer_sdk.errors import ConsumerClosedError
from trimtab.consumer_sdk.membership.events import (
    CommitCompleted,
    CommitPosition,
    MembershipEnded,
    MembershipEvent,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from trimtab.consumer_sdk.membership.member import GroupMember

log = logging.getLogger("trimtab.consumer_sdk")

RebalanceCallback: TypeAlias = Callable[["Consumer", list[RawPartition]], Any]

POLL_SLICE_S: Final = 0.02
"""Seconds of one wait for records: how late a waiting application notices an event."""

REBALANCE_POLL_SLICE_S: Final = 0.004
"""The same while a join is under way, since its end gives and takes partitions."""


class Consumer(ClusterQueries):
    """A group consumer with confluent-kafka's methods; not thread-safe, as theirs.

    `config` holds librdkafka's names and `trimtab.*` (docs/consumer.md). Raises SettingError for
    what cannot work and BrokerUnreachableError when no broker answers. Methods raise `KafkaException`
    where confluent-kafka's do.
    """

    def __init__(self, config: Mapping[str, Any], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_consumer_settings(config)
        self._data_plane = create_data_plane(
            {**self._settings.librdkafka_config, **REPORTING_CONFIG}
        )
        self._offset_resets = OffsetResetHandler(self._data_plane, self._settings.librdkafka_config)
        self._partition_state = PartitionState()
        self._member: GroupMember | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._assigned_in_callback: list[RawPartition] | None = None
        self._suspended = False
        self._lease_changes_logged = (
            False  # whether it is news that the coordinator is silent, or answers
        )
        self._closed = False
        self._failure: TrimtabError | None = None
        self._next_auto_commit_at = self._clock.monotonic() + self._settings.auto_commit_interval

    # -- group ------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str],
        on_assign: RebalanceCallback | None = None,
        on_revoke: RebalanceCallback | None = None,
        on_lost: RebalanceCallback | None = None,
    ) -> None:
        """Join the group for these topics; names that begin with "^" are patterns.

        Callbacks take (consumer, partitions) and run inside `poll`, `consume` or `close`.
        `on_assign` may call `assign` or `incremental_assign` to begin at offsets of its own;
        partitions are released when `on_revoke` returns; without `on_lost`, `on_revoke` is called
        for lost partitions too.
        """
        self._check_not_closed()
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        if self._member is None:
            self._member = GroupMember(self._settings, self._clock)
        self._member.start(topics)
        warm_up_connections(self._data_plane, topics)

    def unsubscribe(self) -> None:
        """Leave the group; partitions are revoked first."""
        self._leave_group()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, an error event, or None after `timeout` seconds (None: wait)."""
        messages = self.consume(1, -1 if timeout is None else timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records, fewer after `timeout` seconds (-1: wait).

        With `num_messages=0` only callbacks are served. Raises GroupMembershipError when the group
        cannot be joined.
        """
        self._check_not_closed()
        deadline = self._clock.monotonic() + (inf if timeout < 0 else timeout)
        messages = self._collect_messages(num_messages, deadline)
        if messages and not self._recheck_lease():
            seek_back(self._data_plane, messages)
            return []
        return messages

    def close(self) -> None:
        """Revoke, commit, leave the group and free everything; may be called twice."""
        if self._closed:
            return
        try:
            self._leave_group()
        finally:
            self._closed = True
            self._data_plane.close()

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
        self._check_not_closed()
        positions = self._partition_state.build_positions(
            self._resolve_offsets(message, offsets), offsets
        )
        if not positions:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001 - its public name
        if asynchronous:
            self._require_member().commit_async(positions, self._partition_state.membership_epoch)
            return None
        self._commit_sync(positions)
        return [RawPartition(*p, at.offset) for p, at in positions.items()]

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[RawPartition] | None = None
    ) -> None:
        """Note offsets for the next commit; needs enable.auto.offset.store=false."""
        if self._settings.auto_offset_store:
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, _STORE_HINT))  # noqa: SLF001
        self._partition_state.stored_offsets.update(
            self._require_owned(offsets_to_commit(message, offsets))
        )

    def seek(self, partition: RawPartition) -> None:
        """Go on at another offset; the stored offset of before is forgotten."""
        self._partition_state.stored_offsets.pop(to_partition(partition), None)
        self._data_plane.seek(partition)

    # -- partitions -------------------------------------------------------------------------------

    def assignment(self) -> list[RawPartition]:
        """Return the partitions that are read now."""
        return list(self._data_plane.assignment())

    def assign(self, partitions: Sequence[RawPartition]) -> None:
        """Inside `on_assign`: begin at these offsets; without a subscription: read just these."""
        if self._member is None:
            self._data_plane.assign(list(partitions))
            self._partition_state.add_owned(to_partition(p) for p in partitions)
            return
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        """Inside `on_assign`: begin to read at these offsets."""
        wanted = [p for p in partitions if to_partition(p) in self._partition_state.owned]
        self._data_plane.incremental_assign(wanted)
        if self._assigned_in_callback is not None:
            self._assigned_in_callback += wanted

    def unassign(self) -> None:
        """Stop reading; inside `on_revoke` and `on_lost` it has been done already."""
        if self._member is None:
            self._data_plane.unassign()
            self._partition_state = PartitionState()

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        """As in `unassign`: revoked partitions have stopped before the callback runs."""
        stop_fetching(self._data_plane, [to_partition(p) for p in partitions])

    def pause(self, partitions: Sequence[RawPartition]) -> None:
        """Stop handing out records of these partitions."""
        self._partition_state.paused |= {to_partition(p) for p in partitions}
        self._data_plane.pause(list(partitions))

    def resume(self, partitions: Sequence[RawPartition]) -> None:
        """Go on with these partitions."""
        self._partition_state.paused -= {to_partition(p) for p in partitions}
        if not self._suspended:
            self._data_plane.resume(list(partitions))

    def memberid(self) -> str | None:
        """Return the broker's id of this member, or None before the first join."""
        return (self._member.member_id or None) if self._member else None

    def generation_id(self) -> int:
        """Return the group's generation; -1 outside the group."""
        return self._member.generation_id if self._member else -1

    # -- inside -----------------------------------------------------------------------------------

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ConsumerClosedError("the consumer is closed; make a new one")

    def _require_member(self) -> GroupMember:
        if self._member is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "subscribe first"))  # noqa: SLF001
        return self._member

    def _apply_lease(self) -> bool:
        """Hold back everything while the lease is over, and go on when it is renewed."""
        if self._member is None:
            return bool(self._partition_state.owned)
        holds = self._member.holds_lease()
        if holds == self._suspended:
            self._suspended = not holds
            affected = [
                RawPartition(*p) for p in self._partition_state.owned - self._partition_state.paused
            ]
            if affected and self._lease_changes_logged:
                log.warning(
                    "the group's coordinator %s", "answers again" if holds else _COORDINATOR_SILENT
                )
            self._lease_changes_logged &= bool(affected)
            (self._data_plane.resume if holds else self._data_plane.pause)(affected)
        self._lease_changes_logged |= holds
        return holds

    def _recheck_lease(self) -> bool:
        """Look once more before records are handed out: this process may have been frozen."""
        waiting = () if self._member is None else tuple(self._member.inbox)
        return self._apply_lease() and not any(
            isinstance(e, PartitionsLost | MembershipEnded) for e in waiting
        )

    def _collect_messages(self, max_messages: int, deadline: float) -> list[Message]:
        """Fetch in slices; callbacks run only while nothing is held that they could give away."""
        messages: list[Message] = []
        while not messages or self._member is None or not self._member.inbox:
            if not messages:
                self._serve_member_events()
            left, wanted = deadline - self._clock.monotonic(), max_messages - len(messages)
            if wanted > 0 and self._apply_lease():
                messages += self._fetch_messages(wanted, max(0.0, min(left, self._poll_slice_s())))
            elif left > 0:
                self._clock.sleep(min(left, self._poll_slice_s()))
            if left <= 0 or (max_messages and len(messages) >= max_messages):
                break
        return messages

    def _poll_slice_s(self) -> float:
        rebalancing = self._member is not None and self._member.is_rebalancing
        return REBALANCE_POLL_SLICE_S if rebalancing else POLL_SLICE_S

    def _fetch_messages(self, max_messages: int, timeout: float) -> list[Message]:
        messages = self._offset_resets.handle_reset_events(
            self._data_plane.consume(max_messages, timeout=timeout)
        )
        if self._partition_state.released_at:
            wall = self._clock.wall()
            for message in (m for m in messages if m.error() is None):
                self._partition_state.record_first_read(partition_of(message), wall)
        return messages

    def _serve_member_events(self) -> None:
        """Take everything from the inbox, in order; commit by the clock."""
        if self._member is None:
            return
        self._member.record_poll()
        while self._member.inbox:
            self._handle_event(self._member.inbox.popleft())
        if self._failure is not None:
            raise self._failure
        now = self._clock.monotonic()
        if self._settings.auto_commit and now >= self._next_auto_commit_at:
            self._next_auto_commit_at = now + self._settings.auto_commit_interval
            if positions := self._partition_state.build_positions(self._committable_offsets()):
                self._member.commit_async(positions, self._partition_state.membership_epoch)

    def _handle_event(self, event: MembershipEvent) -> None:
        match event:
            case PartitionsAssigned(partitions, tenure):
                self._partition_state.membership_epoch = tenure
                self._on_assigned(partitions)
            case PartitionsRevoked(partitions, done):
                try:
                    self._on_revoked(partitions)
                finally:
                    done.set()
            case PartitionsLost(partitions):
                self._on_lost(partitions)
            case CommitCompleted(positions, error):
                self._on_committed(positions, error)
            case MembershipEnded(error):
                self._failure = error
                self._on_lost(frozenset(self._partition_state.owned))

    def _on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        fresh = partitions - self._partition_state.owned
        self._partition_state.add_owned(fresh)
        beginnings = resolve_start_offsets(
            self._data_plane, self._partition_state, fresh, self._offset_resets.default_offset
        )
        self._assigned_in_callback = []
        try:
            self._run_callback("assign", fresh)
        finally:  # also after a callback that failed: what is owned is read
            begun = {to_partition(p) for p in self._assigned_in_callback}
            self._assigned_in_callback = None
            self._data_plane.incremental_assign(
                [p for p in beginnings if to_partition(p) not in begun]
            )
            # librdkafka remembers a pause beyond the end of an assignment; an owner begins afresh
            (self._data_plane.pause if self._suspended else self._data_plane.resume)(beginnings)

    def _on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        reached = {p: o for p, o in self._committable_offsets().items() if p in partitions}
        self._partition_state.revoking_offsets = dict(reached)
        stop_fetching(self._data_plane, partitions)
        try:
            self._run_callback("revoke", partitions)
        finally:
            last = reached if self._settings.auto_commit else {}
            known = {
                p: o for p, o in self._partition_state.committed_offsets.items() if p in partitions
            }
            self._partition_state.remove_partitions(partitions)
            self._commit_released({**known, **last})

    def _commit_released(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit what goes, with the time; after a failure the next owner reads it again."""
        if not offsets:
            return
        last = build_final_commit(offsets, self._clock.wall())
        try:
            self._require_member().commit(last, self._partition_state.membership_epoch, timeout=5)
        except KafkaPythonError as error:
            log.warning("the last commit of %d partitions failed: %s", len(offsets), error)

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        gone = partitions & self._partition_state.owned
        if not gone:
            return
        log.warning(
            "lost %s: the group went on without this consumer", ", ".join(map(str, sorted(gone)))
        )
        stop_fetching(self._data_plane, gone)
        self._partition_state.remove_partitions(gone)
        self._run_callback("lost", gone)

    def _on_committed(
        self, positions: Mapping[TopicPartition, CommitPosition], error: Exception | None
    ) -> None:
        if error is None:
            self._partition_state.on_committed(positions)
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
            answer = None if error is None else to_confluent_error(error)
            self._settings.on_commit(
                answer, [RawPartition(*p, at.offset) for p, at in positions.items()]
            )

    def _run_callback(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        callback = self._callbacks.get(name)
        if callback is not None:
            callback(self, [RawPartition(*p) for p in sorted(partitions)])

    def _commit_sync(self, positions: Mapping[TopicPartition, CommitPosition]) -> None:
        try:
            self._require_member().commit(
                positions, self._partition_state.membership_epoch, timeout=30
            )
        except KafkaPythonError as error:
            raise KafkaException(to_confluent_error(error)) from error
        self._partition_state.on_committed(positions)

    def _resolve_offsets(
        self, message: Message | None, offsets: Sequence[RawPartition] | None
    ) -> dict[TopicPartition, int]:
        if message is None and offsets is None:
            return self._committable_offsets()
        return self._require_owned(offsets_to_commit(message, offsets))

    def _require_owned(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        if strange := sorted(offsets.keys() - self._partition_state.owned):
            names = ", ".join(map(str, strange))
            raise KafkaException(KafkaError(KafkaError._ASSIGNMENT_LOST, f"not ours: {names}"))  # noqa: SLF001
        return offsets

    def _committable_offsets(self) -> dict[TopicPartition, int]:
        """Return what a commit without arguments commits: stored offsets, or how far was read."""
        if not self._settings.auto_offset_store:
            return dict(self._partition_state.stored_offsets)
        reached = self._data_plane.position([RawPartition(*p) for p in self._partition_state.owned])
        offsets = {to_partition(p): p.offset for p in reached if p.offset >= 0}
        return {**self._partition_state.revoking_offsets, **offsets}

    def _leave_group(self) -> None:
        member = self._member
        if member is None:
            return
        member.stop()
        failed: list[Exception] = []
        while not member.is_stopped or member.inbox:
            while member.inbox:
                try:
                    self._handle_event(member.inbox.popleft())
                except Exception as error:  # noqa: BLE001 - the group is left all the same
                    failed.append(error)
            self._clock.sleep(POLL_SLICE_S / 4)
        self._member = None
        if failed:
            raise failed[0]


_COORDINATOR_SILENT: Final = (
    "has been silent for a session timeout: holding back all records until it answers"
)
_STORE_HINT: Final = "store_offsets() needs enable.auto.offset.store=false"
