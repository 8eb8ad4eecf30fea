"""Reads ranges of topics for `verify`, without group membership or commits."""

from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.consumer_sdk.errors import BrokerUnreachableError, MissingAclError
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.options import connection
from trimtab.consumer_sdk.lake.schema import record_columns

BROKER_SILENCE_TIMEOUT_S: Final = 30.0
FETCH_TIMEOUT_S: Final = 0.1  # spent in full at the end of a log
FETCH_MAX_RECORDS: Final = 10_000

LOG_COLUMNS: Final = ["offset", "timestamp", "key"]
_INHERITED_SETTINGS: Final = ("isolation.level",)  # of the ingest: it decides which records exist

_READER_SETTINGS: Final = {
    "group.id": "trimtab-verify",  # nothing is committed
    "enable.auto.commit": False,
    "enable.partition.eof": True,  # else an end without records, as after compaction, is a timeout
    "auto.offset.reset": "earliest",
}
_MISSING_PARTITION_CODES: Final = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001 - its public name
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001 - its public name
)


def build_reader_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reader's settings of a flat configuration. Raises SettingError."""
    advice = "give --against-broker no, which verifies the tables alone"
    client = connection.extract_connection_settings(config, advice)
    inherited = {name: config[name] for name in _INHERITED_SETTINGS if name in config}
    return client | inherited | _READER_SETTINGS


class BrokerTopicLog:
    """Reads ranges of topics until closed. Raises SaslAuthenticationError, TlsHandshakeError."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        check_connection(config)
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._consumer = Consumer(dict(config))

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def read_bounds(self, where: TopicPartition) -> OffsetGap | None:
        """Return log start and end, None for an unknown partition. Raises BrokerUnreachableError."""
        raw = RawPartition(*where)
        try:
            bounds: Any = self._consumer.get_watermark_offsets(raw, timeout=BROKER_SILENCE_TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() in _MISSING_PARTITION_CODES:
                return None
            raise BrokerUnreachableError(self._bootstrap) from error
        if bounds is None:  # the timeout
            raise BrokerUnreachableError(self._bootstrap)
        return OffsetGap(*bounds)

    def read_records(self, where: TopicPartition, offsets: OffsetGap) -> Records:
        """Return offset, timestamp and key of a range's records. Raises BrokerUnreachableError."""
        self._consumer.assign([RawPartition(*where, offsets.first)])
        batches: list[Any] = []
        silent = 0
        while True:
            messages: list[Any] = self._consumer.consume(FETCH_MAX_RECORDS, timeout=FETCH_TIMEOUT_S)
            silent = 0 if messages else silent + 1
            if silent * FETCH_TIMEOUT_S > BROKER_SILENCE_TIMEOUT_S:
                raise BrokerUnreachableError(self._bootstrap)
            records = [m for m in messages if m.error() is None and m.offset() < offsets.next]
            if records:
                batches.append(record_columns.build_record_batch(where, records).select(LOG_COLUMNS))
            if _has_reached(messages, offsets.next):
                break
        self._consumer.unassign()
        schema = pa.schema([record_columns.RECORD_SCHEMA.field(name) for name in LOG_COLUMNS])
        return pa.Table.from_batches(batches, schema=schema)


def _has_reached(messages: list[Any], end: int) -> bool:
    """Return whether the range or the log has ended. Raises KafkaException, MissingAclError."""
    for message in messages:
        error = message.error()
        if error is None:
            if message.offset() >= end - 1:
                return True
        elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            return True
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            topic = message.topic()
            raise MissingAclError(f"topic {topic} cannot be read; grant Read on topic {topic}")
        elif error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            continue  # librdkafka looks for the group's coordinator, which this reader does not use
        elif error.fatal() or not error.retriable():
            raise KafkaException(error)
    return False
