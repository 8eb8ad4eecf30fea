"""Periods in which other limits hold, or nothing is scaled, as cron lines in a time zone.

A period lasts from a `start` to the next `end`, and is in force while the next end comes before the
next start (as KEDA's cron scaler has it), so nothing has to be remembered. Cron lines are those of
Debian's cron, and so is what happens to them when clocks change (cronsim).

Of several periods in force the highest least and the lowest most hold, and whatever one of them
pauses is paused; where least and most contradict each other, the most holds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from trimtab.sidecar.decision.hpa_behavior import Direction


@dataclass(frozen=True, slots=True)
class CronPeriod:
    """A stretch of time that comes again; None where the settings' own limit stands."""

    start: str
    end: str
    timezone: str = "UTC"
    min_replicas: int | None = None
    max_replicas: int | None = None
    paused_directions: frozenset[Direction] = frozenset()

    def is_active(self, now: float) -> bool:
        """Tell whether the period is in force; `now` is seconds since the epoch."""
        there = datetime.fromtimestamp(now, ZoneInfo(self.timezone))
        return _next_occurrence(self.end, there) < _next_occurrence(self.start, there)


@dataclass(frozen=True, slots=True)
class ScheduledLimits:
    """What the periods in force ask for together; None where none of them says."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    paused_directions: frozenset[Direction] = frozenset()


def resolve_scheduled_limits(periods: Iterable[CronPeriod], now: float) -> ScheduledLimits:
    """Return what holds at a time (seconds since the epoch)."""
    active = [period for period in periods if period.is_active(now)]
    return ScheduledLimits(
        min_replicas=max(
            (p.min_replicas for p in active if p.min_replicas is not None), default=None
        ),
        max_replicas=min(
            (p.max_replicas for p in active if p.max_replicas is not None), default=None
        ),
        paused_directions=frozenset(way for p in active for way in p.paused_directions),
    )


def explain_invalid_cron(line: str) -> str | None:
    """Return what is wrong with a cron line; None where it is one."""
    try:
        comes = next(CronSim(line, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error).lower()
    return None if comes is not None else "it never comes"


def _next_occurrence(line: str, after: datetime) -> float:
    """Return when the line comes next, in seconds since the epoch; infinite where it never does."""
    comes = next(CronSim(line, after), None)
    return inf if comes is None else comes.timestamp()
