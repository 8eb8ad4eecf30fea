"""Lake writer: buffers a consumer's records, flushes them, follows rebalances.

    with Consumer(config) as consumer, LakeWriter(consumer, config) as lake:
        consumer.subscribe(["orders"], lake.on_assign, lake.on_revoke, lake.on_lost)
        while running:
            lake.write(consumer.consume(5000, timeout=0.2))

Rules:

1. *Assigned*: reading starts at the table's offset. A partition unknown to the table starts at the
   consumer's offset.
2. *Revoked*: the in-flight batch of the partition is awaited, a nearly full batch is flushed, the
   rest is dropped: the next owner reads it again, and the handover waits for no large batch. Then
   the table's offsets are committed to Kafka.
3. *Lost*: the partition's records are dropped and the in-flight attempt is cancelled. If it is past
   cancelling, the fence decides between it and the new owner.
4. *Refused*: partitions of the batch that are still owned continue from the table's offsets.
5. Kafka's offsets follow the table: committed after it, never before.
6. An error that concerns one table or partition (`error_scope`) halts it alone (`halted_partitions`). An
   offset that went back, one that expired with `auto.offset.reset=error` (records read before are still
   written), and a topic whose table is another one's halt the partition until its next assignment;
   everything else halts the table, which is tried again by itself. `flush`, `close` and `raise_if_halted`
   raise the error, `write` does not.
7. A table that is tried, or whose flush meets an outage or a call that does not return, makes no other
   wait: it is not fetched while its batch is full. What is left is the memory of all tables, and the flush
   threads (`flush_threads`). A tried table is flushed at once, one at a time, and its first outage halts it
   again.
8. Positions are rewound outside of callbacks only: records fetched before a callback are still to
   be passed to `write`, which would take them for the next ones.

All methods run on the application's thread; rebalance callbacks may run while `write` waits.
"""

import logging
import random
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Self

from confluent_kafka import KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.common.units import format_bytes
from trimtab.consumer_sdk.client.client_adapters import to_partition
from trimtab.consumer_sdk.client.commit_metadata import describe_halt
from trimtab.consumer_sdk.errors import LakeUnavailableError
from trimtab.consumer_sdk.lake.changes.truncations import check_single_partition
from trimtab.consumer_sdk.lake.factory import open_lake
from trimtab.consumer_sdk.lake.interfaces import ConsumedMessage, Lake, RecordConsumer, new_attempt_id
from trimtab.consumer_sdk.lake.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.offsets.table_offsets import describe_conflicts
from trimtab.consumer_sdk.lake.schema import record_columns
from trimtab.consumer_sdk.lake.settings import LakeConfig, parse_lake_config
from trimtab.consumer_sdk.lake.writer.batches import BatchBuffer, RecordRun
from trimtab.consumer_sdk.lake.writer.consumer_events import drop_error_events
from trimtab.consumer_sdk.lake.writer.error_scope import concerns_all
from trimtab.consumer_sdk.lake.writer.flush import BatchCommitted, BatchFlusher, BatchRefused, FlushBatch
from trimtab.consumer_sdk.lake.writer.flush_metrics import with_flush_metrics
from trimtab.consumer_sdk.lake.writer.flush_threads import FlushThreads, InFlightFlush, wait_for_flushes
from trimtab.consumer_sdk.lake.writer.halted_partitions import HaltedPartitions, format_partitions
from trimtab.consumer_sdk.lake.writer.partition_positions import PositionTracker, log_starts
from trimtab.consumer_sdk.lake.writer.span_factory import open_flush_spans
from trimtab.consumer_sdk.lake.writer.table_halts import TableHalts
from trimtab.consumer_sdk.lake.writer.topic_projections import BatchProjection, TopicProjections
from trimtab.consumer_sdk.lake.writer.topic_starts import TopicStarts

log = logging.getLogger("trimtab.lake")

FLUSH_POLL_S: Final = 0.05  # delay of a rebalance callback while `write` waits


