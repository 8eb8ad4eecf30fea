"""Writes the decision of each iteration to the decision topic, on a separate thread.

1. An iteration queues its record and never waits. A full queue drops the oldest record; a failure is
   logged once.
2. Only the leader writes decisions. A new leader reads the topic and continues with the next number.
3. A leader that shuts down marks its last record as final.
4. The page's history, the load forecast and the loop's conditions get what a new leader reads; samples and
   seasons are written now and then.
"""

import logging
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from threading import Event, Thread
from typing import Final, Protocol

from confluent_kafka import KafkaException

from trimtab.common.clock import Clock
from trimtab.common.errors import PeerError
from trimtab.sidecar.decision.condition import Condition
from trimtab.sidecar.records.decision_record import (
    DecisionRecord,
    RecordTerms,
    SidecarIdentity,
    build_decision_record,
    merge_decision_record,
)
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.sample_record import SampleRecord
from trimtab.sidecar.records.season_record import SeasonRecord, build_season_archive
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

MAX_QUEUED_RECORDS: Final = 16
RECORDER_CLOSE_TIMEOUT_S: Final = 2.0  # Kubernetes kills the pod after its grace period


class DecisionStore(Protocol):
    """Storage of decision records."""

    def read_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return the stored records, the newest last. Raises BrokerTimeoutError."""
        ...

    def write_decision(self, record: DecisionRecord) -> None:
        """Write a record and wait for the acknowledgement. Raises BrokerTimeoutError."""
        ...

    def read_samples(self) -> tuple[SampleRecord, ...]:
        """Return the stored samples. Raises BrokerTimeoutError."""
        ...

    def write_sample(self, record: SampleRecord) -> None:
        """Write a sample and wait for the acknowledgement. Raises BrokerTimeoutError."""
        ...

    def read_seasons(self) -> tuple[SeasonRecord, ...]:
        """Return the stored seasons. Raises BrokerTimeoutError."""
        ...

    def write_season(self, record: SeasonRecord) -> None:
        """Write bins of a season and wait for the acknowledgement. Raises BrokerTimeoutError."""
        ...


class RecordedHistory(Protocol):
    """History that outlives its process."""

    def restore(self, decisions: Sequence[DecisionRecord], recorded: Sequence[SampleRecord]) -> None:
        """Show what was recorded."""
        ...

    def take_sample_record(self) -> SampleRecord | None:
        """Return a sample to record; None until the next one is due."""
        ...


class RecorderThread:
    """Writes the queued records of one recorder or several, in turn."""

    def __init__(self) -> None:
        self._recorders: list[DecisionRecorder] = []
        self._wakeup, self._stop = Event(), Event()
        # a daemon: an unresponsive broker does not delay the exit
        self._thread = Thread(target=self._run, name="trimtab-decisions", daemon=True)
        self._thread.start()

    def add(self, recorder: "DecisionRecorder") -> None:
        """Write the records of this one, too."""
        self._recorders.append(recorder)

    def wake(self) -> None:
        """Look for queued records soon."""
        self._wakeup.set()

    def close(self) -> None:
        """Write what is queued and the final records, and end; wait up to `RECORDER_CLOSE_TIMEOUT_S`."""
        self._stop.set()
        self._wakeup.set()
        self._thread.join(RECORDER_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._wakeup.wait()
            self._wakeup.clear()  # before the queues are read, so that no append is missed
            self._write_all()
        for recorder in list(self._recorders):
            recorder.write_final()

    def _write_all(self) -> None:
        for recorder in list(self._recorders):
            recorder.write_queued()
            if recorder.is_closing:
                self._recorders.remove(recorder)
                recorder.write_final()


class DecisionRecorder:
    """Reporter that writes decision records."""

    def __init__(
        self,
        settings: SidecarSettings,
        store: DecisionStore,
        get_author: Callable[[], SidecarIdentity | None],
        clock: Clock,
        history: RecordedHistory | None = None,
        thread: RecorderThread | None = None,
    ) -> None:
        """Write from `thread`, else from one of its own."""
        self._clock = clock
        self._get_author = get_author
        self._terms = build_record_terms(settings)
        self._history = history
        self.seasons = build_season_archive(settings)  # None without the setting `season`
        self._store = store
        self._queue: deque[DecisionRecord | None] = deque(maxlen=MAX_QUEUED_RECORDS)  # None: standby
        self._last_record: DecisionRecord | None = None
        self._last_is_known = False
        self._last_warning = ""
        self._read_conditions: tuple[Condition, ...] = ()
        self.is_closing = False
        self._owns_thread = thread is None
        self._thread = thread or RecorderThread()
        self._thread.add(self)

    def __call__(self, report: IterationReport) -> None:
        """Queue the iteration's decision."""
        author = self._get_author()
        self._queue.append(build_decision_record(report, self._terms, author) if report.is_leader else None)
        self._thread.wake()

    def close(self) -> None:
        """Write what is queued and the final record; an own thread is waited for, a shared one is not."""
        self.is_closing = True
        self._thread.wake()
        if self._owns_thread:
            self._thread.close()

    def take_conditions(self) -> tuple[Condition, ...]:
        """Return, once, those of the last record before this leader's; the control loop calls this."""
        read, self._read_conditions = self._read_conditions, ()
        return read

    def write_queued(self) -> None:
        """Write the queued records; the thread calls this."""
        while self._queue:
            self._process(self._queue.popleft())

    def write_final(self) -> None:
        """Mark the last record as final (rule 3); the thread calls this last."""
        if self._last_is_known and self._last_record is not None:
            # peers take over at once instead of after the silence timeout
            until = max(self._last_record.until, self._clock.wall())
            self._last_is_known = False  # once
            self._write(replace(self._last_record, until=until, is_final=True))

    def _process(self, record: DecisionRecord | None) -> None:
        if record is None:
            self._last_is_known = False  # the new leader continues the numbers
            return
        if not self._last_is_known:
            try:
                earlier = self._store.read_decisions()
                samples = () if self._history is None else self._store.read_samples()
                seasons = () if self.seasons is None else self._store.read_seasons()
            except (PeerError, KafkaException) as error:
                self._log_failure(error)
                return
            self._last_record = next(reversed(earlier), None)
            self._read_conditions = () if self._last_record is None else self._last_record.conditions
            if self._history is not None:
                self._history.restore(earlier, samples)
            if self.seasons is not None:
                self.seasons.restore(seasons)
            self._last_is_known = True
        record = merge_decision_record(self._last_record, record)
        if self._write(record):
            self._last_record, self._last_warning = record, ""
            self._write_sample()
            self._write_seasons()

    def _write(self, record: DecisionRecord) -> bool:
        return self._try_to_write(partial(self._store.write_decision, record))

    def _write_sample(self) -> None:
        sample = None if self._history is None else self._history.take_sample_record()
        if sample is not None:
            self._try_to_write(partial(self._store.write_sample, sample))

    def _write_seasons(self) -> None:
        while self.seasons is not None and (season := self.seasons.take_record()) is not None:
            if not self._try_to_write(partial(self._store.write_season, season)):
                self.seasons.give_back(season)
                return

    def _try_to_write(self, write: Callable[[], None]) -> bool:
        try:
            write()
        except (PeerError, KafkaException) as error:
            self._log_failure(error)
            return False
        return True

    def _log_failure(self, error: Exception) -> None:
        text = f"decisions are not recorded; scaling continues: {error}"
        if text != self._last_warning:
            log.warning("%s", text)
        self._last_warning = text


def build_record_terms(settings: SidecarSettings) -> RecordTerms:
    """Return the fields that all records of a sidecar with these settings share."""
    return RecordTerms(
        settings.group, settings.interval, settings.capacity, settings.headroom, settings.record_cost
    )
