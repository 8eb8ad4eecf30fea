"""What runs cost beyond the lower bound in hindsight, and in which ticks."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np

from trimtab.assignor.analysis.simulation.closed_loop import SimulationRun
from trimtab.assignor.analysis.simulation.hindsight import HindsightBound
from trimtab.assignor.model import FloatArray, IntArray

HELD_S: Final = 120.0  # the sidecar's scale-down-stabilization-window, unless set
COSTLIEST_TICKS: Final = 5


class CostlyTick(NamedTuple):
    """A tick of a stream, by index, and its cost beyond the bound, in consumers."""

    stream: int
    tick: int
    excess: float


@dataclass(frozen=True, slots=True)
class HindsightGap:
    """Cost of a heuristic beyond the bound, over all ticks of its runs; percentages are of the bound."""

    cost: float  # consumers + λ · R of a tick, mean
    bound: float
    gap_percent: float  # the sum of the four that follow
    held_percent: float  # consumers beyond the bound's, at most those that it needed within `HELD_S` before
    spare_percent: float  # other consumers beyond the bound's
    missing_percent: float  # consumers fewer than the bound's, at most 0
    moves_percent: float  # R beyond the bound's
    overfull_ticks: int  # a consumer of several partitions above the headroom: may cost less than the bound
    half_ticks: int  # the fewest ticks that hold half of what is beyond the bound
    costliest: tuple[CostlyTick, ...]
    move_cost: float  # λ
    exact: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the figures by name."""
        return {**asdict(self), "costliest": [tick._asdict() for tick in self.costliest]}


def measure_gap(
    runs: Sequence[SimulationRun], bounds: Sequence[HindsightBound], tick_seconds: float
) -> HindsightGap:
    """Return the gap of one heuristic's runs; `bounds` are those of their streams."""
    price = bounds[0].move_cost
    beyond = [run.consumers - bound.consumers for run, bound in zip(runs, bounds, strict=True)]
    held = [_find_held(b.consumers, math.ceil(HELD_S / tick_seconds)) for b in bounds]
    held = [np.clip(one, 0, most) for one, most in zip(beyond, held, strict=True)]
    moves = [price * (run.r_score - bound.moves) for run, bound in zip(runs, bounds, strict=True)]
    excess = [one + two for one, two in zip(beyond, moves, strict=True)]
    bound = sum(float(b.cost.sum()) for b in bounds)
    ticks = sum(map(len, beyond))
    parts = (_sum_all(held), _sum_above(beyond) - _sum_all(held), -_sum_above([-b for b in beyond]))
    held_part, spare_part, missing_part, moves_part, gap = (
        100 * part / bound if bound else 0.0 for part in (*parts, _sum_all(moves), _sum_all(excess))
    )
    return HindsightGap(
        cost=(bound + _sum_all(excess)) / ticks,
        bound=bound / ticks,
        gap_percent=gap,
        held_percent=held_part,
        spare_percent=spare_part,
        missing_percent=missing_part,
        moves_percent=moves_part,
        overfull_ticks=sum(int(run.overfull.sum()) for run in runs),
        half_ticks=_count_half(np.concatenate(excess)),
        costliest=_list_costliest(excess),
        move_cost=price,
        exact=all(b.exact for b in bounds),
    )


def _find_held(consumers: IntArray, ticks: int) -> IntArray:
    """Return how many consumers more were needed at most in the ticks before, (N,)."""
    padded = np.append(np.full(ticks, consumers[0]), consumers)
    highest = np.lib.stride_tricks.sliding_window_view(padded, ticks + 1).max(axis=1)
    held: IntArray = highest - consumers
    return held


def _sum_all(each: Sequence[FloatArray | IntArray]) -> float:
    return sum(float(one.sum()) for one in each)


def _sum_above(each: Sequence[IntArray]) -> float:
    return sum(float(np.maximum(one, 0).sum()) for one in each)


def _count_half(excess: FloatArray) -> int:
    falling = np.cumsum(np.sort(np.maximum(excess, 0.0))[::-1])
    return int(np.searchsorted(falling, falling[-1] / 2)) + 1 if falling[-1] > 0 else 0


def _list_costliest(excess: Sequence[FloatArray]) -> tuple[CostlyTick, ...]:
    every = [CostlyTick(n, t, e) for n, one in enumerate(excess) for t, e in enumerate(one.tolist()) if e > 0]
    return tuple(sorted(every, key=lambda tick: -tick.excess)[:COSTLIEST_TICKS])
