"""Runs side by side: scores that need the whole set, and who beats whom over several streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.assignor.analysis.simulation.closed_loop import SimulationRun
from trimtab.assignor.analysis.simulation.metrics import (
    RunSummary,
    average_summaries,
    summarize_run,
)
from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.packing import CAPACITY_TOLERANCE
from trimtab.assignor.score import cardinal_bin_score


@dataclass(frozen=True, slots=True)
class PairComparison:
    """How one fares against another on the same streams.

    `r_ratio` is mean R over the other's; None where the other never moves anything. `better_streams`
    counts the streams with less R at no higher CBS, `cbs_no_higher` those with no higher CBS; both
    are None where one of the two has no CBS.
    """

    name: str
    baseline: str
    r_ratio: float | None
    cbs_no_higher: int | None
    better_streams: int | None
    streams: int


def summarize_runs(
    runs: Mapping[str, SimulationRun], setup: SimulationSetup, bounds: Sequence[int]
) -> dict[str, RunSummary]:
    """Return each run of one stream in figures.

    CBS compares with the fewest bins among those that pack by capacity; `bounds` (N,) are L2's.
    """
    scores = cardinal_bin_score(
        {n: r.consumers.tolist() for n, r in runs.items() if r.packs_by_capacity}
    )
    return {n: summarize_run(run, setup, bounds, scores.get(n)) for n, run in runs.items()}


def compare_pair(
    name: str, baseline: str, streams: Sequence[Mapping[str, RunSummary]]
) -> PairComparison:
    """Compare two by R at equal or lower CBS."""
    pairs = [(s[name], s[baseline]) for s in streams]
    ours, theirs = (average_summaries(side).mean_r for side in zip(*pairs, strict=True))
    fits = [_is_no_higher(one.cbs_percent, two.cbs_percent) for one, two in pairs]
    less = [one.mean_r < two.mean_r for one, two in pairs]
    return PairComparison(
        name=name,
        baseline=baseline,
        r_ratio=ours / theirs if theirs else None,
        cbs_no_higher=None if None in fits else fits.count(True),
        better_streams=None
        if None in fits
        else [*zip(fits, less, strict=True)].count((True, True)),
        streams=len(pairs),
    )


def _is_no_higher(one: float | None, two: float | None) -> bool | None:
    return None if one is None or two is None else one <= two + CAPACITY_TOLERANCE
