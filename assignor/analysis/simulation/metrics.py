"""Summary of a run in figures that matter to an operator."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

import numpy as np

from trimtab.assignor.analysis.simulation.closed_loop import SimulationRun
from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE
from trimtab.assignor.scores.score import cardinal_bin_score

SIMULATED_HOUR_S: Final = 3600.0


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Figures of a run, or means of several."""

    cbs_percent: float | None  # None for contenders that do not pack by capacity, as `over_l2_percent`
    mean_r: float
    moves_per_tick: float
    mean_consumers: float
    over_l2_percent: float | None
    consumer_hours: float
    late_percent: float
    overload_percent: float  # consumers with more arriving at the next tick than their capacity
    moves_per_hour: float
    rebalances_per_hour: float
    starts_stops_per_hour: float
    mean_lag_s: float
    worst_lag_s: float
    # Ticks whose decision left a consumer above the headroom although that was avoidable.
    over_headroom: float
    over_capacity: float  # ticks with a consumer above its capacity
    max_fullest: float  # highest load ÷ capacity of a consumer

    def to_dict(self) -> dict[str, float | None]:
        """Return the figures by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


def summarize_runs(
    runs: Mapping[str, SimulationRun], setup: SimulationSetup, bounds: Sequence[int]
) -> dict[str, RunSummary]:
    """Return the summary of each run on one stream.

    CBS is relative to the fewest bins of those that pack by capacity; `bounds` (N,) are L2's.
    """
    scores = cardinal_bin_score({n: r.consumers.tolist() for n, r in runs.items() if r.packs_by_capacity})
    return {n: _summarize_run(run, setup, bounds, scores.get(n)) for n, run in runs.items()}


def _summarize_run(
    run: SimulationRun, setup: SimulationSetup, bounds: Sequence[int], cbs: float | None
) -> RunSummary:
    ticks = len(run.consumers)
    hours = (ticks - 1) * setup.tick / SIMULATED_HOUR_S  # the first tick moves nothing: no owners yet
    return RunSummary(
        cbs_percent=None if cbs is None else 100 * cbs,
        mean_r=float(run.r_score.mean()),
        moves_per_tick=float(run.moved.mean()),
        mean_consumers=float(run.consumers.mean()),
        over_l2_percent=_percent_over_bound(run, bounds) if run.packs_by_capacity else None,
        consumer_hours=float(run.consumers.sum()) * setup.tick / SIMULATED_HOUR_S,
        late_percent=_to_percent(run.late.sum(), run.arrived.sum()),
        overload_percent=_to_percent(run.overloaded[1:].sum(), run.consumers[:-1].sum()),
        moves_per_hour=_per_hour(run.moved.sum(), hours),
        rebalances_per_hour=_per_hour(run.rebalanced.sum(), hours),
        starts_stops_per_hour=_per_hour(run.started.sum() + run.stopped.sum(), hours),
        mean_lag_s=float(run.mean_lag.mean()),
        worst_lag_s=float(run.worst_lag.max()),
        over_headroom=float((run.decided & run.avoidable).sum()),
        over_capacity=float((run.fullest > 1 + CAPACITY_TOLERANCE).sum()),
        max_fullest=float(run.fullest.max()),
    )


def average_summaries(summaries: Sequence[RunSummary]) -> RunSummary:
    """Return the mean of each figure, and the maximum of the worst ones."""
    means: dict[str, float | None] = {}
    for field in fields(RunSummary):
        values = [getattr(s, field.name) for s in summaries]
        means[field.name] = None if None in values else float(np.mean(values))
    for name in ("worst_lag_s", "max_fullest"):
        means[name] = max(getattr(s, name) for s in summaries)
    return RunSummary(**means)  # type: ignore[arg-type]


def _percent_over_bound(run: SimulationRun, bounds: Sequence[int]) -> float:
    least = np.asarray(bounds, dtype=np.float64)
    excess = np.where(least > 0, run.consumers / np.maximum(least, 1) - 1, 0.0)
    return 100 * float(excess.mean())


def _to_percent(part: float, whole: float) -> float:
    return 100 * float(part) / float(whole) if whole else 0.0


def _per_hour(count: float, hours: float) -> float:
    return float(count) / hours if hours else 0.0
