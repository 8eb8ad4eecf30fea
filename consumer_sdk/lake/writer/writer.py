"""The sink's side of the application's loop: records in, batches out, partitions come and go.

    with Consumer(config) as consumer, LakeWriter(consumer, config) as lake:
        consumer.subscribe(
            ["orders"],
            on_assign=lake.on_assign,
            on_revoke=lake.on_revoke,
            on_lost=lake.on_lost,
        )
        while running:
            lake.write(consumer.consume(5000, timeout=0.2))

The rules:

1. *Assigned*: the table says where to start. Only a partition that it does not know starts where
   the consumer would.
2. *Revoked*: what is being staged of the partition is waited for; a nearly full batch is flushed;
   the rest is dropped (the next owner reads it again: the handover must not wait for a large
   batch). Then the table's marks are committed to Kafka, and the partition goes.
3. *Lost*: everything of the partition is dropped; an attempt under way is called off if it still
   can be. If it cannot, the fence decides between it and the new owner.
4. *Refused*: the partitions of the batch that are still owned go on from the table's marks.
5. Kafka's offsets follow the table: committed after it, never before.
6. What cannot be right stops its partition and nothing else: an offset that went back, or one that
   expired where `auto.offset.reset=error` (what was read before that still goes into the table).
   The others go on; `close` raises the error in the end.
7. Rewinding moves the consumer's position, so it is never done inside a callback: records fetched
   before the callback are still on their way into `write`, and would look like the next ones.

All methods run on the application's thread; callbacks may come while `write` waits.
"""

import logging
import random
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

from confluent_kafka import OFFSET_INVALID, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.common.units import format_bytes
from trimtab.consumer_sdk.errors import LakeUnavailable, OffsetsExpired, OffsetsWentBack
from trimtab.consumer_sdk.lake.decoding.topic_decoders import Decoding
from trimtab.consumer_sdk.lake.metrics import Meters
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks, story
from trimtab.consumer_sdk.lake.ports import CrashPoint, Fetcher, Lake, Message, new_attempt
from trimtab.consumer_sdk.lake.retry import Pace, until
from trimtab.consumer_sdk.lake.schema import record_columns
from trimtab.consumer_sdk.lake.settings import LakeConfig, SessionConfig, parse
from trimtab.consumer_sdk.lake.writer.batches import Batches, Run
from trimtab.consumer_sdk.lake.writer.consumer_events import records
from trimtab.consumer_sdk.lake.writer.flush import Batch, Flush, Landed, Refused
from trimtab.consumer_sdk.lake.writer.flush_metrics import metered
from trimtab.consumer_sdk.lake.writer.flush_thread import Flight, Stager
from trimtab.consumer_sdk.lake.writer.partition_positions import Positions
from trimtab.consumer_sdk.lake.writer.projection import Shaping

if TYPE_CHECKING:
    from trimtab.consumer_sdk.lake.lake import SparkLake

log = logging.getLogger("trimtab.lake")

SLICE: Final = 0.05
"""Seconds of one wait for the stager, between two looks for rebalance callbacks."""


