"""Looks at a live group again and again, as `trimtab top` does, and changes nothing.

Speeds are those that a sidecar published lately; where none did they are measured here, and are
unknown until half a window has passed.
"""

from collections.abc import Sequence
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.errors import PeerError
from trimtab.sidecar.control_loop import distinct
from trimtab.sidecar.diagnostics.group_status import Seen
from trimtab.sidecar.diagnostics.what_if import FRESH
from trimtab.sidecar.errors import NoBroker
from trimtab.sidecar.kafka.control_topic_store import ControlTopics
from trimtab.sidecar.measurement.group_monitor import Monitor
from trimtab.sidecar.measurement.observation import GroupView
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.reporting.decision_record import VerdictRecord
from trimtab.sidecar.settings.settings import Settings

REMEMBERED: Final = 60.0
"""Seconds for which a consumer that has left is shown."""

PUBLISHED: Final = "published by a sidecar"
MEASURED: Final = "measured here"


class Looker:
    """A connection to look through."""

    def __init__(self, settings: Settings, clock: Clock, *, capacity_known: bool) -> None:
        self._clock = clock
        self._settings = settings
        self._capacity = settings.capacity if capacity_known else None
        self._monitor = Monitor(settings, clock)
        self._board = ControlTopics(settings, self._monitor.brokers.admin)
        self._met: dict[str, float] = {}  # consumer -> when it was there last

    def close(self) -> None:
        """Let the connections go."""
        self._monitor.close()

    def look(self) -> Seen:
        """Look; a broker that is away is told in `trouble`."""
        now = self._clock.wall()
        try:
            plan, published = self._board.plan(), self._board.speeds()
            records, trouble = self._board.verdicts(), tuple[str, ...]()
            self._recognise(records)
        except NoBroker as error:
            return self._blind(now, str(error))
        except PeerError as error:
            plan, published, records, trouble = None, {}, (), (str(error),)
        lately = [s for s in published.values() if s.time >= now - FRESH]
        if lately:
            source = PUBLISHED
            group, more = self._monitor.described()
            speeds = {
                TopicPartition(s.topic, n): speed
                for s in lately
                for n, speed in s.partitions.items()
            }
            racks, silent = self._monitor.racks_now(group, speeds)
            more += silent
        else:
            source = MEASURED
            measured = self._monitor.measure()
            group, speeds, more = measured.group, dict(measured.speeds), measured.trouble
            racks = measured.racks
        group = distinct(group)
        known = self._known(now)
        leaving = () if plan is None else plan.draining
        self._met.update({r.instance: now for r in group.readers})
        self._met = {n: at for n, at in self._met.items() if n not in leaving}
        return Seen(
            time=now,
            group=group,
            speeds=speeds,
            source=source,
            plan=plan,
            records=records,
            trouble=tuple(dict.fromkeys((*trouble, *more))),
            known=known,
            capacity=self._capacity,
            racks=racks,
        )

    def _known(self, now: float) -> frozenset[str]:
        return frozenset(n for n, at in self._met.items() if now - at <= REMEMBERED)

    def _blind(self, now: float, why: str) -> Seen:
        """Return a look at nothing; to ask for more would only take longer."""
        known = self._known(now)
        return Seen(
            now, GroupView(), {}, MEASURED, trouble=(why,), known=known, capacity=self._capacity
        )

    def _recognise(self, records: Sequence[VerdictRecord]) -> None:
        """Look at a share group as one, where a sidecar says that it is, and nobody told us."""
        share = bool(records) and records[-1].numbers.queue == Kind.SHARE
        if share and self._settings.queue is None:
            self._settings = self._settings.model_copy(update={"queue": Kind.SHARE})
            self._monitor.close()
            self._monitor = Monitor(self._settings, self._clock)
