"""The drop-in consumer of asyncio: aiokafka's interface, Trimtab's assignor, exact ownership.

    async with AsyncConsumer("orders", bootstrap_servers="localhost:9092", group_id="shop") as consumer:
        async for record in consumer:
            ...

A `Consumer` runs underneath, polled by a thread of its own (`poll_thread`). The rules:

1. Methods are called on the loop that awaited `start`; none blocks it. Those that are no coroutines,
   such as `seek` and `pause`, hold for the next record, although the thread carries them out later.
2. Records are returned only of owned partitions, and only while the member's lease holds, which is
   checked again when they are returned.
3. A record leaves the buffer in the step that returns it: a cancelled call loses none.
4. Rebalances go on while the application does not read. Partitions are released when the listener's
   coroutine has ended; until then they are assigned, may be committed, and return no records.
5. Offsets are committed of records that were returned, not of those that were fetched.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.consumer.asyncio.application_listener import ASSIGNED, LOST, REVOKED, call_listener
from trimtab.consumer_sdk.consumer.asyncio.async_arguments import (
    CommitOffsets,
    Partitions,
    Subscription,
    check_offsets,
    check_partitions,
    check_seek_offset,
    check_subscription,
)
from trimtab.consumer_sdk.consumer.asyncio.async_errors import (
    consumer_stopped,
    illegal_state,
    is_stopped_error,
    to_client_error,
    to_record_error,
)
from trimtab.consumer_sdk.consumer.asyncio.async_queries import AsyncQueries
from trimtab.consumer_sdk.consumer.asyncio.async_settings import check_record_limit, parse_async_settings
from trimtab.consumer_sdk.consumer.asyncio.poll_thread import FetchedBatch, PollThread
from trimtab.consumer_sdk.consumer.asyncio.record_buffer import ConsumerRecord, RecordBuffer, to_record
from trimtab.consumer_sdk.consumer.consumer import Consumer

LEASE_CHECK_INTERVAL_S: Final = 0.01  # far below the margin of a lease; a check costs more than a record
LEASE_POLL_INTERVAL_S: Final = 0.1  # while records wait for the lease

RecordsByPartition = dict[TopicPartition, list[ConsumerRecord]]


class AsyncConsumer(AsyncQueries):
    """Group consumer with aiokafka's methods, keyword arguments and errors.

    Settings may have librdkafka's names, aiokafka's, and those of Trimtab (docs/asyncio.md). Raises
    SettingError for invalid ones, TypeError for topics that are no names. `start` raises
    KafkaConnectionError if no broker answers, and may be repeated then, or after it was cancelled.
    """

    def __init__(self, *topics: str, **settings: Any) -> None:
        self._settings = parse_async_settings(settings)
        super().__init__(self._settings.config)
        decoders = self._settings.key_deserializer, self._settings.value_deserializer
        self._records = RecordBuffer(
            partial(to_record, key_deserializer=decoders[0], value_deserializer=decoders[1])
        )
        self._clock = SystemClock()
        self._lease_checked_at = 0.0
        self._subscription: Subscription | None = None
        self._listener: Any = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        self._paused: frozenset[TopicPartition] = frozenset()
        self._crowded_out: set[TopicPartition] = set()  # parked for a call that asks for others
        self._errors: list[Exception] = []
        self._news = asyncio.Event()  # records, an error, an assignment, the end
        self._joined = self._finished = False
        self._is_ending = False  # the thread of a start() that failed or was cancelled
        if topics:
            self.subscribe(topics)

    # -- group ------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect, and wait for the first assignment if there is a subscription."""
        if self._is_ending:  # its member leaves the group before the next one joins
            await self._forget_thread()
        if self._closed:
            raise consumer_stopped()
        if self._thread is not None:
            raise illegal_state("start() was called twice")
        self._finished = self._joined = False
        self._thread = PollThread(self._settings.config, self, self._records, asyncio.get_running_loop())
        if self._subscription is not None:
            self._submit_subscription(self._thread, self._subscription)
        self._thread.start()
        try:
            await self._wait_until_joined()
            await self.topics()
        except BaseException as error:
            self._is_ending, self._consumer = True, None
            self._thread.stop()
            if isinstance(error, Exception):  # else cancelled, and the thread may wait for a broker
                await self._forget_thread()
            raise

    async def stop(self) -> None:
        """Commit if commits are automatic, leave the group and close; may be called twice."""
        self._closed = True
        self._news.set()
        if self._thread is not None:
            self._thread.stop()
            await self._wait_until_finished()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def subscribe(
        self, topics: Collection[str] = (), pattern: str | None = None, listener: Any = None
    ) -> None:
        """Join the group and read these topics, or those whose names begin with a match of `pattern`.

        The listener has `on_partitions_assigned` and `on_partitions_revoked`, functions or coroutines
        that take a set of the partitions that change, and perhaps `on_partitions_lost`; else lost
        ones are revoked. Raises TypeError, ValueError, and IllegalStateError after `assign`.
        """
        subscription = check_subscription(topics, pattern, listener)
        self._replace_subscription(subscription)
        self._listener = listener

    def unsubscribe(self) -> None:
        """Leave the group; the listener is not called."""
        self._records.drop(self._assigned)
        manual = self._subscription is not None and self._subscription.kind == "partitions"
        positions = self._records.take_positions() if manual else {}  # else the revocation takes them
        self._subscription, self._listener, self._assigned = None, None, frozenset()
        self._paused, self._crowded_out = frozenset(), set()
        if self._thread is not None:
            self._thread.unsubscribe(positions)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions without a subscription. Raises IllegalStateError after `subscribe`."""
        chosen = frozenset(TopicPartition(*p) for p in partitions)
        self._replace_subscription(Subscription("partitions", partitions=chosen))
        self._records.drop(self._assigned)
        self._records.take_positions()
        self._records.readable |= chosen
        self._assigned, self._paused = chosen, self._paused & chosen
        self._crowded_out &= chosen
        for partition in self._paused:
            self._suspend(partition)

    def subscription(self) -> frozenset[str]:
        """Return the subscribed topics; of a pattern those with assigned partitions."""
        if self._subscription is not None and self._subscription.kind == "topics":
            return frozenset(self._subscription.names)
        return frozenset(p.topic for p in self._assigned)

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        return set(self._assigned)

    # -- records ----------------------------------------------------------------------------------

    async def getone(self, *partitions: TopicPartition) -> ConsumerRecord:
        """Return the next record, of these partitions if any are given; wait for one."""
        while True:
            self._begin_read(partitions)
            if self._may_return() and (record := self._records.take_one(partitions)) is not None:
                self._get_thread().resume_fetching()
                return record
            await self._wait_for_records(partitions, None)

    async def getmany(
        self, *partitions: TopicPartition, timeout_ms: int = 0, max_records: int | None = None
    ) -> RecordsByPartition:
        """Return the records at hand by partition, {} if none comes within `timeout_ms`.

        At most `max_records`, by default the setting `max_poll_records`.
        """
        check_record_limit("max_records", max_records)
        limit = max_records or self._settings.max_poll_records
        deadline = self._clock.monotonic() + timeout_ms / 1000
        while True:
            self._begin_read(partitions)
            if self._may_return() and (taken := self._records.take(partitions, limit)):
                self._get_thread().resume_fetching()
                return taken
            if (left := deadline - self._clock.monotonic()) <= 0:
                return {}
            await self._wait_for_records(partitions, left)

    def __aiter__(self) -> Self:
        if self._closed:
            raise consumer_stopped()
        return self

    async def __anext__(self) -> ConsumerRecord:
        try:
            return await self.getone()
        except Exception as error:
            if is_stopped_error(error):
                raise StopAsyncIteration from None
            raise

    # -- positions --------------------------------------------------------------------------------

    async def commit(self, offsets: CommitOffsets | None = None) -> None:
        """Commit the positions, or these offsets, with the member's generation.

        Raises CommitFailedError if the group removed this member, IllegalStateError for partitions that
        are not assigned, ValueError and TypeError for other values.
        """
        if self._subscription is None:
            raise illegal_state("nothing is subscribed or assigned")
        self._raise_first_error()  # without a membership there is nothing to commit, which would be no error
        if offsets is None:
            requested = [RawPartition(*p, o) for p, o in self._records.positions.items()]
        else:
            requested = check_offsets(offsets)
            self._require_assigned(list(offsets))
        if requested:
            await self._call(Consumer.commit, None, requested, False)  # noqa: FBT003 - confluent-kafka's

    async def position(self, partition: TopicPartition) -> int:
        """Return the offset of the next record to return. Raises IllegalStateError if not assigned."""
        self._require_assigned([partition])
        known = self._records.next_offset(partition)
        if known is None:
            known = await self.committed(partition)
        if known is not None:
            return known
        query = self.end_offsets if self._settings.starts_at_end else self.beginning_offsets
        return (await query([partition]))[partition]

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at another offset. Raises ValueError, and IllegalStateError if not assigned."""
        check_seek_offset(offset)
        self._require_assigned([partition])
        target = TopicPartition(*partition)
        self._get_thread().seek(target, offset, self._records.begin_seek(target, offset))

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the end of the log when records of it last arrived; None before."""
        self._require_assigned([partition])
        return self._records.highwaters.get(partition)

    async def seek_to_beginning(self, *partitions: TopicPartition) -> bool:
        """Continue at the first offsets of these partitions, by default of all assigned ones."""
        self._seek_all(await self.beginning_offsets(self._check_seekable(partitions)))
        return True

    async def seek_to_end(self, *partitions: TopicPartition) -> bool:
        """Continue at the ends of these partitions, by default of all assigned ones."""
        self._seek_all(await self.end_offsets(self._check_seekable(partitions)))
        return True

    async def seek_to_committed(self, *partitions: TopicPartition) -> dict[TopicPartition, int | None]:
        """Continue at the committed offsets, where there are any, and return them."""
        committed = {p: await self.committed(p) for p in self._check_seekable(partitions)}
        self._seek_all({p: offset for p, offset in committed.items() if offset is not None})
        return committed

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions until `resume`."""
        check_partitions(partitions)
        self._require_assigned(partitions)
        self._paused |= frozenset(TopicPartition(*p) for p in partitions)
        self._crowded_out.difference_update(partitions)
        for partition in partitions:
            self._suspend(TopicPartition(*partition))

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return set(self._paused)

    def resume(self, *partitions: TopicPartition) -> None:
        """Return records of these partitions again."""
        check_partitions(partitions)
        for partition in self._paused.intersection(partitions):
            self._crowded_out.discard(partition)
            self._continue(partition)
        self._paused = self._paused.difference(partitions)

    # -- inside -----------------------------------------------------------------------------------

    def _begin_read(self, partitions: Partitions) -> None:
        self._opened()
        self._records.reads += 1
        self._raise_first_error()
        if self._crowded_out:
            for partition in [p for p in self._crowded_out if not partitions or p in partitions]:
                self._crowded_out.discard(partition)
                self._continue(partition)

    def _raise_first_error(self) -> None:
        if self._errors:
            raise self._errors.pop(0)

    def _may_return(self) -> bool:
        now = self._clock.monotonic()
        if now - self._lease_checked_at >= LEASE_CHECK_INTERVAL_S:
            if not self._opened().holds_lease():
                return False
            self._lease_checked_at = now
        return True

    async def _wait_for_records(self, partitions: Partitions, timeout: float | None) -> None:  # noqa: ASYNC109
        if partitions and not self._get_thread().has_room():
            self._crowd_out(partitions)
        if len(self._records):  # they wait for the lease, or are not asked for
            timeout = LEASE_POLL_INTERVAL_S if timeout is None else min(timeout, LEASE_POLL_INTERVAL_S)
        self._records.waiting_reads += 1
        try:
            await self._wait_for_news(timeout)
        finally:
            self._records.waiting_reads -= 1

    async def _wait_for_news(self, timeout: float | None) -> None:  # noqa: ASYNC109
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout):
                await self._news.wait()

    async def _wait_until_joined(self) -> None:
        while not self._joined:
            self._raise_first_error()
            if self._finished:  # by stop()
                raise consumer_stopped()
            await self._wait_for_news(None)

    async def _wait_until_finished(self) -> None:
        while not self._finished:
            await self._wait_for_news(None)

    async def _forget_thread(self) -> None:
        await self._wait_until_finished()
        self._thread, self._is_ending = None, False
        self._errors.clear()

    def _crowd_out(self, wanted: Partitions) -> None:
        """Make room: the records of other partitions would be in the way until they are asked for."""
        for partition in self._records.partitions:
            if partition not in wanted:
                self._crowded_out.add(partition)
                self._suspend(partition)

    def _suspend(self, partition: TopicPartition) -> None:
        self._records.park(partition)
        self._get_thread().submit(lambda consumer: consumer.pause([RawPartition(*partition)]))

    def _continue(self, partition: TopicPartition) -> None:
        if (offset := self._records.unpark(partition)) is not None:
            self.seek(partition, offset)
        self._get_thread().submit(lambda consumer: consumer.resume([RawPartition(*partition)]))

    def _seek_all(self, offsets: Mapping[TopicPartition, int]) -> None:
        for partition, offset in offsets.items():
            self.seek(partition, offset)

    def _check_seekable(self, partitions: Partitions) -> Partitions:
        check_partitions(partitions)
        self._require_assigned(partitions or self._assigned)
        if not partitions and not self._assigned:
            raise illegal_state("no partitions are assigned")
        return partitions or self._assigned

    def _replace_subscription(self, subscription: Subscription) -> None:
        before = self._subscription
        if before is not None and before.kind != subscription.kind:
            raise illegal_state("Subscription to topics, partitions and pattern are mutually exclusive")
        self._subscription = subscription
        if self._thread is not None:
            self._submit_subscription(self._thread, subscription)

    def _submit_subscription(self, thread: PollThread, subscription: Subscription) -> None:
        if subscription.kind != "partitions":
            thread.subscribe(list(subscription.names))
        else:
            thread.assign(subscription.partitions)

    async def _tell_listener(self, name: str, partitions: frozenset[TopicPartition]) -> None:
        if not (self._closed or self._is_ending):  # as in aiokafka: stop() does not call it
            await call_listener(self._listener, name, partitions)

    # -- called by the poll thread, on the loop ---------------------------------------------------

    def on_opened(self, consumer: Consumer) -> None:
        """Take the consumer."""
        self._consumer = None if self._is_ending else consumer
        if self._subscription is None or self._subscription.kind == "partitions":
            self.on_joined()

    def on_joined(self) -> None:
        """Let `start` return."""
        self._joined = True
        self._news.set()

    def on_fetched(self, batch: FetchedBatch) -> None:
        """Take records, and the errors that concern the application."""
        for partition, messages in batch.records.items():
            self._records.add(partition, messages)
        self._records.highwaters.update(batch.highwaters)
        self._records.removed += len(batch.errors)
        self._errors += [error for error in map(to_record_error, batch.errors) if error is not None]
        self._news.set()

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """Take records of these partitions; wait for the listener."""
        if self._subscription is not None:  # else unsubscribe() is on its way
            self._assigned |= partitions
            self._records.readable |= partitions
        self.on_joined()
        await self._tell_listener(ASSIGNED, partitions)

    async def on_revoked(
        self, partitions: frozenset[TopicPartition], *, lost: bool
    ) -> dict[TopicPartition, int]:
        """Wait for the listener, forget the partitions and return their positions."""
        self._records.drop(partitions)
        try:
            await self._tell_listener(LOST if lost else REVOKED, partitions)
        finally:
            positions = self._records.take_positions(partitions)
            self._assigned -= partitions
            self._paused -= partitions
            self._crowded_out -= partitions
        return positions

    def on_failed(self, error: Exception) -> None:
        """Keep the error for the next call."""
        self._errors = self._errors or [to_client_error(error)]  # a lasting one comes again
        self._news.set()

    def on_closed(self) -> None:
        """Let `stop` return."""
        if self._thread is not None:
            self._thread.reject_calls()
        self._finished = True
        self._news.set()
