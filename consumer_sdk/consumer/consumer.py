"""The drop-in consumer: confluent-kafka's interface, Trimtab's assignor, exact ownership.

    with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "lake"}) as consumer:
        consumer.subscribe(["orders"], on_assign=start, on_revoke=flush, on_lost=drop)
        while running:
            for message in consumer.consume(5000, timeout=0.2):
                ...

Two planes (docs/design.md): a kafka-python member joins and commits (`membership.member`),
librdkafka fetches. With `group.protocol=consumer` librdkafka does both
(`membership.broker_assigned_member`). The rules:

1. Records are returned only of owned partitions, and only while the member's lease holds, which is
   checked before each fetch and before records are returned.
2. A revocation stops the fetching first, then runs `on_revoke`, then commits, and then releases the
   partitions to their next owner.
3. Nothing is committed for a lost partition.
4. All methods may be called from any thread. Events are served, and records fetched, in turns of one
   thread: callbacks run in it. Methods that callbacks or their helpers use, such as `commit`, `pause`
   and `store_offsets`, wait for no turn.
5. `close` and `unsubscribe` inside a callback or a signal handler take effect when the running call
   ends; `close` ends a `consume` of another thread.
6. An exception inside `consume`, such as Ctrl-C, rewinds the records that it has not returned.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from threading import Thread
from typing import Any, Final, Self, TypeAlias

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.client.client_adapters import (
    check_subscription,
    create_data_plane,
    partition_of,
    to_partition,
)
from trimtab.consumer_sdk.client.fair_consumer import FairConsumer
from trimtab.consumer_sdk.client.fair_lock import FairLock
from trimtab.consumer_sdk.client.membership_events import (
    CommitCompleted,
    MembershipEnded,
    MembershipEvent,
    PartitionsAssigned,
    PartitionsLost,
    PartitionsRevoked,
)
from trimtab.consumer_sdk.client.offset_reset import REPORTING_CONFIG, OffsetResetHandler
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.consumer.fetch_control import (
    resolve_start_offsets,
    seek_back,
    stop_fetching,
    warm_up_connections,
)
from trimtab.consumer_sdk.consumer.handler_time import HandlerTime
from trimtab.consumer_sdk.consumer.partition_control import PartitionControl
from trimtab.consumer_sdk.consumer.partition_state import PartitionState
from trimtab.consumer_sdk.membership.broker_assigned.group_data_plane import GroupDataPlane
from trimtab.consumer_sdk.membership.membership import Membership
from trimtab.consumer_sdk.telemetry.factory import open_consumer_spans

log = logging.getLogger("trimtab.consumer_sdk")

RebalanceCallback: TypeAlias = Callable[["Consumer", list[RawPartition]], Any]

MAX_MESSAGES: Final = 1_000_000  # of one consume(), as in confluent-kafka
# Of a fetch that events and other threads' calls end; Ctrl-C waits for it, as in confluent-kafka (200 ms).
FETCH_WAIT_S: Final = 0.19
POLL_SLICE_S: Final = 0.02  # of waits that nothing ends, such as of a consumer without a lease
ACCESS_WAIT_S: Final = 0.5  # for a commit of the new protocol, which waits while the coordinator is silent
REBALANCE_POLL_SLICE_S: Final = 0.004  # shorter, since the end of a rebalance adds and removes partitions


class Consumer(PartitionControl):
    """Group consumer with confluent-kafka's methods and exceptions; thread-safe, like confluent-kafka's.

    `config` and `more_config`, which overrides it, have librdkafka's settings and `trimtab.*`
    (docs/consumer.md). Raises SettingError for an invalid configuration; `subscribe` raises
    BrokerUnreachableError if no broker answers.
    """

    def __init__(
        self, config: Mapping[str, Any] | None = None, /, *, clock: Clock | None = None, **more_config: Any
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_consumer_settings({**(config or {}), **more_config})
        settings = self._settings
        self._spans = open_consumer_spans(
            settings.group, settings.instance, self._clock, enabled=settings.telemetry
        )
        self._access = FairLock()
        plane = self._data_plane = self._create_data_plane()
        self._is_wakeable = isinstance(plane, FairConsumer) and plane.is_wakeable  # not a stand-in
        self._wake_fetch = plane.wake if isinstance(plane, FairConsumer) else lambda: None
        self._offset_resets = OffsetResetHandler(self._data_plane, self._settings.librdkafka_config)
        self._partitions = PartitionState()
        self._handler_time = HandlerTime(self._clock)
        self._member: Membership | None = None
        self._callbacks: dict[str, RebalanceCallback | None] = {}
        self._assigned_in_callback: list[RawPartition] | None = None
        self._suspended = False
        self._lease_changes_logged = False
        self._turn = FairLock()
        self._serving_event = False
        self._at_end_of_turn: list[Callable[[], None]] = []
        self._closing = False
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
        released when `on_revoke` returns. `on_lost` defaults to `on_revoke`. After the membership has
        ended with an error, it joins again.
        """
        self._check_not_closed()
        callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost or on_revoke}
        check_subscription(topics, callbacks)
        self._run_between_turns(partial(self._join_group, topics, callbacks))

    def unsubscribe(self) -> None:
        """Revoke all partitions and leave the group."""
        self._check_not_closed()
        self._run_between_turns(self._leave_group)

    def poll(self, timeout: float | None = -1) -> Message | None:
        """Return the next record, an error event, or None after `timeout` seconds (-1, None: wait)."""
        messages = self.consume(1, -1 if timeout is None else timeout)
        return messages[0] if messages else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to `num_messages` records, fewer after `timeout` seconds (-1: wait).

        With `num_messages=0` only callbacks run. Raises GroupMembershipError if the group cannot be
        joined.
        """
        self._check_not_closed()
        if not 0 <= num_messages <= MAX_MESSAGES:
            raise ValueError("num_messages must be between 0 and 1000000 (1M)")
        begun_at = self._clock.monotonic()
        deadline = begun_at + (inf if timeout < 0 else timeout)
        self._handler_time.on_call(num_messages, begun_at)
        fetched: list[list[Message]] = []
        try:
            while (messages := self._take_turn(fetched, num_messages, deadline)) is None:
                pass
            if self._spans.is_on and messages:
                self._spans.record_receive(messages, self._clock.monotonic() - begun_at)
            self._handler_time.on_return(messages)
            return messages  # noqa: TRY300 - inside: no signal can come between it and the caller (rule 6)
        except BaseException:
            self._put_back(fetched)
            raise

    def close(self) -> None:
        """Revoke, commit, leave the group and close both clients; may be called twice."""
        if not self._closed:
            self._closing = True
            self._run_between_turns(self._close_clients)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_closed", True):  # perhaps the constructor failed
            return
        # As by a crash: no callback runs in another thread, nor is committed what it would have flushed.
        self._callbacks = {}
        self._settings = replace(self._settings, auto_commit=False)
        with suppress(RuntimeError):  # the interpreter ends, and starts no thread
            Thread(target=self.close, name="trimtab-close", daemon=True).start()

    # -- turns ------------------------------------------------------------------------------------

    def _take_turn(
        self, fetched: list[list[Message]], max_messages: int, deadline: float
    ) -> list[Message] | None:
        """Serve events and fetch; return the messages, or None if the call has to go on."""
        left = max(0.0, deadline - self._clock.monotonic())
        if not self._turn.acquire(min(left, POLL_SLICE_S)):
            return [] if left <= 0 or self._closing else None
        try:
            self._check_not_closed()
            if not self._access.wait_until_free(ACCESS_WAIT_S):
                return [] if left <= ACCESS_WAIT_S or self._closing else None
            self._serve_member_events()
            messages = self._collect_messages(fetched, max_messages, deadline)
            if not (self._closing or self._at_end_of_turn or (messages and not self._recheck_lease())):
                return messages
            # The next owner may have read them already; fetch them again if we still own them.
            self._put_back(fetched)
            return None if self._at_end_of_turn and not self._closing else []  # noqa: TRY300 - as in `consume`
        except BaseException:
            self._put_back(fetched)  # in the turn: another thread may return later records after it
            raise
        finally:
            self._turn.release()
            self._run_deferred()

    def _run_between_turns(self, action: Callable[[], None]) -> None:
        """Run it in a turn of its own; inside a callback or a signal handler, when the turn ends."""
        self._at_end_of_turn.append(action)
        self._run_deferred()

    def _run_deferred(self) -> None:
        while self._at_end_of_turn and not self._turn.is_mine:
            # The turn may wait for a lock that the handler's thread holds, as inside commit().
            is_awaited = self._partitions.is_locked_here or self._access.is_mine
            self._wake_fetch()
            if not self._turn.acquire(0 if is_awaited else -1):
                return
            try:
                if self._at_end_of_turn:  # else another thread has run it
                    self._at_end_of_turn.pop(0)()
            finally:
                self._turn.release()

    def _close_clients(self) -> None:
        if self._closed:
            return
        try:
            self._leave_group()
            self._remove_unsubscribed(self._partitions.owned)
        finally:
            self._closed = True
            self._data_plane.close()

    # -- inside -----------------------------------------------------------------------------------

    def _recheck_lease(self) -> bool:
        # The process may have been frozen since the check before the fetch.
        member = self._member
        return self._apply_lease() and (member is None or not self._has_lost_partitions(member))

    def _collect_messages(
        self, fetched: list[list[Message]], max_messages: int, deadline: float
    ) -> list[Message] | None:
        """Fetch; None without messages and before the deadline, for events and other threads."""
        messages: list[Message] = []
        while True:
            left = deadline - self._clock.monotonic()
            missing = max_messages - len(messages)
            if missing > 0 and self._apply_lease():
                messages += self._fetch_messages(fetched, missing, self._limit_wait(left, self._is_wakeable))
            else:
                self._wait_without_records(self._limit_wait(left))
            if left <= 0 or (max_messages and len(messages) >= max_messages) or self._closing:
                return messages
            if not messages:
                return None
            # Callbacks run only without messages: they could release their partitions.
            if self._member is not None and self._member.inbox:
                return messages

    def _limit_wait(self, left: float, is_wakeable: bool = False) -> float:  # noqa: FBT001, FBT002 - hot
        if is_wakeable and not (self._member is not None and self._member.inbox):
            return max(0.0, min(left, FETCH_WAIT_S))
        rebalancing = self._member is not None and self._member.is_rebalancing
        return max(0.0, min(left, REBALANCE_POLL_SLICE_S if rebalancing else POLL_SLICE_S))

    def _fetch_messages(
        self, fetched: list[list[Message]], max_messages: int, timeout: float
    ) -> list[Message]:
        # A signal handler cannot run between the fetch and the append, as it could between two
        # statements: `map` and `extend` are one call for the interpreter.
        fetched.extend(map(self._data_plane.consume, (max_messages,), (timeout,)))
        messages = self._offset_resets.handle_reset_events(fetched[-1])
        if not messages:  # else a call that waits for long would collect empty lists
            fetched.pop()
        if self._partitions.released_at:  # a handover is open; else skip the loop
            wall = self._clock.wall()
            for message in (m for m in messages if m.error() is None):
                self._partitions.record_first_read(partition_of(message), wall)
        return messages

    def _put_back(self, fetched: list[list[Message]]) -> None:
        """Let the next call return these messages, as if they had not been fetched."""
        messages = [message for batch in fetched for message in batch]
        fetched.clear()
        owned = [m for m in messages if m.error() is None and partition_of(m) in self._partitions.owned]
        self._partitions.last_positions.update(seek_back(self._data_plane, owned))
        self._offset_resets.handle_again(m for m in messages if m.error() is not None)

    def _serve_member_events(self) -> None:
        if self._member is not None:
            self._record_poll(self._member)  # before the events, whose callbacks may take long
            while self._member.inbox and not self._serving_event:
                self._serve_first_event(self._member)
        # After the events, so that callbacks run for lost partitions before the error is raised.
        if self._failure is not None:
            raise self._failure.with_traceback(None)  # else it grows by each raise
        self._commit_if_due()

    def _serve_first_event(self, member: Membership) -> None:
        self._serving_event = True
        try:
            self._handle_event(member.inbox[0])
        finally:  # only now: an exception before, such as Ctrl-C, must not lose a revocation
            member.inbox.popleft()
            self._serving_event = False

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
            case PartitionsLost(partitions, released):
                try:
                    self._on_lost(partitions)
                finally:  # as above
                    released.set()
            case CommitCompleted(positions, error):
                self._spans.end_commit(positions, error)
                self._on_committed(positions, error)
            case MembershipEnded(error):
                self._failure = error
                self._on_lost(frozenset(self._partitions.owned))

    def _on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        added = partitions - self._partitions.owned
        starts = [RawPartition(*p) for p in sorted(added)]  # without offsets librdkafka looks them up
        default = self._offset_resets.default_offset
        self._partitions.add_owned(added)
        self._assigned_in_callback = []
        try:
            # librdkafka keeps a pause beyond an assignment, a new owner only what its callback pauses.
            self._data_plane.resume(starts)
            starts = resolve_start_offsets(self._data_plane, self._partitions, added, default)
            self._run_callback("assign", added)
        finally:  # Ctrl-C or a failed callback must not leave owned partitions unread
            started = {to_partition(p) for p in self._assigned_in_callback}
            self._assigned_in_callback = None
            self._data_plane.incremental_assign([p for p in starts if to_partition(p) not in started])
            paused = added if self._suspended else self._partitions.paused
            self._data_plane.pause([RawPartition(*p) for p in paused & added])

    def _on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        offsets: dict[TopicPartition, int] = {}
        try:
            offsets.update((p, o) for p, o in self._committable_offsets().items() if p in partitions)
            # Kept for commits inside on_revoke: librdkafka drops positions when fetching stops.
            self._partitions.last_positions.update(offsets)
            stop_fetching(self._data_plane, partitions)  # first: the callback sees a fixed position
            self._run_callback("revoke", partitions)
        finally:
            stop_fetching(self._data_plane, partitions)  # after an exception, or an assign() in the callback
            self._release_partitions(partitions, offsets)

    def _on_lost(self, partitions: frozenset[TopicPartition]) -> None:
        lost = partitions & self._partitions.owned
        if not lost:
            return
        log.warning("lost %s: the group removed this consumer", ", ".join(map(str, sorted(lost))))
        stop_fetching(self._data_plane, lost)
        self._partitions.remove_partitions(lost)
        self._run_callback("lost", lost)

    def _run_callback(self, name: str, partitions: Iterable[TopicPartition]) -> None:
        callback = self._callbacks.get(name)
        if callback is not None:
            callback(self, [RawPartition(*p) for p in sorted(partitions)])

    def _join_group(self, topics: Sequence[str], callbacks: dict[str, RebalanceCallback | None]) -> None:
        self._check_not_closed()  # again: a callback's close() may have come first
        if self._failure is not None:
            self._leave_group()
            self._failure = None
        self._callbacks = callbacks
        if self._member is None:
            self._remove_unsubscribed(self._partitions.owned)
            # Not in the constructor: assign() without a subscription needs no membership.
            self._member = self._create_member()
        self._member.start(topics)
        warm_up_connections(self._data_plane, topics)

    def _create_data_plane(self) -> DataConsumer:
        joining, fetching = self._settings.joining_config, self._settings.librdkafka_config
        if joining is None:
            return create_data_plane(
                {**fetching, **REPORTING_CONFIG}, partial(FairConsumer, access=self._access)
            )
        create = partial(GroupDataPlane, clock=self._clock, access=self._access)
        return create_data_plane({**joining, **REPORTING_CONFIG}, create)

    def _create_member(self) -> Membership:
        if isinstance(self._data_plane, GroupDataPlane):
            from trimtab.consumer_sdk.membership.broker_assigned import broker_assigned_member  # noqa: PLC0415 - as below

            return broker_assigned_member.BrokerAssignedMember(self._settings, self._clock, self._data_plane)
        # kafka-python and numpy, half of the time of an import: only a consumer that joins needs them
        from trimtab.consumer_sdk.membership.classic import member  # noqa: PLC0415

        return member.GroupMember(self._settings, self._clock, self._wake_fetch)

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
                    self._serve_first_event(member)
                except Exception as error:  # noqa: BLE001 - a failed callback must not keep us in the group
                    failures.append(error)
            member.wait(POLL_SLICE_S / 4)  # every handover at a shutdown waits for it
        self._member = None
        if failures:
            raise failures[0]
