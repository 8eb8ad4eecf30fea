"""Reads a control topic from where the last read ended up to its end, on one connection that stays open."""

from collections.abc import Iterator
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.sidecar.errors import BrokerTimeoutError, NoBrokersAvailableError
from trimtab.sidecar.kafka.cluster_client import explain_unreachable_brokers, format_error_with_grant
from trimtab.sidecar.kafka.control_topic_store import (
    READ_BATCH_RECORDS,
    READ_BATCH_TIMEOUT_S,
    build_reader_config,
    is_partition_end,
    raise_for_error,
)
from trimtab.sidecar.settings.settings import SidecarSettings

BEGINNING: Final = 0


class ControlTopicTail:
    """Follows one topic; for one thread at a time."""

    def __init__(self, settings: SidecarSettings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self._consumer: Consumer | None = None
        self._next_offsets: dict[int, int] = {}  # by partition
        self._must_rewind = False
        self._partitions: tuple[int, ...] = ()

    def read_new(self) -> Iterator[Message]:
        """Yield the messages since the last call, up to the present end; none without the topic.

        Raises BrokerTimeoutError. What was yielded before an error is not yielded again.
        """
        try:
            yield from self._read_new()
        except KafkaException as error:
            self.close()
            unreachable = explain_unreachable_brokers(error, self._settings.bootstrap)
            if unreachable is not None:
                raise NoBrokersAvailableError(unreachable) from error
            text = format_error_with_grant(error, f"Read on topic {self._topic}")
            raise BrokerTimeoutError(f"control topic {self._topic}: {text}") from error

    def close(self) -> None:
        """Close the connection; the next read opens another and goes on."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _read_new(self) -> Iterator[Message]:
        if self._must_rewind:
            self.close()
            self._next_offsets, self._must_rewind = {}, False
        if self._consumer is None and not self._open():
            return
        consumer = self._consumer
        assert consumer is not None, "opened above"
        ends = self._fetch_ends(consumer)
        silence = 0.0
        while any(self._next_offsets.get(p, BEGINNING) < end for p, end in ends.items()):
            messages = consumer.consume(READ_BATCH_RECORDS, timeout=READ_BATCH_TIMEOUT_S)
            silence = 0.0 if messages else silence + READ_BATCH_TIMEOUT_S
            if silence > self._settings.timeout:
                raise BrokerTimeoutError(
                    f"control topic {self._topic}: no response in {self._settings.timeout:g} s"
                )
            for message in messages:
                # compaction and markers leave gaps: the end of a partition counts, too
                partition, offset = message.partition() or 0, message.offset() or 0
                if is_partition_end(message):
                    self._next_offsets[partition] = max(offset, ends.get(partition, 0))
                elif message.error() is None:
                    self._next_offsets[partition] = offset + 1
                    yield message

    def _open(self) -> bool:
        """Open the connection; return whether the topic exists. Raises KafkaException."""
        consumer = Consumer(build_reader_config(self._settings))
        try:
            metadata = consumer.list_topics(self._topic, timeout=self._settings.timeout).topics[self._topic]
            if metadata.error is not None and metadata.error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                consumer.close()
                return False
            raise_for_error(metadata.error)
            offsets = self._next_offsets
            consumer.assign(
                [RawPartition(self._topic, p, offsets.get(p, OFFSET_BEGINNING)) for p in metadata.partitions]
            )
        except KafkaException:
            consumer.close()
            raise
        self._partitions = tuple(metadata.partitions)
        self._consumer = consumer
        return True

    def _fetch_ends(self, consumer: Consumer) -> dict[int, int]:
        ends: dict[int, int] = {}
        for number in self._partitions:
            partition = RawPartition(self._topic, number)
            # None after a timeout, which the stubs do not say
            offsets: Any = consumer.get_watermark_offsets(partition, timeout=self._settings.timeout)
            if offsets is None:
                raise BrokerTimeoutError(
                    f"control topic {self._topic}: no response in {self._settings.timeout:g} s"
                )
            if offsets[1] < self._next_offsets.get(number, BEGINNING):  # recreated: it begins anew
                self._must_rewind = True
            ends[number] = offsets[1]
        return ends
