"""The end of topics: reads the records behind given offsets, without a group, and commits nothing.

Rules:

1. A read ends where the log ended when it began: with `isolation.level` read_committed, at the first
   open transaction.
2. Records stay in memory until they are asked for no longer: the next read fetches newer ones only.
3. Offsets that the log no longer has are an error; they are never skipped.
"""

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Never

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.lag import RESET_TO_END_VALUES
from trimtab.consumer_sdk.errors import BrokerUnreachableError, MissingAclError, OffsetsExpiredError
from trimtab.consumer_sdk.lake.bridge.partition_tail import PartitionTail
from trimtab.consumer_sdk.lake.model.interfaces import Records
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap
from trimtab.consumer_sdk.lake.options import connection
from trimtab.consumer_sdk.lake.schema import record_columns
from trimtab.consumer_sdk.lake.verify.topic_log import BROKER_SILENCE_TIMEOUT_S, FETCH_MAX_RECORDS

TAIL_POLL_S: Final = 0.1  # ends with the first record
_EMPTY_RECORDS: Final = record_columns.RECORD_SCHEMA.empty_table()
_INHERITED_SETTINGS: Final = ("isolation.level",)  # of the ingest: it decides which records exist
_COORDINATOR_MOVES: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_TAIL_SETTINGS: Final = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,  # the log may end with transaction markers, which are no records
    "auto.offset.reset": "error",  # rule 3
    "fetch.queue.backoff.ms": 10,  # a full queue was emptied at once: fetching goes on without a pause
}


