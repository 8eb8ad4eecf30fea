"""Queries of an AsyncConsumer to its cluster and group, with aiokafka's results; and spans of its records."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import copy_context
from typing import Any, Final, NamedTuple

from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.telemetry.export import is_telemetry_on
from trimtab.common.type_vars import ResultT
from trimtab.consumer_sdk.consumer.asyncio.async_errors import (
    consumer_stopped,
    illegal_state,
    load_client_errors,
    to_client_error,
)
from trimtab.consumer_sdk.consumer.asyncio.poll_thread import PollThread
from trimtab.consumer_sdk.consumer.asyncio.record_buffer import ConsumerRecord
from trimtab.consumer_sdk.consumer.asyncio.record_messages import to_messages
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.telemetry.consumer_spans import NOTHING

QUERY_TIMEOUT_S: Final = 10.0  # of a query, during which nothing is fetched


class OffsetAndTimestamp(NamedTuple):
    """Result of `offsets_for_times`; librdkafka does not tell the record's timestamp."""

    offset: int
    timestamp: int | None = None


class AsyncQueries:
    """Methods of `AsyncConsumer` that wait for answers of brokers."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._closed = False
        self._is_traced = is_telemetry_on(config)
        self._consumer: Consumer | None = None
        self._thread: PollThread | None = None
        self._partition_ids: dict[str, set[int]] = {}

    async def topics(self) -> set[str]:
        """Return the names of all topics."""
        metadata = await self._call(Consumer.list_topics, None, QUERY_TIMEOUT_S)
        self._partition_ids = {name: set(topic.partitions) for name, topic in metadata.topics.items()}
        return set(self._partition_ids)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return a topic's partitions as of start() or topics(); None for an unknown topic."""
        return self._partition_ids.get(topic)

    async def committed(self, partition: TopicPartition) -> int | None:
        """Return the group's committed offset; None without one."""
        requested = [RawPartition(*partition)]
        (found,) = await self._call(Consumer.committed, requested, QUERY_TIMEOUT_S)
        return found.offset if found.offset >= 0 else None

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset of each log."""
        return {p: low for p, (low, _) in (await self._query_watermarks(partitions)).items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each log."""
        return {p: high for p, (_, high) in (await self._query_watermarks(partitions)).items()}

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return each partition's first offset at or after the time in ms; None if there is none.

        Raises ValueError for a negative time.
        """
        for partition, at in timestamps.items():
            if at < 0:
                raise ValueError(f"The target time for partition {partition} is {at}: it cannot be negative")
        requested = [RawPartition(*p, int(at)) for p, at in timestamps.items()]
        found = await self._call(Consumer.offsets_for_times, requested, QUERY_TIMEOUT_S)
        return {
            TopicPartition(p.topic, p.partition): OffsetAndTimestamp(p.offset) if p.offset >= 0 else None
            for p in found
        }

    def trace_processing(
        self, records: ConsumerRecord | Iterable[ConsumerRecord] | Mapping[Any, list[ConsumerRecord]]
    ) -> AbstractContextManager[None]:
        """Return a block whose span processes these records; it does nothing without `trimtab.telemetry`.

        They may be the record of `getone`, a list, or all that `getmany` returned.
        """
        return self._opened().trace_processing(to_messages(records)) if self._is_traced else NOTHING

    # -- inside -----------------------------------------------------------------------------------

    def assignment(self) -> set[TopicPartition]:
        """Return the assigned partitions."""
        raise NotImplementedError

    async def _query_watermarks(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, tuple[int, int]]:
        return await self._call(_query_watermarks, [TopicPartition(*p) for p in partitions])

    async def _call(self, method: Callable[..., ResultT], *arguments: Any) -> ResultT:
        """Call a method of the consumer on its thread; raise aiokafka's errors."""
        context = copy_context()  # of the span in which the application calls
        call = self._get_thread().call(lambda consumer: context.run(method, consumer, *arguments))
        try:
            return await asyncio.wrap_future(call)
        except Exception as error:
            translated = to_client_error(error)
            if translated is error:
                raise
            raise translated from error

    def _opened(self) -> Consumer:
        if self._closed:
            raise consumer_stopped()
        if self._consumer is None:
            raise illegal_state("the consumer has not been started: await start() first")
        return self._consumer

    def _get_thread(self) -> PollThread:
        self._opened()
        assert self._thread is not None
        return self._thread

    def _require_assigned(self, partitions: Collection[TopicPartition]) -> None:
        if missing := sorted(set(partitions) - self.assignment()):
            names = ", ".join(str(TopicPartition(*p)) for p in missing)
            raise illegal_state(f"not assigned: {names}")


def _query_watermarks(
    consumer: Consumer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, tuple[int, int]]:
    found: dict[TopicPartition, tuple[int, int]] = {}
    for partition in partitions:
        watermarks = consumer.get_watermark_offsets(RawPartition(*partition), timeout=QUERY_TIMEOUT_S)
        if watermarks is None:
            raise load_client_errors().KafkaTimeoutError(f"{partition}: no answer to a query of its offsets")
        found[partition] = watermarks
    return found
