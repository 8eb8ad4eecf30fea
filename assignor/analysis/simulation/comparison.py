"""Runs side by side: scores that need the whole set, and who beats whom over several streams."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trimtab.assignor.analysis.simulation.closed_loop import Run
from trimtab.assignor.analysis.simulation.metrics import Summary, mean_of, summary
from trimtab.assignor.analysis.simulation.setup import Setup
from trimtab.assignor.packing import TOLERANCE
from trimtab.assignor.score import cardinal_bin_score


@dataclass(frozen=True, slots=True)
class Duel:
    """How one fares against another on the same streams.

    `r_ratio` is mean R over the other's; None where the other never moves anything. `better`
    counts the streams with less R at no higher CBS, `cbs_no_higher` those with no higher CBS; both
    are None where one of the two has no CBS.
    """

    name: str
    against: str
    r_ratio: float | None
    cbs_no_higher: int | None
    better: int | None
    streams: int


def summaries(runs: Mapping[str, Run], setup: Setup, bounds: Sequence[int]) -> dict[str, Summary]:
    """Return each run of one stream in figures.

    CBS compares with the fewest bins among those that pack by capacity; `bounds` (N,) are L2's.
    """
    scores = cardinal_bin_score({n: r.consumers.tolist() for n, r in runs.items() if r.counts})
    return {n: summary(run, setup, bounds, scores.get(n)) for n, run in runs.items()}


def duel(name: str, against: str, streams: Sequence[Mapping[str, Summary]]) -> Duel:
    """Compare two by R at equal or lower CBS."""
    pairs = [(s[name], s[against]) for s in streams]
    ours, theirs = (mean_of(side).mean_r for side in zip(*pairs, strict=True))
    fits = [_no_higher(one.cbs_percent, two.cbs_percent) for one, two in pairs]
    less = [one.mean_r < two.mean_r for one, two in pairs]
    return Duel(
        name=name,
        against=against,
        r_ratio=ours / theirs if theirs else None,
        cbs_no_higher=None if None in fits else fits.count(True),
        better=None if None in fits else [*zip(fits, less, strict=True)].count((True, True)),
        streams=len(pairs),
    )


def _no_higher(one: float | None, two: float | None) -> bool | None:
    return None if one is None or two is None else one <= two + TOLERANCE
