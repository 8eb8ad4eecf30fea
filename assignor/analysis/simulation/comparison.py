"""Comparison of runs: scores relative to the set, and pairs over several streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.assignor.analysis.simulation.closed_loop import SimulationRun
from trimtab.assignor.analysis.simulation.metrics import RunSummary, average_summaries, summarize_run
from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.packing import CAPACITY_TOLERANCE
from trimtab.assignor.score import cardinal_bin_score


@dataclass(frozen=True, slots=True)
class PairComparison:
    """One contender against a baseline on the same streams."""

    name: str
    baseline: str
    r_ratio: float | None  # mean R ÷ the baseline's; None if the baseline moves nothing
    cbs_no_higher: int | None  # streams with no higher CBS; None if either has no CBS
    better_streams: int | None  # those of them with less R
    streams: int


def summarize_runs(
    runs: Mapping[str, SimulationRun], setup: SimulationSetup, bounds: Sequence[int]
) -> dict[str, RunSummary]:
    """Return the summary of each run on one stream.

    CBS is relative to the fewest bins of those that pack by capacity; `bounds` (N,) are L2's.
    """
    scores = cardinal_bin_score({n: r.consumers.tolist() for n, r in runs.items() if r.packs_by_capacity})
    return {n: summarize_run(run, setup, bounds, scores.get(n)) for n, run in runs.items()}


def compare_pair(name: str, baseline: str, streams: Sequence[Mapping[str, RunSummary]]) -> PairComparison:
    """Compare two contenders by R at no higher CBS."""
    pairs = [(s[name], s[baseline]) for s in streams]
    ours, theirs = (average_summaries(side).mean_r for side in zip(*pairs, strict=True))
    fits = [_is_no_higher(one.cbs_percent, two.cbs_percent) for one, two in pairs]
    less = [one.mean_r < two.mean_r for one, two in pairs]
    return PairComparison(
        name=name,
        baseline=baseline,
        r_ratio=ours / theirs if theirs else None,
        cbs_no_higher=None if None in fits else fits.count(True),
        better_streams=None if None in fits else [*zip(fits, less, strict=True)].count((True, True)),
        streams=len(pairs),
    )


def _is_no_higher(one: float | None, two: float | None) -> bool | None:
    return None if one is None or two is None else one <= two + CAPACITY_TOLERANCE
