"""Recommendation: the cheapest simulated setting whose late traffic is within a limit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trimtab.assignor.analysis.simulation.metrics import RunSummary
from trimtab.common.settings.shared_defaults import DEFAULT_HEURISTIC

CANDIDATE_HEADROOMS: Final = (1.0, 0.95, 0.9, 0.85, 0.8, 0.75, 0.7)
COST_TIE_TOLERANCE: Final = 0.01  # of consumer-hours; in a tie late traffic decides

# The default setting, which wins a full tie.
DEFAULT_SETTING_NAMES: Final = (DEFAULT_HEURISTIC, f"{DEFAULT_HEURISTIC}:balanced")


@dataclass(frozen=True, slots=True)
class SettingCandidate:
    """A simulated setting and its summary."""

    name: str
    headroom: float
    summary: RunSummary


@dataclass(frozen=True, slots=True)
class SettingRecommendation:
    """The recommended candidate, whether it keeps the limit, and the reason."""

    chosen: SettingCandidate
    within_limit: bool
    reason: str


def recommend_setting(candidates: Sequence[SettingCandidate], limit: float) -> SettingRecommendation | None:
    """Return the cheapest candidate within `limit` (late traffic in percent), None without any.

    If none keeps the limit, it is the one with the least late traffic.
    """
    if not candidates:
        return None
    fit = [c for c in candidates if c.summary.late_percent <= limit]
    if not fit:
        return _recommend_least_late(candidates, limit)
    least = min(c.summary.consumer_hours for c in fit)
    alike = [c for c in fit if c.summary.consumer_hours <= least * (1 + COST_TIE_TOLERANCE)]
    chosen = min(alike, key=_rank)
    reason = _explain_choice(chosen, candidates, fit, limit)
    return SettingRecommendation(chosen, within_limit=True, reason=reason)


def consumer_hour_decimals(hours: float) -> int:
    """Return the number of decimals to print consumer-hours with."""
    return 1 if hours >= 10 else 2 if hours >= 1 else 3  # noqa: PLR2004 - digits


def _rank(one: SettingCandidate) -> tuple[float, float, bool]:
    return (one.summary.late_percent, one.summary.consumer_hours, one.name not in DEFAULT_SETTING_NAMES)


def _recommend_least_late(candidates: Sequence[SettingCandidate], limit: float) -> SettingRecommendation:
    chosen = min(candidates, key=_rank)
    late = chosen.summary.late_percent
    hours = _format_hours(chosen)
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
    return SettingRecommendation(chosen, within_limit=False, reason=reason)


def _explain_choice(
    chosen: SettingCandidate,
    candidates: Sequence[SettingCandidate],
    fit: Sequence[SettingCandidate],
    limit: float,
) -> str:
    kept = f"late traffic at {limit:g} % or less"
    if len(candidates) == 1:
        reason = f"the one simulated setting keeps {kept}"
    elif len(fit) == 1:
        reason = f"it alone of {len(candidates)} simulated settings keeps {kept}"
    else:
        reason = (
            f"it costs least, give or take {100 * COST_TIE_TOLERANCE:g} %, of the {len(fit)} of "
            f"{len(candidates)} simulated settings that keep {kept}"
        )
    reason += f": {_format_hours(chosen)}, {chosen.summary.late_percent:.2f} % late"
    hours = chosen.summary.consumer_hours
    missed = [c for c in candidates if c.summary.consumer_hours < hours and c not in fit]
    if not missed:
        return reason
    runner_up = max(missed, key=lambda c: c.summary.consumer_hours)
    return (
        f"{reason}; the next cheaper, {runner_up.name} at headroom {runner_up.headroom:g}, takes "
        f"{_format_hours(runner_up)}, but {runner_up.summary.late_percent:.2f} % is late"
    )


def _format_hours(one: SettingCandidate) -> str:
    hours = one.summary.consumer_hours
    return f"{hours:.{consumer_hour_decimals(hours)}f} consumer-hours"
