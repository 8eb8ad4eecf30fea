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

from trimtab.sidecar.decision.hpa_behavior import Way


@dataclass(frozen=True, slots=True)
class Period:
    """A stretch of time that comes again; None where the settings' own limit stands."""

    start: str
    end: str
    timezone: str = "UTC"
    least: int | None = None
    most: int | None = None
    pause: frozenset[Way] = frozenset()

    def active(self, now: float) -> bool:
        """Tell whether the period is in force; `now` is seconds since the epoch."""
        there = datetime.fromtimestamp(now, ZoneInfo(self.timezone))
        return _next(self.end, there) < _next(self.start, there)


@dataclass(frozen=True, slots=True)
class InForce:
    """What the periods in force ask for together; None where none of them says."""

    least: int | None = None
    most: int | None = None
    pause: frozenset[Way] = frozenset()


def in_force(periods: Iterable[Period], now: float) -> InForce:
    """Return what holds at a time (seconds since the epoch)."""
    active = [period for period in periods if period.active(now)]
    return InForce(
        least=max((p.least for p in active if p.least is not None), default=None),
        most=min((p.most for p in active if p.most is not None), default=None),
        pause=frozenset(way for p in active for way in p.pause),
    )


def wrong(line: str) -> str | None:
    """Return what is wrong with a cron line; None where it is one."""
    try:
        comes = next(CronSim(line, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error).lower()
    return None if comes is not None else "it never comes"


def _next(line: str, after: datetime) -> float:
    """Return when the line comes next, in seconds since the epoch; infinite where it never does."""
    comes = next(CronSim(line, after), None)
    return inf if comes is None else comes.timestamp()
