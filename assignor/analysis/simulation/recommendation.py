"""What to set: the cheapest of the simulated settings whose late traffic is under a limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trimtab.assignor.analysis.simulation.metrics import Summary
from trimtab.assignor.heuristics.registry import DEFAULT

HEADROOMS: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
ALIKE: Final = 0.01
"""Consumer-hours that differ by less than this share cost the same: then what is late decides."""

IN_FORCE: Final = (DEFAULT, f"{DEFAULT}:balanced")
"""What is set unless somebody changes it; a full tie is no reason to."""


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
    chosen = min(alike, key=_order)
    return Recommendation(chosen, within=True, reason=_why(chosen, candidates, fit, limit))


def decimals(hours: float) -> int:
    """Return how many decimals tell so few consumer-hours apart."""
    return 1 if hours >= 10 else 2 if hours >= 1 else 3  # noqa: PLR2004 - digits


def _order(one: Candidate) -> tuple[float, float, bool]:
    return one.summary.late_percent, one.summary.consumer_hours, one.name not in IN_FORCE


def _least_late(candidates: Sequence[Candidate], limit: float) -> Recommendation:
    chosen = min(candidates, key=_order)
    late, hours = chosen.summary.late_percent, _hours(chosen)
    if len(candidates) == 1:
        reason = (
            f"the one simulated setting does not keep late traffic at {limit:g} % or less: "
            f"{late:.2f} % is late, for {hours}"
        )
    else:
        reason = (
            f"none of the {len(candidates)} simulated settings keeps late traffic at {limit:g} % "
            f"or less; this one comes closest with {late:.2f} %, for {hours}"
        )
    return Recommendation(chosen, within=False, reason=reason)


def _why(
    chosen: Candidate, candidates: Sequence[Candidate], fit: Sequence[Candidate], limit: float
) -> str:
    kept = f"late traffic at {limit:g} % or less"
    if len(candidates) == 1:
        said = f"the one simulated setting keeps {kept}"
    elif len(fit) == 1:
        said = f"it alone of {len(candidates)} simulated settings keeps {kept}"
    else:
        said = (
            f"it costs least, give or take {100 * ALIKE:g} %, of the {len(fit)} of "
            f"{len(candidates)} simulated settings that keep {kept}"
        )
    said += f": {_hours(chosen)}, {chosen.summary.late_percent:.2f} % late"
    cheaper = [c for c in candidates if c.summary.consumer_hours < chosen.summary.consumer_hours]
    missed = [c for c in cheaper if c not in fit]
    if not missed:
        return said
    next_ = max(missed, key=lambda c: c.summary.consumer_hours)
    return (
        f"{said}; the next cheaper, {next_.name} at headroom {next_.headroom:g}, takes "
        f"{_hours(next_)}, but {next_.summary.late_percent:.2f} % is late"
    )


def _hours(one: Candidate) -> str:
    hours = one.summary.consumer_hours
    return f"{hours:.{decimals(hours)}f} consumer-hours"
