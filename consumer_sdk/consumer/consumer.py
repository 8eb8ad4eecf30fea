"""The drop-in consumer: confluent-kafka's interface, Trimtab's assignor, exact ownership.

    with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "lake"}) as consumer:
        consumer.subscribe(["orders"], on_assign=start, on_revoke=flush, on_lost=drop)
        while running:
            for message in consumer.consume(5000, timeout=0.2):
                ...

Two planes (docs/design.md): a kafka-python member joins and commits (`membership.member`),
librdkafka fetches. The data plane is used by this module only, on the application's thread, inside
`poll`, `consume` and `close`. The rules:

1. Records are returned only of owned partitions, and only while the member's lease holds, which is
   checked before each fetch and before records are returned.
2. A revocation stops the fetching first, then runs `on_revoke`, then commits, and then releases the
   partitions to their next owner.
3. Nothing is committed for a lost partition.
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
    to_raw_offsets,
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

POLL_SLICE_S: Final = 0.02  # also the delay of a member's event while the application waits
REBALANCE_POLL_SLICE_S: Final = 0.004  # shorter, since the end of a rebalance adds and removes partitions


class Consumer(ClusterQueries):
    """Group consumer with confluent-kafka's methods and exceptions; not thread-safe, like confluent-kafka's.

    `config` has librdkafka's settings and `trimtab.*` (docs/consumer.md). Raises SettingError for
    an invalid configuration; `subscribe` raises BrokerUnreachableError if no broker answers.
    """

    def __init__(self, config: Mapping[str, Any], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_consumer_settings(config)
        self._data_plane = create_data_plane({**self._settings.librdkafka_config, **REPORTING_CONFIG})
        self._offset_resets = OffsetResetHandler(self._data_plane, self._settings.librdkafka_config)
        self._partitions = PartitionState()
        self._member: GroupMember | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._assigned_in_callback: list[RawPartition] | None = None
        self._suspended = False
        self._lease_changes_logged = False  # before the first read the absence of a lease is no news
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
        """Join the group and read these topics; names that begin with "^" are patterns.

        Callbacks take (consumer, partitions) and run inside `poll`, `consume` or `close`.
        `on_assign` may call `assign` or `incremental_assign` to start at other offsets. Partitions are
        released when `on_revoke` returns. `on_lost` defaults to `on_revoke`.
        """
        self._check_not_closed()
        self._callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        if self._member is None:
            # Not in the constructor: assign() without a subscription needs no membership.
            self._member = GroupMember(self._settings, self._clock)
        self._member.start(topics)
        warm_up_connections(self._data_plane, topics)

    def unsubscribe(self) -> None:
        """Revoke all partitions and leave the group."""
        self._leave_group()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, an error event, or None after `timeout` seconds (None: wait)."""
        messages = self.consume(1, -1 if timeout is None else timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records, fewer after `timeout` seconds (-1: wait).

        With `num_messages=0` only callbacks run. Raises GroupMembershipError if the group cannot be
        joined.
        """
        self._check_not_closed()
        deadline = self._clock.monotonic() + (inf if timeout < 0 else timeout)
        messages = self._collect_messages(num_messages, deadline)
        if messages and not self._recheck_lease():
            # The next owner may have read them already; fetch them again if we still own them.
            seek_back(self._data_plane, messages)
            return []
        return messages

    def close(self) -> None:
        """Revoke, commit, leave the group and close both clients; may be called twice."""
        if self._closed:
            return
        try:
            self._leave_group()
        finally:
            self._closed = True
            self._data_plane.close()

    def drain(self) -> None:
        """Request an empty assignment; this consumer stays in the group, idle."""
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
        """Commit a message's, the given, or all stored offsets, with the member's generation.

        Waits if not `asynchronous`. Raises KafkaException: ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID
        if the group removed this member, _ASSIGNMENT_LOST for a partition that it does not own,
        _NO_OFFSET if there is nothing to commit.
        """
        self._check_not_closed()
        if message is None and offsets is None:
            selected = self._committable_offsets()
        else:
            selected = self._require_owned(offsets_to_commit(message, offsets))
        positions = self._partitions.build_positions(selected, offsets)
        if not positions:
            raise KafkaException(KafkaError(KafkaError._NO_OFFSET))  # noqa: SLF001 - its public name
        member = self._require_member()
        epoch = self._partitions.membership_epoch
        if asynchronous:
            member.commit_async(positions, epoch)
            return None
        try:
            member.commit(positions, epoch, timeout=30)
        except KafkaPythonError as error:
            raise KafkaException(to_confluent_error(error)) from error
        self._partitions.on_committed(positions)
        return to_raw_offsets(positions)

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[RawPartition] | None = None
    ) -> None:
        """Store offsets for the next commit; needs enable.auto.offset.store=false."""
        if self._settings.auto_offset_store:
            hint = "store_offsets() needs enable.auto.offset.store=false"
            raise KafkaException(KafkaError(KafkaError._INVALID_ARG, hint))  # noqa: SLF001
        self._partitions.stored_offsets.update(self._require_owned(offsets_to_commit(message, offsets)))

    def seek(self, partition: RawPartition) -> None:
        """Continue at another offset and drop the stored one."""
        # A stored offset from before the seek would commit past records still to be read.
        self._partitions.stored_offsets.pop(to_partition(partition), None)
        self._data_plane.seek(partition)

    # -- partitions -------------------------------------------------------------------------------

    def assign(self, partitions: Sequence[RawPartition]) -> None:
        """Inside `on_assign`: start at these offsets; without a subscription: read these only."""
        if self._member is None:
            self._data_plane.assign(list(partitions))
            self._partitions.add_owned(to_partition(p) for p in partitions)
            return
        self.incremental_assign(partitions)

    def incremental_assign(self, partitions: Sequence[RawPartition]) -> None:
        """Inside `on_assign`: start to read at these offsets."""
        owned = [p for p in partitions if to_partition(p) in self._partitions.owned]
        self._data_plane.incremental_assign(owned)
        if self._assigned_in_callback is not None:
            self._assigned_in_callback += owned

    def unassign(self) -> None:
        """Stop reading; has no effect with a subscription, whose revocations stop it first."""
        if self._member is None:
            self._data_plane.unassign()
            self._partitions = PartitionState()

    def incremental_unassign(self, partitions: Sequence[RawPartition]) -> None:
        """Stop reading these partitions, unless their revocation has stopped them already."""
        stop_fetching(self._data_plane, [to_partition(p) for p in partitions])

    def pause(self, partitions: Sequence[RawPartition]) -> None:
        """Return no records of these partitions until `resume`."""
        self._partitions.paused |= {to_partition(p) for p in partitions}
        self._data_plane.pause(list(partitions))

    def resume(self, partitions: Sequence[RawPartition]) -> None:
        """Return records of these partitions again."""
        self._partitions.paused -= {to_partition(p) for p in partitions}
        if not self._suspended:  # else the renewed lease resumes them
            self._data_plane.resume(list(partitions))

    # -- inside -----------------------------------------------------------------------------------

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ConsumerClosedError("the consumer was used after close(); create a new one")

    def _require_member(self) -> GroupMember:
        if self._member is None:
            raise KafkaException(KafkaError(KafkaError._STATE, "subscribe first"))  # noqa: SLF001
        return self._member

    def _apply_lease(self) -> bool:
        if self._member is None:  # assign() without a subscription: no other reader, no lease
            return bool(self._partitions.owned)
        holds = self._member.holds_lease()
        if holds == self._suspended:
            self._suspended = not holds
            affected = [RawPartition(*p) for p in self._partitions.owned - self._partitions.paused]
            # The end of a lease without partitions, as before the first join, is no news.
            if affected and self._lease_changes_logged:
                log.warning("the group's coordinator %s", "answers again" if holds else _COORDINATOR_SILENT)
            self._lease_changes_logged &= bool(affected)
            # Paused, not unassigned: a renewed lease continues at the same positions.
            (self._data_plane.resume if holds else self._data_plane.pause)(affected)
        self._lease_changes_logged |= holds
        return holds

    def _recheck_lease(self) -> bool:
        # The process may have been frozen since the check before the fetch.
        pending = () if self._member is None else tuple(self._member.inbox)
        lost = any(isinstance(event, PartitionsLost | MembershipEnded) for event in pending)
        return self._apply_lease() and not lost

    def _collect_messages(self, max_messages: int, deadline: float) -> list[Message]:
        messages: list[Message] = []
        # Callbacks run only while `messages` is empty: they could release its partitions.
        while not messages or self._member is None or not self._member.inbox:
            if not messages:
                self._serve_member_events()
            left = deadline - self._clock.monotonic()
            missing = max_messages - len(messages)
            rebalancing = self._member is not None and self._member.is_rebalancing
            wait = min(left, REBALANCE_POLL_SLICE_S if rebalancing else POLL_SLICE_S)
            if missing > 0 and self._apply_lease():
                messages += self._fetch_messages(missing, max(0.0, wait))
            elif left > 0:
                self._clock.sleep(wait)
            if left <= 0 or (max_messages and len(messages) >= max_messages):
                break
        return messages

    def _fetch_messages(self, max_messages: int, timeout: float) -> list[Message]:
        fetched = self._data_plane.consume(max_messages, timeout=timeout)
        messages = self._offset_resets.handle_reset_events(fetched)
        if self._partitions.released_at:  # a handover is open; else skip the loop
            wall = self._clock.wall()
            for message in (m for m in messages if m.error() is None):
                self._partitions.record_first_read(partition_of(message), wall)
        return messages

    def _serve_member_events(self) -> None:
        if self._member is None:
            return
        self._member.record_poll()  # before the events, whose callbacks may take long
        while self._member.inbox:
            self._handle_event(self._member.inbox.popleft())
        # After the events, so that callbacks run for lost partitions before the error is raised.
        if self._failure is not None:
            raise self._failure
        now = self._clock.monotonic()
        if self._settings.auto_commit and now >= self._next_auto_commit_at:
            self._next_auto_commit_at = now + self._settings.auto_commit_interval
            if positions := self._partitions.build_positions(self._committable_offsets()):
                self._member.commit_async(positions, self._partitions.membership_epoch)

    def _handle_event(self, event: MembershipEvent) -> None:
        match event:
            case PartitionsAssigned(partitions, epoch):
                self._partitions.membership_epoch = epoch
                self._on_assigned(partitions)
            case PartitionsRevoked(partitions, released):
                try:
                    self._on_revoked(partitions)
                finally:  # a failed callback must not block the rebalance of the whole group
                    released.set()
            case PartitionsLost(partitions):
                self._on_lost(partitions)
            case CommitCompleted(positions, error):
                self._on_committed(positions, error)
            case MembershipEnded(error):
                self._failure = error
                self._on_lost(frozenset(self._partitions.owned))

    def _on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        added = partitions - self._partitions.owned
        self._partitions.add_owned(added)
        default = self._offset_resets.default_offset
        starts = resolve_start_offsets(self._data_plane, self._partitions, added, default)
        self._assigned_in_callback = []
        try:
            self._run_callback("assign", added)
        finally:  # a failed callback must not leave owned partitions unread
            started = {to_partition(p) for p in self._assigned_in_callback}
            self._assigned_in_callback = None
            self._data_plane.incremental_assign([p for p in starts if to_partition(p) not in started])
            # librdkafka keeps a pause beyond the end of an assignment, a new owner must not.
            (self._data_plane.pause if self._suspended else self._data_plane.resume)(starts)

    def _on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        offsets = {p: o for p, o in self._committable_offsets().items() if p in partitions}
        # Kept for commits inside on_revoke: librdkafka drops positions when fetching stops.
        self._partitions.revoking_offsets = dict(offsets)
        stop_fetching(self._data_plane, partitions)  # first: the callback sees a fixed position
        try:
            self._run_callback("revoke", partitions)
        finally:
            last = offsets if self._settings.auto_commit else {}
            committed = {p: o for p, o in self._partitions.committed_offsets.items() if p in partitions}
            self._partitions.remove_partitions(partitions)
            # Committed offsets, too: their metadata must carry the release time.
            self._commit_released({**committed, **last})

    def _commit_released(self, offsets: Mapping[TopicPartition, int]) -> None:
        if not offsets:
            return
        last = build_final_commit(offsets, self._clock.wall())
        try:
            self._require_member().commit(last, self._partitions.membership_epoch, timeout=5)
        except KafkaPythonError as error:  # the next owner repeats records; none is lost
            log.warning("the last commit of %d partitions failed: %s", len(offsets), error)

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        lost = partitions & self._partitions.owned
        if not lost:
            return
        log.warning("lost %s: the group removed this consumer", ", ".join(map(str, sorted(lost))))
        stop_fetching(self._data_plane, lost)
        self._partitions.remove_partitions(lost)
        self._run_callback("lost", lost)

    def _on_committed(
        self, positions: Mapping[TopicPartition, CommitPosition], error: Exception | None
    ) -> None:
        if error is None:
            self._partitions.on_committed(positions)
        else:
            retriable = getattr(error, "retriable", False)
            transient = retriable or isinstance(error, RebalanceInProgressError)
            # The next automatic commit repeats it, and warns if the error persists.
            level = logging.DEBUG if transient and self._settings.auto_commit else logging.WARNING
            log.log(level, "commit of %d partitions failed: %s", len(positions), error)
        if self._settings.on_commit is not None:
            raw_error = None if error is None else to_confluent_error(error)
            self._settings.on_commit(raw_error, to_raw_offsets(positions))

    def _run_callback(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        callback = self._callbacks.get(name)
        if callback is not None:
            callback(self, [RawPartition(*p) for p in sorted(partitions)])

    def _require_owned(self, offsets: dict[TopicPartition, int]) -> dict[TopicPartition, int]:
        # A commit of a partition that another member owns would rewind that member.
        if foreign := sorted(offsets.keys() - self._partitions.owned):
            names = ", ".join(map(str, foreign))
            raise KafkaException(KafkaError(KafkaError._ASSIGNMENT_LOST, f"not owned: {names}"))  # noqa: SLF001
        return offsets

    def _committable_offsets(self) -> dict[TopicPartition, int]:
        if not self._settings.auto_offset_store:
            return dict(self._partitions.stored_offsets)
        positions = self._data_plane.position([RawPartition(*p) for p in self._partitions.owned])
        offsets = {to_partition(p): p.offset for p in positions if p.offset >= 0}
        # Inside on_revoke librdkafka has no position any more; use the one from before.
        return {**self._partitions.revoking_offsets, **offsets}

    def _leave_group(self) -> None:
        member = self._member
        if member is None:
            return
        member.stop()
        # The listener waits for our acknowledgement of the revocation, so serve the inbox until then.
        failures: list[Exception] = []
        while not member.is_stopped or member.inbox:
            while member.inbox:
                try:
                    self._handle_event(member.inbox.popleft())
                except Exception as error:  # noqa: BLE001 - a failed callback must not keep us in the group
                    failures.append(error)
            self._clock.sleep(POLL_SLICE_S / 4)  # every handover at a shutdown waits for it
        self._member = None
        if failures:
            raise failures[0]


_COORDINATOR_SILENT: Final = "has not answered for a session timeout: returning no records until it answers"
