"""Polls a `Consumer` on a thread of its own, for an application on an event loop.

1. Only this thread uses the consumer. Seeks, commits, queries and so on are actions that it carries
   out between two fetches or while it waits for the loop, in their order: librdkafka (2.16) answers
   no query of offsets while another thread waits for records.
2. The loop gets records and events in their order: records of a revoked partition arrive before its
   revocation, which waits until the loop has handled it.
3. At most two batches of records are on their way to the application; else only events are served.
4. A poll counts for `max.poll.interval.ms` only if the application has read meanwhile (KIP-62).
5. Offsets are stored, to be committed, of records that the application has taken.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from threading import Event, Thread
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from confluent_kafka import KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.type_vars import ResultT
from trimtab.consumer_sdk.client.client_adapters import partition_of, to_partition
from trimtab.consumer_sdk.consumer.asyncio.record_buffer import RecordBuffer
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.consumer.fetch_throttle import FetchThrottle
from trimtab.consumer_sdk.errors import ConsumerClosedError
from trimtab.consumer_sdk.membership.membership import Membership
from trimtab.consumer_sdk.readable_headers import keep_readable_headers

BATCH_RECORDS: Final = 500
BATCH_BYTES: Final = 4_000_000.0
POLL_TIMEOUT_S: Final = 0.2  # also the delay until positions are stored; actions and events end it
JOIN_POLL_TIMEOUT_S: Final = 0.02  # also the delay until a join is reported
FULL_WAIT_S: Final = 0.02  # also the delay of events
ERROR_DELAY_S: Final = 0.5  # between failed polls
JOIN_SETTLE_S: Final = 0.5  # without an event after a rebalance there are no partitions
LOOP_CHECK_INTERVAL_S: Final = 1.0  # whether the loop was closed meanwhile

Action: TypeAlias = Callable[[Consumer], object]
Offsets: TypeAlias = Mapping[TopicPartition, int]


class FetchedBatch(NamedTuple):
    """Records by partition, the ends of their logs, and error events."""

    records: dict[TopicPartition, list[Message]]
    highwaters: dict[TopicPartition, int]
    errors: list[Message]


class LoopSide(Protocol):
    """The application's side, whose methods run on the event loop."""

    def on_opened(self, consumer: Consumer) -> None:
        """Take the consumer, before all events."""

    def on_joined(self) -> None:
        """Note that the group has been joined, perhaps without partitions."""

    def on_fetched(self, batch: FetchedBatch) -> None:
        """Take records and error events."""

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Start to take records of these partitions."""

    async def on_revoked(self, partitions: frozenset[TopicPartition], *, lost: bool) -> Offsets:
        """Take no more records of these partitions; return their last positions."""
        ...

    def on_failed(self, error: Exception) -> None:
        """Take an error, after which polling continues."""

    def on_closed(self) -> None:
        """Note that the consumer is closed, or was never opened, and that the thread ends."""


class BackgroundConsumer(Consumer):
    """Consumer whose polls count only while the application reads (rule 4)."""

    has_reader: Callable[[], bool]
    has_actions: Callable[[], bool]  # ends a wait for records

    @property
    def has_joined(self) -> bool:
        """Whether a rebalance has ended; without partitions there is no event of it."""
        member = self._member
        return member is not None and member.generation_id >= 0 and not member.is_rebalancing

    def wake(self) -> None:
        """End a wait for records if there are actions; from any thread."""
        self._wake_fetch()

    def _take_turn(
        self, fetched: list[list[Message]], max_messages: int, deadline: float
    ) -> list[Message] | None:
        messages = super()._take_turn(fetched, max_messages, deadline)
        return [] if messages is None and self.has_actions() else messages

    def _record_poll(self, member: Membership) -> None:
        if self.has_reader():
            super()._record_poll(member)
        else:
            member.leave_if_overdue()

    def _read_handler_time(self) -> dict[str, float]:
        return {}  # this thread hands the records on: how long the loop works on them it does not know


class PollThread:
    """Thread that opens, polls and closes the consumer of an event loop's application."""

    def __init__(
        self,
        config: Mapping[str, Any],
        application: LoopSide,
        records: RecordBuffer,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._config = config
        self._application = application
        self._records = records  # this thread reads its counters and copies its positions
        self._loop = loop
        self._actions: deque[Action] = deque()
        self._calls: set[Future[Any]] = set()
        self._wake_up = Event()
        self._consumer: BackgroundConsumer | None = None
        self._is_full = False
        self._stopping = False
        self._joined = False
        self._clock = SystemClock()
        self._join_settles_at = 0.0
        self._fetched: list[Message] = []
        self._delivered = 0
        self._last_reads = 0
        self._stored: dict[TopicPartition, int] = {}
        self._throttle = FetchThrottle(self._clock, BATCH_BYTES)
        self._thread = Thread(target=self._run, name="trimtab-poll", daemon=True)

    # -- the event loop's thread ------------------------------------------------------------------

    def start(self) -> None:
        """Open the consumer and poll it until `stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Start to close the consumer; `on_closed` follows."""
        self._stopping = True
        self._wake()

    def submit(self, action: Action) -> None:
        """Carry out an action after the earlier ones; its error goes to `on_failed`."""
        self._actions.append(action)
        self._wake()

    def call(self, function: Callable[[Consumer], ResultT]) -> "Future[ResultT]":
        """Carry out an action and return its result or error."""
        result: Future[ResultT] = Future()
        self._calls.add(result)
        result.add_done_callback(self._calls.discard)
        self.submit(partial(_settle, result, function))
        return result

    def reject_calls(self) -> None:
        """End the calls that the thread has not carried out; for `on_closed`."""
        for result in list(self._calls):
            if result.set_running_or_notify_cancel():
                result.set_exception(ConsumerClosedError("the consumer was stopped meanwhile"))

    def subscribe(self, topics: list[str]) -> None:
        """Submit a subscription whose events go to the application."""
        callbacks = (self._on_assign, self._on_revoke, self._on_lost)
        self.submit(lambda consumer: consumer.subscribe(topics, *callbacks))

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Submit an assignment of these partitions, none of them paused."""
        chosen = [RawPartition(*p) for p in sorted(partitions)]

        def carry_out(consumer: Consumer) -> None:
            consumer.assign(chosen)
            consumer.resume(chosen)  # librdkafka keeps a pause beyond an assignment

        self.submit(carry_out)

    def unsubscribe(self, positions: Offsets) -> None:
        """Submit the end of a subscription, or of an assignment with these positions."""

        def carry_out(consumer: Consumer) -> None:
            consumer.store_offsets(offsets=_to_raw(positions))
            consumer.unsubscribe()
            consumer.unassign()

        self.submit(carry_out)

    def seek(self, partition: TopicPartition, offset: int, on_done: Callable[[], None]) -> None:
        """Submit a seek; `on_done` is called on the loop, before the records from there, or if it fails."""

        def carry_out(consumer: Consumer) -> None:
            try:
                _seek(consumer, RawPartition(*partition, offset))
                self._stored.pop(partition, None)  # as the consumer has
            finally:
                self._post(on_done)

        self.submit(carry_out)

    def resume_fetching(self) -> None:
        """Fetch more, if the thread waits until the application has taken records."""
        if self._is_full and self.has_room():
            self._wake_up.set()

    def has_room(self) -> bool:
        """Return whether less than a batch is on its way to the application."""
        return self._delivered - self._records.removed < BATCH_RECORDS

    def _wake(self) -> None:
        self._wake_up.set()
        if self._consumer is not None:
            self._consumer.wake()

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with BackgroundConsumer(self._config) as consumer:
                consumer.has_reader = self._has_read
                consumer.has_actions = self._has_actions
                self._consumer = consumer
                self._post(self._application.on_opened, consumer)
                while not self._stopping and not self._loop.is_closed():
                    self._try_turn(consumer)
                self._store_positions(consumer, self._records.positions)
        except Exception as error:  # noqa: BLE001 - the application gets every error
            self._post(self._application.on_failed, error)
        finally:
            self._post(self._application.on_closed)

    def _try_turn(self, consumer: BackgroundConsumer) -> None:
        try:
            self._take_turn(consumer)
            if not self._joined:
                self._report_join(consumer)
        except Exception as error:  # noqa: BLE001 - as above
            self._post(self._application.on_failed, error)
            self._wake_up.wait(ERROR_DELAY_S)
            self._wake_up.clear()

    def _report_join(self, consumer: BackgroundConsumer) -> None:
        now = self._clock.monotonic()
        if not consumer.has_joined:
            self._join_settles_at = now + JOIN_SETTLE_S
        elif now >= self._join_settles_at:
            self._joined = True
            self._post(self._application.on_joined)

    def _take_turn(self, consumer: Consumer) -> None:
        self._run_actions(consumer)
        self._store_positions(consumer, self._records.positions)
        if self.has_room():
            try:
                self._fetch(consumer)
            finally:
                self._deliver(consumer)
            return
        self._is_full = True
        consumer.consume(0, 0)
        if not self.has_room():  # else the application has not seen `_is_full`
            self._wake_up.wait(FULL_WAIT_S)
        self._wake_up.clear()
        self._is_full = False

    def _run_actions(self, consumer: Consumer) -> None:
        while self._actions:
            try:
                self._actions.popleft()(consumer)
            except Exception as error:  # noqa: BLE001 - as above
                self._post(self._application.on_failed, error)

    def _store_positions(self, consumer: Consumer, positions: Offsets) -> None:
        now = dict(positions)  # in one step for the loop's thread, which changes it
        if changed := {p: offset for p, offset in now.items() if self._stored.get(p) != offset}:
            consumer.store_offsets(offsets=_to_raw(changed))
        self._stored = now

    def _fetch(self, consumer: Consumer) -> None:
        limit = self._throttle.limit_records(BATCH_RECORDS)
        self._fetched = consumer.consume(limit, 0)
        # After the fetch, which may have used up the wake-up of an action.
        if not self._fetched and not self._has_actions():
            # Of what is to come only one: a larger number would be waited for.
            self._fetched = consumer.consume(1, POLL_TIMEOUT_S if self._joined else JOIN_POLL_TIMEOUT_S)
            more = consumer.consume(limit, 0) if self._fetched else []
            self._fetched = [*self._fetched, *more]  # a callback has delivered those before it

    def _deliver(self, consumer: Consumer) -> None:
        messages, self._fetched = self._fetched, []
        if messages:
            keep_readable_headers(messages)
            self._throttle.record_fetch(sum(map(len, messages)), len(messages))
            self._delivered += len(messages)
            self._post(self._application.on_fetched, _group_messages(consumer, messages))

    def _has_actions(self) -> bool:
        return bool(self._actions) or self._stopping

    def _has_read(self) -> bool:
        last, self._last_reads = self._last_reads, self._records.reads
        return self._records.waiting_reads > 0 or self._last_reads != last

    def _on_assign(self, consumer: Consumer, partitions: list[RawPartition]) -> None:
        # Seeks of the listener are carried out inside, so that reading starts there.
        assigned = frozenset(map(to_partition, partitions))
        self._wait_for_loop(consumer, self._application.on_assigned(assigned))

    def _on_revoke(self, consumer: Consumer, partitions: list[RawPartition]) -> None:
        revoked = frozenset(map(to_partition, partitions))
        positions = self._wait_for_loop(consumer, self._application.on_revoked(revoked, lost=False))
        self._store_positions(consumer, {**self._stored, **(positions or {})})

    def _on_lost(self, consumer: Consumer, partitions: list[RawPartition]) -> None:
        lost = frozenset(map(to_partition, partitions))
        self._wait_for_loop(consumer, self._application.on_revoked(lost, lost=True))

    def _post(self, function: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits
            self._loop.call_soon_threadsafe(function, *arguments)

    def _wait_for_loop(self, consumer: Consumer, coroutine: Coroutine[Any, Any, ResultT]) -> ResultT | None:
        """Return its result on the loop, None if the loop ends or cancels it; carry out its actions."""
        self._deliver(consumer)  # what was fetched before the event
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            return None
        future.add_done_callback(lambda _: self._wake_up.set())
        while not future.done() and not self._loop.is_closed():
            self._wake_up.wait(LOOP_CHECK_INTERVAL_S)
            self._wake_up.clear()
            self._run_actions(consumer)
        self._run_actions(consumer)
        return future.result() if future.done() and not future.cancelled() else None


def _group_messages(consumer: Consumer, messages: list[Message]) -> FetchedBatch:
    batch = FetchedBatch({}, {}, [])
    for message in messages:
        if message.error() is None:
            batch.records.setdefault(partition_of(message), []).append(message)
        else:
            batch.errors.append(message)
    for partition in batch.records:  # here: in confluent-kafka (2.16) it waits for a running consume()
        if watermarks := consumer.get_watermark_offsets(RawPartition(*partition), cached=True):
            batch.highwaters[partition] = watermarks[1]
    return batch


def _settle(result: "Future[ResultT]", function: Callable[[Consumer], ResultT], consumer: Consumer) -> None:
    if result.set_running_or_notify_cancel():
        try:
            result.set_result(function(consumer))
        except Exception as error:  # noqa: BLE001 - the caller gets it
            result.set_exception(error)


def _seek(consumer: Consumer, target: RawPartition) -> None:
    try:
        consumer.seek(target)
    except KafkaException:  # not being fetched: librdkafka starts or has stopped it
        consumer.incremental_unassign([target])
        consumer.incremental_assign([target])


def _to_raw(offsets: Offsets) -> list[RawPartition]:
    return [RawPartition(*partition, offset) for partition, offset in offsets.items()]