def build_tail_settings(config: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return the reader's settings of a flat configuration. Raises SettingError."""
    client = connection.extract_connection_settings(config, "read the table alone, with Spark")
    inherited = {name: config[name] for name in _INHERITED_SETTINGS if name in config}
    # the group is never joined: its committed offsets are where new partitions begin
    return {**client, **inherited, **_TAIL_SETTINGS, "group.id": group}


class TopicTail:
    """Reads the end of topics until closed. Raises SaslAuthenticationError, TlsHandshakeError.

    Every method raises BrokerUnreachableError, MissingAclError.
    """

    def __init__(self, config: Mapping[str, Any], clock: Clock | None = None) -> None:
        check_connection(config)
        self._clock = clock or SystemClock()
        self._bootstrap = str(config.get("bootstrap.servers"))
        self._group = config["group.id"]
        self._consumer = Consumer(dict(config))
        self._tails: dict[TopicPartition, PartitionTail] = {}

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def list_partitions(
        self, topics: Sequence[str], is_wanted: Callable[[str], bool]
    ) -> list[TopicPartition]:
        """Return the partitions of the wanted topics; a topic that begins with "^" is a pattern."""
        names = [topic for topic in topics if not topic.startswith("^") and is_wanted(topic)]
        patterns = [re.compile(topic) for topic in topics if topic.startswith("^")]
        with self._translate_errors():
            asked: list[str | None] = [None] if patterns else [*names]
            answers = [self._consumer.list_topics(t, BROKER_SILENCE_TIMEOUT_S).topics for t in asked]
        found: dict[str, Any] = {name: topic for answer in answers for name, topic in answer.items()}
        matching = {n for n in found if is_wanted(n) and any(pattern.match(n) for pattern in patterns)}
        return sorted(
            TopicPartition(n, p) for n in {*names, *matching} & found.keys() for p in found[n].partitions
        )

    def read_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return where the log of each partition ends now (rule 1)."""
        return self._read_offsets_at(OFFSET_END, partitions)

    def read_group_starts(
        self, partitions: Iterable[TopicPartition], reset: str
    ) -> dict[TopicPartition, int]:
        """Return where the group begins to read: its committed offset, else by `auto.offset.reset`."""
        raw = [RawPartition(*partition) for partition in partitions]
        with self._translate_errors():
            committed = self._check_answer(self._read_committed(raw))
        known = {p: offset for p, offset in committed.items() if offset >= 0}
        where = OFFSET_END if reset in RESET_TO_END_VALUES else OFFSET_BEGINNING
        return self._read_offsets_at(where, sorted(committed.keys() - known.keys())) | known

    def read_records(self, ranges: Mapping[TopicPartition, OffsetGap]) -> Records:
        """Return the records in these ranges by partition and offset. Raises OffsetsExpiredError."""
        for partition, offsets in ranges.items():
            self._follow(partition, offsets)
        with self._translate_errors():
            self._fetch_until({partition: offsets.next for partition, offsets in ranges.items()})
        batches = [b for p, offsets in sorted(ranges.items()) for b in self._tails[p].select(offsets)]
        return record_columns.join_batches(batches) if batches else _EMPTY_RECORDS

    def _read_committed(self, partitions: list[RawPartition]) -> list[RawPartition]:
        deadline = self._clock.monotonic() + BROKER_SILENCE_TIMEOUT_S
        while True:
            try:
                return self._consumer.committed(partitions, timeout=BROKER_SILENCE_TIMEOUT_S)
            except KafkaException as error:  # the first use of a group may create the offsets topic
                moves = error.args[0].code() in _COORDINATOR_MOVES
                if not moves or self._clock.monotonic() > deadline:
                    raise
            self._clock.sleep(TAIL_POLL_S)

    def _follow(self, partition: TopicPartition, offsets: OffsetGap) -> None:
        first, end = offsets
        tail = self._tails.get(partition)
        # a log that ends before what was read is another one
        if tail is not None and tail.continues_at(first) and tail.next <= end:
            tail.drop_before(first)
            return
        start = RawPartition(*partition, first)
        if tail is not None:  # also drops records that librdkafka has fetched in advance
            self._consumer.incremental_unassign([start])
        self._consumer.incremental_assign([start])
        self._tails[partition] = PartitionTail(first, first)

    def _fetch_until(self, ends: Mapping[TopicPartition, int]) -> None:
        behind, progress_at = 0, self._clock.monotonic()
        while missing := sum(max(0, end - self._tails[p].next) for p, end in ends.items()):
            if missing != behind:
                behind, progress_at = missing, self._clock.monotonic()
            elif self._clock.monotonic() > progress_at + BROKER_SILENCE_TIMEOUT_S:
                raise BrokerUnreachableError(self._bootstrap)  # also one broker of several
            if (message := self._consumer.poll(TAIL_POLL_S)) is not None:
                # the rest of what has arrived: consume alone would wait until its timeout
                self._add_messages([message, *self._consumer.consume(FETCH_MAX_RECORDS, 0)])

    def _add_messages(self, messages: list[Any]) -> None:
        # records first: an event says that those before it have been delivered
        records = [message for message in messages if message.error() is None]
        for partition, run in record_columns.group_by_partition(records).items():
            self._tails[partition].add_batch(record_columns.build_record_batch(partition, run))
        for message in messages:
            if message.error() is not None:
                self._handle_event(TopicPartition(message.topic(), message.partition()), message)

    def _handle_event(self, where: TopicPartition, message: Any) -> None:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
            tail = self._tails[where]
            tail.next = max(tail.next, message.offset())
        elif error.code() == KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
            self._raise_expired(where)
        elif error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            raise MissingAclError(f"topic {where.topic} cannot be read; grant Read on topic {where.topic}")
        elif error.fatal():
            raise KafkaException(error)
        # librdkafka recovers from others by itself; the wait is bounded

    def _raise_expired(self, where: TopicPartition) -> Never:
        first = self._tails.pop(where).next
        self._consumer.incremental_unassign([RawPartition(*where)])
        raise OffsetsExpiredError(
            f"{where}: the log no longer has offset {first}, and the table does not have it yet: "
            "retention deleted records before the sink wrote them. Run the sink, which continues at "
            "the log's start and records the gap; then read again"
        )

    def _read_offsets_at(self, where: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        # As timestamps these ask for the ends of the log, of all partitions at once (ListOffsets).
        # Not AdminClient's request: librdkafka 2.16 corrupts its heap when a leader is missing.
        asked = [RawPartition(*partition, where) for partition in partitions]
        if not asked:
            return {}
        with self._translate_errors():
            return self._check_answer(
                self._consumer.offsets_for_times(asked, timeout=BROKER_SILENCE_TIMEOUT_S)
            )

    def _check_answer(self, answer: Iterable[RawPartition]) -> dict[TopicPartition, int]:
        offsets: dict[TopicPartition, int] = {}
        for raw in answer:
            if raw.error is not None:
                raise BrokerUnreachableError(
                    self._bootstrap, f"{raw.topic}-{raw.partition}: {raw.error.str()}"
                )
            offsets[TopicPartition(raw.topic, raw.partition)] = raw.offset
        return offsets

    @contextmanager
    def _translate_errors(self) -> Generator[None]:
        try:
            yield
        except KafkaException as error:
            if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
                raise MissingAclError(f"group {self._group}: grant Describe on it") from error
            raise BrokerUnreachableError(self._bootstrap, error.args[0].str()) from error
