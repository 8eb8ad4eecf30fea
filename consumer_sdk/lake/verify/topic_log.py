"""The broker's side of `verify`: what a topic holds, read without a group and without a commit."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.common.kafka_security.preflight import knock
from trimtab.consumer_sdk.errors import BrokerUnreachable, NotAllowed
from trimtab.consumer_sdk.lake import connection
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap
from trimtab.consumer_sdk.lake.ports import Records
from trimtab.consumer_sdk.lake.schema import record_columns

PATIENCE: Final = 30.0
"""Seconds that a broker may be silent."""

WAIT: Final = 0.1
"""Seconds of one fetch: it waits so long for more, also at the end of a log."""

AT_ONCE: Final = 10_000
"""Records of one fetch."""

KEPT: Final = ["offset", "timestamp", "key"]
_READ: Final = ("isolation.level",)
"""What else an ingest says of which records there are."""

_OWN: Final = {
    "group.id": "trimtab-verify",  # nothing is committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
}
_GONE: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
)


def settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reader's settings of a flat configuration. Raises SettingError."""
    no_broker = "give --against-broker no: then only the tables themselves are looked at"
    found = connection.settings(config, no_broker)
    read = {name: config[name] for name in _READ if name in config}
    return found | read | _OWN


class BrokerLog:
    """Reads ranges of topics; close it. Making it raises LoginRefused, TlsFailed."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        knock(config)
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._consumer = Consumer(dict(config))

    def close(self) -> None:
        """Let the connections go."""
        self._consumer.close()

    def bounds(self, where: TopicPartition) -> Gap | None:
        """Return the first offset that is there and the end; None: there is no such partition.

        Raises BrokerUnreachable.
        """
        try:
            found: Any = self._consumer.get_watermark_offsets(
                RawPartition(*where), timeout=PATIENCE
            )
        except KafkaException as error:
            if error.args[0].code() in _GONE:
                return None
            raise BrokerUnreachable(self._bootstrap) from error
        if found is None:
            raise BrokerUnreachable(self._bootstrap)
        return Gap(*found)

    def read(self, where: TopicPartition, wanted: Gap) -> Records:
        """Return offset, timestamp and key of the records in a range. Raises BrokerUnreachable."""
        self._consumer.assign([RawPartition(*where, wanted.first)])
        batches: list[Any] = []
        silent = 0
        while True:
            messages = self._consumer.consume(AT_ONCE, timeout=WAIT)
            silent = 0 if messages else silent + 1
            if silent * WAIT > PATIENCE:
                raise BrokerUnreachable(self._bootstrap)
            records = [m for m in messages if m.error() is None and _offset(m) < wanted.next]
            if records:
                batches.append(record_columns.record_batch(where, records).select(KEPT))
            if _done(messages, wanted.next):
                break
        self._consumer.unassign()
        schema = pa.schema([record_columns.SCHEMA.field(name) for name in KEPT])
        return pa.Table.from_batches(batches, schema=schema)


def _done(messages: list[Any], following: int) -> bool:
    """Whether the end of the range, or of the log, has come. Raises KafkaException, NotAllowed."""
    for message in messages:
        error = message.error()
        if error is None:
            if _offset(message) >= following - 1:
                return True
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return True
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = message.topic()
            raise NotAllowed(f"topic {topic} may not be read; grant Read on topic {topic}")
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            continue  # librdkafka looks for the group's coordinator, whom nobody needs here
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return False


def _offset(message: Any) -> int:
    return int(message.offset())
