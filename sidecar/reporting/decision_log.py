"""Keeps each turn's verdict in the verdict topic, on a thread of its own.

Rules of this file:
- A turn only leaves its record here, and never waits. What cannot be written soon is dropped, the
  oldest first; why is logged once.
- Only a sidecar that leads keeps verdicts. Whoever begins to lead reads what is kept, and goes on
  with the next number.
- One that led and is told to end says so, that nobody waits for it.
"""

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from threading import Event, Thread
from typing import Final, Protocol

from confluent_kafka import KafkaException

from trimtab.common.errors import PeerError
from trimtab.sidecar.reporting.decision_record import (
    DecisionRecord,
    RecordTerms,
    SidecarIdentity,
    build_decision_record,
    merge_decision_record,
)
from trimtab.sidecar.reporting.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

MAX_QUEUED_RECORDS: Final = 16
"""Records that may wait to be written."""

RECORDER_CLOSE_TIMEOUT_S: Final = 2.0
"""Seconds to wait for the thread at the end."""


class DecisionStore(Protocol):
    """Where verdicts are kept."""

    def read_decisions(self) -> tuple[DecisionRecord, ...]:
        """Return those that are kept, the newest last. Raises BrokerTimeoutError."""
        ...

    def write_decision(self, record: DecisionRecord) -> None:
        """Write one and wait until it is safe. Raises BrokerTimeoutError."""
        ...


class DecisionRecorder:
    """A reporter that keeps verdicts."""

    def __init__(
        self,
        settings: SidecarSettings,
        store: DecisionStore,
        get_author: Callable[[], SidecarIdentity | None],
    ) -> None:
        self._get_author = get_author
        self._terms = RecordTerms(
            settings.group, settings.interval, settings.capacity, settings.headroom
        )
        self._store = store
        self._queue: deque[DecisionRecord | None] = deque(
            maxlen=MAX_QUEUED_RECORDS
        )  # None: not leading
        self._last_record: DecisionRecord | None = None
        self._last_is_known = False
        self._last_warning = ""
        self._wakeup, self._stop = Event(), Event()
        self._thread = Thread(
            target=self._write_queued_records, name="trimtab-decisions", daemon=True
        )
        self._thread.start()

    def __call__(self, report: IterationReport) -> None:
        """Leave the turn's verdict to be written."""
        self._queue.append(
            build_decision_record(report, self._terms, self._get_author())
            if report.is_leader
            else None
        )
        self._wakeup.set()

    def close(self) -> None:
        """Give what waits a moment to be written."""
        self._stop.set()
        self._wakeup.set()
        self._thread.join(RECORDER_CLOSE_TIMEOUT_S)

    def _write_queued_records(self) -> None:
        while not self._stop.is_set():
            self._wakeup.wait()
            self._wakeup.clear()
            while self._queue:
                self._process_record(self._queue.popleft())
        if self._last_is_known and self._last_record is not None:
            self._write_record(replace(self._last_record, ended=True))

    def _process_record(self, record: DecisionRecord | None) -> None:
        if record is None:
            self._last_is_known = False  # whoever leads goes on with the numbers
            return
        try:
            if not self._last_is_known:
                self._last_record = next(reversed(self._store.read_decisions()), None)
                self._last_is_known = True
        except (PeerError, KafkaException) as error:
            self._log_failure(error)
            return
        record = merge_decision_record(self._last_record, record)
        if self._write_record(record):
            self._last_record, self._last_warning = record, ""

    def _write_record(self, record: DecisionRecord) -> bool:
        try:
            self._store.write_decision(record)
        except (PeerError, KafkaException) as error:
            self._log_failure(error)
            return False
        return True

    def _log_failure(self, error: Exception) -> None:
        self._log_if_new(f"verdicts are not kept, which holds nothing else up: {error}")

    def _log_if_new(self, text: str) -> None:
        if text != self._last_warning:
            log.warning("%s", text)
        self._last_warning = text
