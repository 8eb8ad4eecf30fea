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
from trimtab.sidecar.reporting.decision_record import Author, Terms, VerdictRecord, folded, recorded
from trimtab.sidecar.reporting.iteration_report import Report
from trimtab.sidecar.settings.settings import Settings

log = logging.getLogger("trimtab.sidecar")

WAITING: Final = 16
"""Records that may wait to be written."""

PATIENCE: Final = 2.0
"""Seconds to wait for the thread at the end."""


class Archive(Protocol):
    """Where verdicts are kept."""

    def verdicts(self) -> tuple[VerdictRecord, ...]:
        """Return those that are kept, the newest last. Raises KafkaAway."""
        ...

    def record(self, verdict: VerdictRecord) -> None:
        """Write one and wait until it is safe. Raises KafkaAway."""
        ...


class Recorder:
    """A reporter that keeps verdicts."""

    def __init__(
        self, settings: Settings, archive: Archive, author: Callable[[], Author | None]
    ) -> None:
        self._author = author
        self._terms = Terms(settings.group, settings.interval, settings.capacity, settings.headroom)
        self._archive = archive
        self._waiting: deque[VerdictRecord | None] = deque(maxlen=WAITING)  # None: not leading
        self._last: VerdictRecord | None = None
        self._known = False
        self._said = ""
        self._news, self._stop = Event(), Event()
        self._thread = Thread(target=self._run, name="trimtab-verdicts", daemon=True)
        self._thread.start()

    def __call__(self, report: Report) -> None:
        """Leave the turn's verdict to be written."""
        self._waiting.append(
            recorded(report, self._terms, self._author()) if report.leading else None
        )
        self._news.set()

    def close(self) -> None:
        """Give what waits a moment to be written."""
        self._stop.set()
        self._news.set()
        self._thread.join(PATIENCE)

    def _run(self) -> None:
        while not self._stop.is_set():
            self._news.wait()
            self._news.clear()
            while self._waiting:
                self._take(self._waiting.popleft())
        if self._known and self._last is not None:
            self._write(replace(self._last, ended=True))

    def _take(self, record: VerdictRecord | None) -> None:
        if record is None:
            self._known = False  # whoever leads goes on with the numbers
            return
        try:
            if not self._known:
                self._last = next(reversed(self._archive.verdicts()), None)
                self._known = True
        except (PeerError, KafkaException) as error:
            self._failed(error)
            return
        record = folded(self._last, record)
        if self._write(record):
            self._last, self._said = record, ""

    def _write(self, record: VerdictRecord) -> bool:
        try:
            self._archive.record(record)
        except (PeerError, KafkaException) as error:
            self._failed(error)
            return False
        return True

    def _failed(self, error: Exception) -> None:
        self._say(f"verdicts are not kept, which holds nothing else up: {error}")

    def _say(self, text: str) -> None:
        if text != self._said:
            log.warning("%s", text)
        self._said = text