class LakeWriter:
    """Writes the consumer's records into lake tables, each exactly once.

    `config` is a flat configuration (docs/lake.md). Starts Spark unless a `lake` is given. Raises
    SettingError, JavaNotFoundError, UnsupportedJavaError, SparkSessionError.
    """

    def __init__(
        self,
        consumer: RecordConsumer,
        config: Mapping[str, Any] | LakeConfig,
        *,
        lake: Lake | None = None,
        clock: Clock | None = None,
        metrics: LakeMetrics | None = None,
    ) -> None:
        self._consumer = consumer
        self._config = config if isinstance(config, LakeConfig) else parse_lake_config(config)
        self._spans = open_flush_spans(self._config.group, enabled=self._config.telemetry)
        self._lake = open_lake(self._config.session, warm_up=True) if lake is None else lake
        self._owns_lake = lake is None
        self._projections = TopicProjections(self._config)
        self._clock = clock or SystemClock()
        self._positions = PositionTracker()
        self._buffer = BatchBuffer(self._config.limits)
        self._refused_batches: list[BatchRefused] = []
        self._failure: BaseException | None = None  # not retryable: raised by every later call
        metrics = metrics or LakeMetrics()
        rng = random.Random()  # noqa: S311 - jitter
        names = self._config.table_names
        self._table_for = names.table_for
        self._starts = TopicStarts(self._lake, self._config.group, names, self._clock)
        self._halted = HaltedPartitions(metrics, rng)
        self._halts = TableHalts(
            consumer, self._table_for, self._starts, self._positions, self._buffer, self._halted, self._clock
        )
        self._closed = False
        changes = self._config.changes
        flusher = BatchFlusher(
            self._spans.trace_lake(self._lake),
            self._config.group,
            self._create_projection,
            new_attempt_id,
            self._reach_step,
            self._config.partitioning,
            self._config.evolves_schema,
            self._clock.monotonic,
            check_single_partition if changes is not None and changes.applies_truncations else None,
            partial(with_flush_metrics, metrics=metrics, clock=self._clock),
        )
        flush = self._spans.trace_run(flusher.flush_batch)
        self._flushes = FlushThreads(flush, rng, self._config.flush_parallelism, self._clock.monotonic)

    # -- the loop ---------------------------------------------------------------------------------

    def write(self, messages: Sequence[ConsumedMessage], *, stop: threading.Event | None = None) -> None:
        """Buffer records and flush the tables that are due, by age also when `messages` is empty.

        While the memory is full, it waits and serves rebalance callbacks, until `stop` is set.

        Raises the errors that concern all tables (`error_scope`), such as SparkSessionError, and
        KafkaException for a fatal error event. No record is lost by one: each later call raises it again.
        """
        self._raise_failure()
        try:
            self._buffer_messages(messages)
        except BaseException as error:
            # The rest of the messages is in no buffer: the next ones would make it a hole.
            self._failure = error
            raise
        self._advance_flushes()
        while self._hold_full_tables() and self._flushes.in_flight and not (stop and stop.is_set()):
            self._flushes.wait_for_any(FLUSH_POLL_S)
            self._consumer.consume(0, 0)  # serves rebalance callbacks
            self._advance_flushes()

    def flush(self) -> None:
        """Write all buffered records to the tables, but those of halted partitions (rule 6).

        Raises the errors of `write`, LakeUnavailableError after `lake.flush.timeout`, and, when the others
        are written, those of `raise_if_halted`.
        """
        self._flush_all()
        self.raise_if_halted()

    def raise_if_halted(self) -> None:
        """Raise the error of a halted partition or table, if there is one (rule 6).

        Such as TableSchemaMismatchError, TransformError, SettingError of a table's partition rule,
        CommittedOffsetsLostError, TableAccessError, TableNameCollisionError, OffsetRegressionError,
        OffsetsExpiredError; LakeUnavailableError and SchemaRegistryUnavailableError of an outage;
        TableWriteError for an error that has no name.
        """
        self._halted.raise_first_error()

    def close(self) -> None:
        """Flush and release resources; the consumer keeps its partitions until it is closed.

        Takes at most `lake.flush.timeout`, twice that if a call into the lake does not return.
        Unflushed records are logged, and the next owner reads them again. Raises the errors of `flush`.
        """
        try:
            if self._failure is None and not self._closed:
                self._reach_step("draining")
                self._flush_all()
                self._reach_step("drained")
                self.raise_if_halted()
        finally:
            self._release_resources()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self._release_resources()

    def _reach_step(self, step: str) -> None: ...  # fault injection overrides it

    # -- callbacks --------------------------------------------------------------------------------

    def on_assign(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Start each partition at its table's offset (rule 1)."""
        self._reach_step("assigning")
        assigned = list(map(to_partition, partitions))
        self._halted.discard(assigned)
        starts = self._halts.find_all_starts(assigned, self._flush_deadline())
        for partition, start in starts.items():
            self._positions.assign(partition, start)
            self._halted.join_table(self._table_for(partition.topic), {partition})
        known = {p: offset for p, offset in starts.items() if offset is not None}
        if known:
            self._consumer.incremental_assign([RawPartition(*p, offset) for p, offset in known.items()])
        log_starts(starts, resets_to_end=self._config.resets_to_end)
        self._reach_step("assigned")

    def on_revoke(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Flush in-flight and nearly full batches, drop the rest, commit to Kafka (rule 2)."""
        self._reach_step("revoking")
        revoked = set(map(to_partition, partitions))
        deadline = self._flush_deadline()
        try:
            nearly_full = self._buffer.find_nearly_full_tables(revoked)
            self._await_flushes({*self._flushes.find_tables(revoked), *nearly_full}, deadline)
            # again: the wait may have halted some
            self._flush_tables(self._buffer.find_nearly_full_tables(revoked), deadline)
        except Exception as error:  # noqa: BLE001 - also an unexpected one, which every later call raises
            # Not raised: the group waits for the revocation, and the next owner reads the records again.
            retryable = isinstance(error, TrimtabError) and error.retryable
            self._failure = self._failure or (None if retryable else error)
            log.warning("releasing partitions without their last batch: %s", error)
        self._reach_step("flushed")
        self._halts.drop_partitions(revoked)
        self._commit_to_kafka(self._positions.committed_offsets(revoked), asynchronous=False)
        self._positions.forget_partitions(revoked)
        log.info("revoked %s", format_partitions(revoked))
        self._reach_step("revoked")

    def on_lost(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        """Drop the records of these partitions (rule 3)."""
        lost = set(map(to_partition, partitions))
        for table in self._flushes.find_tables(lost):
            self._flushes.in_flight[table].cancel()
        self._halts.drop_partitions(lost)
        self._positions.forget_partitions(lost)
        log.warning("lost %s", format_partitions(lost))

    # -- buffering --------------------------------------------------------------------------------

    def _buffer_messages(self, messages: Sequence[ConsumedMessage]) -> None:
        for reset in self._consumer.pop_offset_resets():
            with self._halts.halt_on_error(reset.partition, log_start=reset.log_start_offset):
                self._positions.record_reset(reset)
        now = self._clock.monotonic()
        for partition, run in record_columns.group_by_partition(drop_error_events(messages)).items():
            offsets = record_columns.message_offsets(run)
            with self._halts.halt_on_error(partition, offsets):
                self._buffer_run(partition, run, offsets, now)

    def _buffer_run(
        self, partition: TopicPartition, messages: list[ConsumedMessage], offsets: Sequence[int], now: float
    ) -> None:
        if self._halts.is_stopped(partition, offsets[0]):
            return
        if (reread := self._positions.find_reread_offset(partition, offsets)) is not None:
            self._restart_partition(partition, reread)
            return
        # First: if the records cannot be converted, the position must not have passed them.
        batch = record_columns.build_record_batch(partition, messages)
        skip = self._positions.accept_run(partition, offsets)
        if skip < len(offsets):
            run = RecordRun(partition, offsets[skip], offsets[-1] + 1, batch.slice(skip))
            self._buffer.add_run(self._table_for(partition.topic), run, now)

    def _create_projection(self, table: str) -> BatchProjection:
        # Topics of one table have one schema, which the settings check.
        return self._projections.projection_for(table, self._starts.list_topics(table)[0])

    def _hold_full_tables(self) -> bool:
        """Stop the fetching of full tables in an outage (rule 7); return whether `write` has to wait."""
        full = self._buffer.find_full_tables()
        stalled = self._flushes.find_stalled(self._config.flush_timeout_s)
        unreachable = full & (self._halted.list_tried() | self._flushes.find_failing() | stalled)
        for partition, offset in sorted(self._halts.hold_tables(unreachable).items()):
            self._restart_partition(partition, offset)
        return self._buffer.is_memory_full or full != unreachable

    # -- flushing ---------------------------------------------------------------------------------

    def _advance_flushes(self) -> None:
        """Collect outcomes, rewind refused partitions, submit the tables that are due."""
        self._collect_outcomes()
        self._rewind_refused()
        for partition, offset in sorted(self._halts.begin_trials().items()):
            self._restart_partition(partition, offset)
        self._commit_halt_reasons()
        self._raise_failure()
        now = self._clock.monotonic()
        max_age_s = self._consumer.batch_max_age_s()
        tried = self._halted.list_tried()
        while self._flushes.has_capacity:
            in_flight = self._flushes.in_flight.keys()
            waiting = in_flight | (tried if tried & in_flight else set())
            table = self._buffer.find_due_table(now, max_age_s, in_flight=waiting, at_once=tried)
            if table is None:
                return
            self._submit_batch(table)

    def _commit_halt_reasons(self) -> None:
        """Commit unchanged offsets with what has become of their partitions, for `trimtab doctor`."""
        offsets, news = self._halts.pop_news()
        reasons = {partition: describe_halt(reason) for partition, reason in news.items() if reason}
        self._commit_to_kafka(offsets, reasons, asynchronous=True)

    def _submit_batch(self, table: str) -> None:
        buffered = self._buffer.pop_table(table)
        batch = FlushBatch(table, self._positions.chain_spans(buffered.ranges), buffered.records)
        is_tried = table in self._halted.list_tried()
        self._flushes.submit(batch, 0.0 if is_tried else self._config.flush_timeout_s)

    def _collect_outcomes(self) -> None:
        for flight in self._flushes.pop_done():
            self._collect_outcome(flight)

    def _collect_outcome(self, flight: InFlightFlush) -> None:
        try:
            outcome = flight.future.result()
        except BaseException as error:  # noqa: BLE001 - raised by every later call, or by `flush`
            expected = {p: span.expected for p, span in flight.batch.spans.items()}
            self._collect_error(flight.batch, error, expected)
            return
        if isinstance(outcome, BatchRefused) and outcome.error is not None:
            self._collect_error(outcome.batch, outcome.error, outcome.offsets)
        elif isinstance(outcome, BatchRefused):
            reason = describe_conflicts(outcome.conflicts) or "cancelled"
            log.warning("%s: batch refused: %s", outcome.batch.table, reason)
            self._refused_batches.append(outcome)  # rewound outside of callbacks (rule 8)
        else:
            self._confirm_commit(outcome, self._clock.monotonic() - flight.started_at)

    def _collect_error(
        self, batch: FlushBatch, error: BaseException, offsets: Mapping[TopicPartition, int | None]
    ) -> None:
        """Halt the table of a batch that failed behind these offsets of the table."""
        if concerns_all(error):
            self._failure = error
        elif self._positions.rewind_partitions(batch.spans, offsets):  # an earlier assignment's tell nothing
            ends = {p: span.next for p, span in batch.spans.items()}
            if isinstance(error, TrimtabError) and error.retryable:  # an outage is over with any commit
                firsts = {p: max(span.first, offsets[p] or 0) for p, span in batch.spans.items()}
                ends = {p: min(firsts[p] + 1, end) for p, end in ends.items()}
            self._halts.halt_table(batch.table, error, ends)

    def _confirm_commit(self, outcome: BatchCommitted, seconds: float) -> None:
        for write in outcome.table_writes:
            size = format_bytes(write.bytes)
            log.info("%s: %d rows, %s in %.2f s", write.table, write.rows, size, seconds)
        with self._spans.continue_batch(outcome.batch.table):
            self._commit_to_kafka(self._positions.confirm_committed(outcome.batch.spans), asynchronous=True)
        self._halts.end_trial(outcome.batch.table)

    def _rewind_refused(self) -> None:
        """Continue refused partitions from the table's offsets (rules 4 and 8)."""
        while self._refused_batches:
            outcome = self._refused_batches.pop()
            restarts = self._positions.rewind_partitions(outcome.batch.spans, outcome.offsets)
            self._buffer.drop_partitions(restarts)
            self._halts.end_trial(outcome.batch.table)  # another writer may have written what failed
            for partition, offset in sorted(restarts.items()):
                if partition not in self._halted:
                    self._restart_partition(partition, offset)

    def _restart_partition(self, partition: TopicPartition, offset: int) -> None:
        # seek fails before the first fetch of a partition; reassigning it does not.
        start = RawPartition(*partition, offset)
        self._consumer.incremental_unassign([start])
        self._consumer.incremental_assign([start])

    def _flush_deadline(self) -> float:
        return self._clock.monotonic() + self._config.flush_timeout_s

    def _flush_all(self) -> None:
        self._raise_failure()
        deadline = self._flush_deadline()
        self._await_flushes(self._flushes.in_flight, deadline)
        self._flush_tables(self._buffer.list_tables(), deadline)
        self._rewind_refused()

    def _flush_tables(self, tables: Collection[str], deadline: float) -> None:
        """Flush tables that have no flush in flight, side by side."""
        for table in tables:
            self._submit_batch(table)
        self._await_flushes(tables, deadline)

    def _await_flushes(self, tables: Collection[str], deadline: float) -> None:
        """Wait for the flushes of these tables; at the deadline cancel them, raise LakeUnavailableError."""
        flights = [flight for table, flight in self._flushes.in_flight.items() if table in tables]
        for flight in flights:
            flight.hasten()
        wait_for_flushes(flights, deadline - self._clock.monotonic())
        late = [flight for flight in flights if not flight.done]
        for flight in late:
            flight.cancel()
        self._collect_outcomes()
        self._raise_failure()
        if late:
            raise LakeUnavailableError(
                f"{', '.join(flight.batch.table for flight in late)}: the lake did not accept a batch within "
                f"{self._config.flush_timeout_s:.0f} s (lake.flush.timeout); its records will be read again"
            )

    def _release_resources(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            # Without a flight, the revocation on closing the consumer waits for no flush.
            self._flushes.close(self._config.flush_timeout_s)
        except LakeUnavailableError as error:
            # Logged only: raising it would hide the error that led here.
            log.error("%s", error)  # noqa: TRY400 - the message suffices
        with suppress(Exception):  # the error that led here counts
            self._collect_outcomes()  # a batch that landed meanwhile is not given up
        unwritten = sorted(self._positions.unwritten_ranges().items())
        if ranges := ", ".join(f"{p} offsets {first}-{end - 1}" for p, (first, end) in unwritten):
            log.warning("offsets given up, for the next owner to read unless the table has them: %s", ranges)
        self._buffer.drop_partitions(self._positions.owned)
        if self._owns_lake:
            self._lake.close()

    def _commit_to_kafka(
        self,
        committed: Mapping[TopicPartition, int],
        metadata: Mapping[TopicPartition, str] | None = None,
        *,
        asynchronous: bool,
    ) -> None:
        if not committed:
            return
        given = metadata or {}
        offsets = [RawPartition(*p, offset, given.get(p, "")) for p, offset in sorted(committed.items())]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=asynchronous)
        except KafkaException as error:
            # Not an error: a restart reads the table's offsets; Kafka's only serve lag tools.
            log.warning("Kafka's offsets lag behind the table's: %s", error)
        self._reach_step("offsets-committed")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure.with_traceback(None)
