"""Scheduled limits and pauses: cron lines in a time zone.

A period lasts from `start` to the next `end`. Cron lines, also across clock changes, are those of
Debian's cron (cronsim).

Of several active periods the highest minimum and the lowest maximum apply, and every paused
direction is paused; if minimum and maximum contradict, the maximum wins.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from math import inf
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from trimtab.sidecar.model.hpa_behavior import Direction


@dataclass(frozen=True, slots=True)
class CronPeriod:
    """A recurring period; a limit of None keeps the one of the settings."""

    start: str
    end: str
    timezone: str = "UTC"
    min_replicas: int | None = None
    max_replicas: int | None = None
    paused_directions: frozenset[Direction] = frozenset()

    def is_active(self, now: float) -> bool:
        """Return whether the period is active; `now` is seconds since the epoch."""
        local = datetime.fromtimestamp(now, ZoneInfo(self.timezone))
        # As KEDA's cron scaler does: the next end before the next start needs no memory of the last one.
        return _next_occurrence(self.end, local) < _next_occurrence(self.start, local)


@dataclass(frozen=True, slots=True)
class ScheduledLimits:
    """Combined limits of the active periods; None if no period sets one."""

    min_replicas: int | None = None
    max_replicas: int | None = None
    paused_directions: frozenset[Direction] = frozenset()


def resolve_scheduled_limits(periods: Iterable[CronPeriod], now: float) -> ScheduledLimits:
    """Return the limits at `now` (seconds since the epoch)."""
    active = [period for period in periods if period.is_active(now)]
    return ScheduledLimits(
        min_replicas=max((p.min_replicas for p in active if p.min_replicas is not None), default=None),
        max_replicas=min((p.max_replicas for p in active if p.max_replicas is not None), default=None),
        paused_directions=frozenset(d for p in active for d in p.paused_directions),
    )


def explain_invalid_cron(line: str) -> str | None:
    """Return why a cron line is invalid; None if it is valid."""
    try:
        occurrence = next(CronSim(line, datetime(2024, 1, 1, tzinfo=UTC)), None)
    except CronSimError as error:
        return str(error).lower()
    return None if occurrence is not None else "it never occurs"


def _next_occurrence(line: str, after: datetime) -> float:
    occurrence = next(CronSim(line, after), None)
    return inf if occurrence is None else occurrence.timestamp()  # 30 February
