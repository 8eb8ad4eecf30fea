"""Converts partitions, messages and errors between the two Kafka clients."""

from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition
from kafka.errors import CommitFailedError, KafkaTimeoutError
from kafka.errors import KafkaError as KafkaPythonError

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import InvalidSettingError
from trimtab.consumer_sdk.log_rate_limit import LIBRDKAFKA_LOGGER
from trimtab.consumer_sdk.membership.events import CommitPosition


def to_confluent_error(error: Exception) -> KafkaError:
    """Return confluent-kafka's error for an error of kafka-python."""
    cause = error.args[0] if isinstance(error, CommitFailedError) and error.args else error
    if isinstance(cause, KafkaPythonError) and not isinstance(cause, CommitFailedError):
        if isinstance(cause, KafkaTimeoutError):
            return KafkaError(KafkaError._TIMED_OUT, str(error))  # noqa: SLF001 - its public name
        # Both clients use the protocol's error codes.
        code = int(getattr(cause, "errno", -1))
        return KafkaError(code, str(error), retriable=bool(cause.retriable))
    # CommitFailedError without a cause: the member is outside the group.
    return KafkaError(KafkaError.ILLEGAL_GENERATION, str(error))


def create_data_plane(config: dict[str, Any]) -> DataConsumer:
    """Create librdkafka's consumer. Raises InvalidSettingError."""
    try:
        return DataConsumer({"logger": LIBRDKAFKA_LOGGER, **config})
    except KafkaException as error:
        raise InvalidSettingError(f"librdkafka rejects the configuration: {error.args[0].str()}") from None


def offsets_to_commit(
    message: Message | None, offsets: Sequence[RawPartition] | None
) -> dict[TopicPartition, int]:
    """Return the offsets to commit for a message or for partitions with offsets."""
    if message is not None:
        return {partition_of(message): int(message.offset() or 0) + 1}
    return {to_partition(p): p.offset for p in offsets or ()}


def to_raw_offsets(positions: Mapping[TopicPartition, CommitPosition]) -> list[RawPartition]:
    """Return committed positions as confluent-kafka does."""
    return [RawPartition(*p, at.offset) for p, at in positions.items()]


def to_partition(partition: RawPartition) -> TopicPartition:
    """Return the partition as a TopicPartition."""
    return TopicPartition(partition.topic, partition.partition)


def partition_of(message: Message) -> TopicPartition:
    """Return a message's partition."""
    return TopicPartition(str(message.topic()), int(message.partition() or 0))
