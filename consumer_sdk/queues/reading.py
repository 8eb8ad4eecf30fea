"""Taking messages from a consumer as a queue wants them: soon, and only of what is still ours."""

from collections.abc import Iterable

from confluent_kafka import KafkaException
from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.consumer_sdk.consumer import Consumer


def gather(consumer: Consumer, most: int, wait: float) -> list[Raw]:
    """Return up to `most` messages as soon as there is one, none after `wait` seconds.

    Raises KafkaException for an error that the consumer hands out as an event.
    """
    if most <= 0:
        return consumer.consume(0, wait)
    raws = consumer.consume(1, wait)
    if raws and most > 1:
        raws += consumer.consume(most - 1, 0)
        reading = {p.partition for p in consumer.assignment()}  # what was revoked in between is not
        raws = [raw for raw in raws if raw.partition() in reading]
    errors = [error for raw in raws if (error := raw.error()) is not None]
    if errors:
        rewind(consumer, raws)
        raise KafkaException(errors[0])
    return raws


def rewind(consumer: Consumer, raws: Iterable[Raw]) -> None:
    """Read these messages again, as far as their partitions are still ours."""
    first: dict[int, RawPartition] = {}
    for raw in raws:
        if raw.error() is None:
            at = RawPartition(str(raw.topic()), int(raw.partition() or 0), int(raw.offset() or 0))
            first.setdefault(at.partition, at)
    reading = {p.partition for p in consumer.assignment()}
    for partition, at in first.items():
        if partition in reading:
            consumer.seek(at)
