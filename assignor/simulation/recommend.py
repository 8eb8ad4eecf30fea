"""What to set: the cheapest of the simulated settings whose late traffic is under a limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trimtab.assignor.simulation.metrics import Summary

HEADROOMS: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
ALIKE: Final = 0.01
"""Consumer-hours that differ by less than this share cost the same: then what is late decides."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting that was simulated, and what came of it."""

    name: str
    headroom: float
    summary: Summary


@dataclass(frozen=True, slots=True)
class Recommendation:
    """The candidate to take; `within` tells whether it keeps the limit, `reason` why it is it."""

    chosen: Candidate
    within: bool
    reason: str


def recommend(candidates: Sequence[Candidate], limit: float) -> Recommendation | None:
    """Choose among candidates; `limit` is late traffic in percent. None if there are none.

    Where none keeps the limit, it is the one with the least late traffic.
    """
    if not candidates:
        return None
    fit = [c for c in candidates if c.summary.late_percent <= limit]
    if not fit:
        return _least_late(candidates, limit)
    least = min(c.summary.consumer_hours for c in fit)
    alike = [c for c in fit if c.summary.consumer_hours <= least * (1 + ALIKE)]
    chosen = min(alike, key=lambda c: (c.summary.late_percent, c.summary.consumer_hours))
    return Recommendation(chosen, within=True, reason=_why(chosen, candidates, fit, limit))


def _least_late(candidates: Sequence[Candidate], limit: float) -> Recommendation:
    chosen = min(candidates, key=lambda c: (c.summary.late_percent, c.summary.consumer_hours))
    reason = (
        f"none of the {_settings(len(candidates))} keeps late traffic at {limit:g} % or less; "
        f"this one comes closest with {chosen.summary.late_percent:.2f} %, for "
        f"{chosen.summary.consumer_hours:.1f} consumer-hours"
    )
    return Recommendation(chosen, within=False, reason=reason)


def _why(
    chosen: Candidate, candidates: Sequence[Candidate], fit: Sequence[Candidate], limit: float
) -> str:
    late, hours = chosen.summary.late_percent, chosen.summary.consumer_hours
    if len(fit) == 1:
        said = f"it alone of {_settings(len(candidates))} keeps late traffic at {limit:g} % or less"
    else:
        said = (
            f"it costs least, give or take {ALIKE:.0%}, of the {len(fit)} of "
            f"{_settings(len(candidates))} that keep late traffic at {limit:g} % or less"
        )
    said += f": {hours:.1f} consumer-hours, {late:.2f} % late"
    cheaper = [c for c in candidates if c.summary.consumer_hours < hours]
    missed = [c for c in cheaper if c not in fit]
    if not missed:
        return said
    next_ = max(missed, key=lambda c: c.summary.consumer_hours)
    return (
        f"{said}; the next cheaper, {next_.name} at headroom {next_.headroom:g}, takes "
        f"{next_.summary.consumer_hours:.1f} but {next_.summary.late_percent:.2f} % is late"
    )


def _settings(count: int) -> str:
    return f"{count} simulated settings" if count != 1 else "one simulated setting"
