"""Converts partitions, messages and errors between the two Kafka clients."""

import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_security.client_config import SECURITY_SETTINGS
from trimtab.common.kafka_security.preflight import check_token
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.errors import InvalidSettingError
from trimtab.consumer_sdk.log_rate_limit import LIBRDKAFKA_LOGGER


def to_confluent_error(error: Exception) -> KafkaError:
    """Return confluent-kafka's error for an error of either client."""
    if isinstance(error, KafkaException):
        return cast("KafkaError", error.args[0])
    from kafka.errors import CommitFailedError, KafkaTimeoutError  # noqa: PLC0415 - slow to import
    from kafka.errors import KafkaError as KafkaPythonError  # noqa: PLC0415

    cause = error.args[0] if isinstance(error, CommitFailedError) and error.args else error
    if isinstance(cause, KafkaPythonError) and not isinstance(cause, CommitFailedError):
        if isinstance(cause, KafkaTimeoutError):
            return KafkaError(KafkaError._TIMED_OUT, str(error))  # noqa: SLF001 - its public name
        # Both clients use the protocol's error codes.
        code = int(getattr(cause, "errno", -1))
        return KafkaError(code, str(error), retriable=bool(cause.retriable))
    # CommitFailedError without a cause: the member is outside the group.
    return KafkaError(KafkaError.ILLEGAL_GENERATION, str(error))


def name_partitions(error: KafkaError, requested: Iterable[RawPartition]) -> KafkaException:
    """Return librdkafka's error of a commit, which names no partition, with those that may be its cause."""
    names = ", ".join(f"{p.topic}-{p.partition}" for p in requested)
    text = f"{error.str()}: one of {names}"
    return KafkaException(KafkaError(error.code(), text, error.fatal(), error.retriable()))


def list_client_errors() -> tuple[type[Exception], ...]:
    """Return the base errors of both clients; kafka-python's only once a member has loaded it."""
    errors = sys.modules.get("kafka.errors")
    return (KafkaException,) if errors is None else (KafkaException, errors.KafkaError)


def create_data_plane(
    config: dict[str, Any], create: Callable[[dict[str, Any]], DataConsumer] = DataConsumer
) -> DataConsumer:
    """Create librdkafka's consumer. Raises InvalidSettingError, SaslAuthenticationError."""
    check_token(config)  # librdkafka waits 10 s for it, and names no cause
    return _create_librdkafka_consumer(config, create)


def check_librdkafka_values(config: Mapping[str, Any]) -> None:
    """Raise InvalidSettingError for values that librdkafka rejects; nothing is connected or called back."""
    offline = {"bootstrap.servers", "metadata.broker.list", "debug", "statistics.interval.ms"}
    offline |= SECURITY_SETTINGS  # need files, tokens and secrets: checked when the consumer connects
    checked = {n: v for n, v in config.items() if n not in offline and not callable(v)}
    _create_librdkafka_consumer(checked).close()


def _create_librdkafka_consumer(
    config: Mapping[str, Any], create: Callable[[dict[str, Any]], DataConsumer] = DataConsumer
) -> DataConsumer:
    try:
        return create({"logger": LIBRDKAFKA_LOGGER, **config})
    except KafkaException as error:
        raise InvalidSettingError(f"librdkafka rejects the configuration: {error.args[0].str()}") from None


def check_subscription(topics: Sequence[str], callbacks: Mapping[str, object]) -> None:
    """Raise what confluent-kafka's subscribe() does: TypeError, and KafkaException for no topics."""
    if isinstance(topics, str):  # else a subscription to its letters
        raise TypeError("expected list of topic unicode strings")
    for name, callback in callbacks.items():
        if callback is not None and not callable(callback):
            raise TypeError(f"on_{name} expects a callable")
    if not topics:
        hint = "subscribe() needs a topic; unsubscribe() leaves the group"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, hint))  # noqa: SLF001 - its public name


def offsets_to_commit(
    message: Message | None, offsets: Sequence[RawPartition] | None
) -> list[RawPartition] | None:
    """Return the offsets that a call names, of a message's successor or as given; None for neither.

    Raises ValueError, TypeError and KafkaException as confluent-kafka does.
    """
    if message is not None and offsets is not None:
        raise ValueError("message and offsets are mutually exclusive")
    if message is not None:
        return [_offset_after(message)]
    return None if offsets is None else list(offsets)


def _offset_after(message: Message) -> RawPartition:
    if (error := message.error()) is not None:  # an end of partition has the offset of the next record
        hint = f"Cannot commit offsets for message with error: '{error.str()}'"
        raise KafkaException(KafkaError(KafkaError._INVALID_ARG, hint))  # noqa: SLF001 - its public name
    epoch = message.leader_epoch()
    offset = int(message.offset() or 0) + 1
    return RawPartition(*partition_of(message), offset, leader_epoch=-1 if epoch is None else epoch)


def has_offset(partition: RawPartition) -> bool:
    """Return whether the offset is one of a log, and not OFFSET_INVALID, OFFSET_END or the like."""
    return partition.offset >= 0


def encode_group_metadata(
    group: str, generation: int, member_id: str, group_instance_id: str | None
) -> bytes:
    """Return a membership as librdkafka's producer reads it in send_offsets_to_transaction (KIP-447)."""
    # rd_kafka_consumer_group_metadata_write in rdkafka_cgrp.c, in the byte order of this machine
    instance = b"\x01" if group_instance_id is None else b"\x00" + group_instance_id.encode() + b"\x00"
    names = f"{group}\0{member_id}\0".encode()
    return b"CGMDv2:" + struct.pack("=i", generation) + names + instance


def to_raw_offsets(positions: Mapping[TopicPartition, CommitPosition]) -> list[RawPartition]:
    """Return committed positions as confluent-kafka does."""
    return [RawPartition(*p, at.offset) for p, at in positions.items()]


def to_partition(partition: RawPartition) -> TopicPartition:
    """Return the partition as a TopicPartition."""
    return TopicPartition(partition.topic, partition.partition)


def partition_of(message: Message) -> TopicPartition:
    """Return a message's partition."""
    return TopicPartition(str(message.topic()), int(message.partition() or 0))