class LakeWriter:
    """Writes the consumer's records into lake tables, each exactly once.

    `config` is the flat configuration (docs/lake.md), the consumer's own names may be in it. Starts
    Spark unless a `lake` is given. Raises SettingError, NoJava, WrongJava, SessionFailed.
    """

    def __init__(
        self,
        consumer: Fetcher,
        config: Mapping[str, Any] | LakeConfig,
        *,
        lake: Lake | None = None,
        clock: Clock | None = None,
        crash: CrashPoint = lambda step: None,  # noqa: ARG005 - the hook that tests fill
        meters: Meters | None = None,
    ) -> None:
        self._consumer = consumer
        self._config = config if isinstance(config, LakeConfig) else parse(config)
        self._lake = open_lake(self._config.session, warm=True) if lake is None else lake
        self._owns_lake = lake is None
        self._decoding = Decoding(self._config)
        self._clock = clock or SystemClock()
        self._crash = crash
        self._topics: dict[str, str] = {}
        self._positions = Positions()
        self._batches = Batches(self._config.limits)
        self._flight: Flight | None = None
        self._refused: list[Refused] = []
        self._failure: TrimtabError | None = None
        self._halted: dict[TopicPartition, TrimtabError] = {}
        self._closed = False
        rng = random.Random()  # noqa: S311 - jitter
        flush = Flush(
            self._lake,
            self._config.group,
            self._shaping,
            new_attempt,
            crash,
            self._config.partition,
            self._config.evolve,
        )
        self._meters = meters or Meters()
        self._stager = Stager(metered(flush.run, self._meters, self._clock), rng)

    # -- the loop ---------------------------------------------------------------------------------

    def write(self, messages: Sequence[Message]) -> None:
        """Take records in, and flush what is due.

        Call it with an empty list too: batches grow old. It waits while the memory is full, serving
        callbacks meanwhile.

        Raises TableMismatch, TransformFailed, MarksLost and SessionFailed, after which nothing has
        been lost and the writer takes no more; KafkaException for a fatal error event among the
        messages.
        """
        self._raise_failure()
        for reset in self._consumer.resets():
            with self._halting(reset.partition):
                self._positions.learn(reset)
        now = self._clock.monotonic()
        for partition, run in record_columns.by_partition(records(messages)).items():
            self._take(partition, run, now)
        self._turn()
        while self._batches.full and self._flight is not None:
            self._flight.wait(SLICE)
            self._consumer.consume(0, 0)
            self._turn()

    def flush(self) -> None:
        """Bring everything that was taken in into the tables.

        Raises as `write`, and LakeUnavailable.
        """
        deadline = self._clock.monotonic() + self._config.patience
        self._settle(deadline)
        for table in self._batches.tables():
            self._submit(table)
            self._settle(deadline)
        self._rewind()

    def close(self) -> None:
        """Flush and free everything; the partitions stay with the consumer until it is closed.

        Raises as `flush`; what could not be flushed is read again by the next owner. Raises
        OffsetsWentBack and OffsetsExpired if a partition was stopped for that (rule 6).
        """
        try:
            if self._failure is None and not self._closed:
                self._crash("draining")
                self.flush()
                self._crash("drained")
                if self._halted:
                    raise self._halted[min(self._halted)]
        finally:
            self._free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._free()

    # -- callbacks --------------------------------------------------------------------------------

    def on_assign(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Start each partition where its table ends (rule 1).

        Raises TableCollision, LakeUnavailable.
        """
        self._crash("assigning")
        fresh = [_key(partition) for partition in partitions]
        starts: list[RawPartition] = []
        for topic in sorted({partition.topic for partition in fresh}):
            marks = self._marks(topic)
            for partition in (p for p in fresh if p.topic == topic):
                mark = marks.of(self._config.group, partition)
                self._positions.assign(partition, mark)
                starts.append(RawPartition(*partition, OFFSET_INVALID if mark is None else mark))
        known = [start for start in starts if start.offset >= 0]
        if known:
            self._consumer.incremental_assign(known)
        if known and self._config.skips:
            log.warning(
                "auto.offset.reset=latest: should retention delete records before they are read, "
                "%s would go on at the end of the log; write earliest to lose only what is deleted",
                _named(map(_key, known)),
            )
        log.info("assigned %s", _listed(starts))
        self._crash("assigned")

    def on_revoke(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Bring in what is staged or nearly full, drop the rest, tell Kafka, let go (rule 2)."""
        self._crash("revoking")
        going = {_key(partition) for partition in partitions}
        deadline = self._clock.monotonic() + self._config.patience
        try:
            self._wait_for(going, deadline)
            for table in self._batches.nearly_full(going):
                self._settle(deadline)
                self._submit(table)
                self._settle(deadline)
        except TrimtabError as error:
            self._failure = self._failure or (None if error.retryable else error)
            log.warning("giving partitions up without their last batch: %s", error)
        self._crash("settled")
        self._drop(going)
        self._acknowledge(self._positions.marks(going), asynchronous=False)
        self._positions.forget(going)
        log.info("gave up %s", _named(going))
        self._crash("revoked")

    def on_lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Drop everything of these partitions (rule 3)."""
        gone = {_key(partition) for partition in partitions}
        if self._flight is not None and gone & self._flight.batch.spans.keys():
            self._flight.cancel()
        self._drop(gone)
        self._positions.forget(gone)
        log.warning("lost %s", _named(gone))

    # -- taking in --------------------------------------------------------------------------------

    def _take(self, partition: TopicPartition, messages: list[Message], now: float) -> None:
        offsets = record_columns.offsets(messages)
        again = self._positions.doubt(partition, offsets)
        if again is not None:
            self._restart(partition, again)
            return
        skip = len(offsets)
        with self._halting(partition):
            skip = self._positions.accept(partition, offsets)
        if skip < len(offsets):
            batch = record_columns.record_batch(partition, messages[skip:])
            run = Run(partition, offsets[skip], offsets[-1] + 1, batch)
            self._batches.add(self._config.names.of(partition.topic), run, now)

    @contextmanager
    def _halting(self, partition: TopicPartition) -> Generator[None]:
        """Stop a partition whose offsets cannot be right (rule 6)."""
        try:
            yield
        except (OffsetsWentBack, OffsetsExpired) as error:
            if isinstance(error, OffsetsWentBack):  # else what waits is sound, and is nowhere else
                self._drop({partition})
                self._positions.forget({partition})
            self._consumer.incremental_unassign([RawPartition(*partition)])
            self._halted[partition] = error
            log.error("%s", error)  # noqa: TRY400 - the message says all

    def _drop(self, partitions: set[TopicPartition]) -> None:
        """Forget the records of these partitions, and why some were stopped."""
        self._batches.drop(partitions)
        self._halted = {p: e for p, e in self._halted.items() if p not in partitions}

    def _marks(self, topic: str) -> Marks:
        """Return the marks of a topic's own table; remembers the topic. Raises TableCollision."""
        self._topics[topic] = table = self._config.names.of(topic)

        def look() -> Marks:
            found = self._lake.open(table)
            return Marks() if found is None else found.look().marks

        pace = Pace(random.Random(0))  # noqa: S311 - jitter
        deadline = self._clock.monotonic() + self._config.patience
        marks = pace.persist(f"reading the marks of {table}", until(deadline, self._clock, look))
        others = {t for t in marks.topics(self._config.group) if self._config.names.of(t) == table}
        self._config.names.check({*self._topics, *others})
        return marks

    def _shaping(self, table: str) -> Shaping:
        topics = sorted(topic for topic, own in tuple(self._topics.items()) if own == table)
        return Shaping(table, self._decoding.of(topics[0]), self._config.transform)

    # -- the stager -------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Take the stager's outcome, go back where it refused, give it what is due."""
        self._harvest()
        self._rewind()
        self._raise_failure()
        if self._flight is None:
            longest = self._consumer.longest_batch()
            table = self._batches.due(self._clock.monotonic(), longest)
            if table is not None:
                self._submit(table)

    def _submit(self, table: str) -> None:
        assert self._flight is None
        gathered = self._batches.take(table)
        batch = Batch(table, self._positions.cut(gathered.ranges), gathered.records)
        self._flight = self._stager.submit(batch, self._clock.monotonic())

    def _harvest(self) -> None:
        flight = self._flight
        if flight is None or not flight.done:
            return
        self._flight = None
        try:
            outcome = flight.result.result()
        except TrimtabError as error:
            self._failure = error
            return
        if isinstance(outcome, Refused):
            log.warning(
                "%s: not added: %s", outcome.batch.table, story(outcome.clashes) or "called off"
            )
            self._refused.append(outcome)
        else:
            self._landed(outcome, self._clock.monotonic() - flight.begun)

    def _landed(self, outcome: Landed, seconds: float) -> None:
        for written in outcome.tables:
            log.info(
                "%s: %d rows, %s in %.2f s",
                written.table,
                written.rows,
                format_bytes(written.bytes),
                seconds,
            )
        self._acknowledge(self._positions.landed(outcome.batch.spans), asynchronous=True)

    def _rewind(self) -> None:
        """Go on from the table's marks where a batch was refused (rules 4 and 7)."""
        while self._refused:
            outcome = self._refused.pop()
            seeks = self._positions.rewind(outcome.batch.spans, outcome.marks)
            self._batches.drop(seeks)
            for partition, offset in sorted(seeks.items()):
                if partition not in self._halted:
                    self._restart(partition, offset)

    def _restart(self, partition: TopicPartition, offset: int) -> None:
        """Read on at another offset.

        Unlike seek, this also works before the first record has come.
        """
        start = RawPartition(*partition, offset)
        self._consumer.incremental_unassign([start])
        self._consumer.incremental_assign([start])

    def _wait_for(self, partitions: set[TopicPartition], deadline: float) -> None:
        if self._flight is not None and partitions & self._flight.batch.spans.keys():
            self._settle(deadline)

    def _settle(self, deadline: float) -> None:
        """Wait for the flight to end; call it off at the deadline. Raises LakeUnavailable then."""
        flight = self._flight
        if flight is None:
            return
        in_time = flight.wait(deadline - self._clock.monotonic())
        if not in_time:
            flight.cancel()
            flight.wait(self._config.patience)
        self._harvest()
        self._raise_failure()
        if not in_time:
            raise LakeUnavailable(
                f"{flight.batch.table}: the lake did not take a batch within "
                f"{self._config.patience:.0f} s "
                "(lake.patience); its records will be read again"
            )

    def _free(self) -> None:
        """Call off what is under way and forget the rest.

        Its records are read again by the next owner.
        """
        if self._closed:
            return
        self._closed = True
        if self._flight is not None:
            self._flight.cancel()
        self._batches = Batches(self._config.limits)
        try:
            self._stager.close(self._config.patience)
        except LakeUnavailable as error:  # logged only: it must not hide what led here
            log.error("%s", error)  # noqa: TRY400 - the message says all
        if self._owns_lake:
            self._lake.close()

    def _acknowledge(self, marks: Mapping[TopicPartition, int], *, asynchronous: bool) -> None:
        """Tell Kafka how far the table is (rule 5).

        A failure is logged, since the table is what counts.
        """
        if not marks:
            return
        offsets = [RawPartition(*partition, offset) for partition, offset in sorted(marks.items())]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:
            log.warning("Kafka's offsets stay behind the table's: %s", error)
        self._crash("acknowledged")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def open_lake(config: SessionConfig, *, warm: bool = False) -> "SparkLake":
    """Start Spark and return the lake; `warm`: rehearse a flush, so that the first one is quick.

    Raises NoJava, WrongJava, JarsUnavailable, SessionFailed.
    """
    from trimtab.consumer_sdk.lake.factory import start_lake  # noqa: PLC0415 - pyspark is slow
    from trimtab.consumer_sdk.lake.spark.warmup import rehearse  # noqa: PLC0415 - pyspark is slow to load

    lake = start_lake(config)
    if warm:
        rehearse(lake)
    return lake


def _key(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _named(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions)))


def _listed(starts: Iterable[RawPartition]) -> str:
    return ", ".join(
        f"{s.topic}-{s.partition} at {s.offset if s.offset >= 0 else 'where the group stands'}"
        for s in starts
    )
