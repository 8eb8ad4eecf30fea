"""Closed-loop simulation: measure, decide, read during the next tick.

A decision at tick t sees the write rates of t and the backlog at its end. It applies during t + 1, in
which moved partitions pause; it may change owners again while t + 1 passes, as consumers join. The
group starts empty: the first decision moves nothing and causes no pause.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from trimtab.assignor.analysis.simulation.backlog_model import PartitionBacklogs, ReadingStage
from trimtab.assignor.analysis.simulation.contenders import Contender, DecisionIterator, SimulatedDecision
from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE, sum_loads
from trimtab.assignor.scores.score import find_moved


@dataclass(frozen=True, slots=True, eq=False)
class SimulationRun:
    """Figures of each of N ticks, all of shape (N,)."""

    name: str
    packs_by_capacity: bool
    # Of the tick's decision.
    consumers: IntArray
    r_score: FloatArray
    moved: IntArray
    rebalanced: BoolArray
    started: IntArray
    stopped: IntArray
    fullest: FloatArray  # load ÷ capacity of the fullest consumer once the decision is carried out
    decided: BoolArray  # a placement was decided and carried out within the tick
    feasible: BoolArray  # a placement within the headroom was found, on these consumers
    avoidable: BoolArray  # a consumer with several partitions is above the headroom, and need not be
    # Of the time up to the tick: effects of the decision before.
    arrived: FloatArray  # bytes
    late: FloatArray  # bytes
    overloaded: IntArray  # consumers with more arriving than their capacity
    mean_lag: FloatArray  # seconds, weighted by arriving bytes
    worst_lag: FloatArray  # seconds


# These two in a row are the figures of SimulationRun, which is built by position.
class _DecisionEffects(NamedTuple):
    consumers: int
    r_score: float
    moved: int
    rebalanced: bool
    started: int
    stopped: int
    fullest: float
    decided: bool
    feasible: bool
    avoidable: bool


class _TickEffects(NamedTuple):
    arrived: float = 0.0
    late: float = 0.0
    overloaded: int = 0
    mean_lag: float = 0.0
    worst_lag: float = 0.0


def run_simulation(
    contender: Contender,
    stream: WriteRateStream,
    setup: SimulationSetup,
    iter_decisions: DecisionIterator | None = None,
) -> SimulationRun:
    """Simulate a contender on a stream, or these decisions in its name. Raises BrokenHeuristicError."""
    iter_decisions = iter_decisions or contender.iter_decisions
    queues = PartitionBacklogs(stream.rates, setup)
    rates = np.nan_to_num(stream.rates, nan=0.0)
    decided: list[_DecisionEffects] = []
    passed = [_TickEffects()]
    unowned = np.full(len(stream.partitions), UNASSIGNED, dtype=np.int32)
    before: SimulatedDecision | None = None
    for tick, after in enumerate(iter_decisions(stream, setup, lambda: queues.backlog)):
        before = before or SimulatedDecision.at_once(unowned, after.members)
        moved = _find_moves(before, after)
        decided.append(_measure_decision(before, after, moved, rates[tick], setup))
        if tick + 1 < len(rates):
            paused = _pause_all(moved, rebalanced=decided[-1].rebalanced) if contender.eager else moved
            passed.append(_advance_backlogs(queues, after, paused, rates[tick + 1], setup))
        before = after
    columns = zip(*(d + p for d, p in zip(decided, passed, strict=True)), strict=True)
    return SimulationRun(contender.name, contender.packs_by_capacity, *map(np.array, columns))


def _find_moves(before: SimulatedDecision, after: SimulatedDecision) -> list[BoolArray]:
    """Return which partitions (P,) move at each change of owners."""
    owners = [before.owner, *(change.owner for change in after.changes)]
    return [find_moved(a, b) & (b != UNASSIGNED) for a, b in pairwise(owners)]


def _pause_all(moved: Sequence[BoolArray], *, rebalanced: bool) -> list[BoolArray]:
    """Return the pauses of an eager assignor: every partition's, whenever the group rebalances."""
    alone = rebalanced and len(moved) == 1  # members may come and go without a move
    return [np.full_like(m, alone or m.any()) for m in moved]


def _measure_decision(
    before: SimulatedDecision,
    after: SimulatedDecision,
    moved: Sequence[BoolArray],
    rate: FloatArray,
    setup: SimulationSetup,
) -> _DecisionEffects:
    """Return the figures of a decision; `rate` (P,) are the write rates that it saw."""
    started = len(np.setdiff1d(after.members, before.members, assume_unique=True))
    stopped = len(np.setdiff1d(before.members, after.members, assume_unique=True))
    moves = sum(int(np.count_nonzero(m)) for m in moved)
    rebalanced = bool(moves or started or stopped)
    fits = after.feasible is None or after.feasible
    usable = setup.headroom * setup.capacity * (1 + CAPACITY_TOLERANCE)
    count = int(after.members.max(initial=UNASSIGNED)) + 1
    load = sum_loads(after.owner, rate, count)
    several = sum_loads(after.owner, np.ones_like(rate), count) > 1
    overfull = bool((load[several] > usable).any())
    return _DecisionEffects(
        consumers=len(after.members),
        r_score=sum(float(rate[m].sum()) for m in moved) / setup.capacity,
        moved=moves,
        rebalanced=rebalanced,
        started=started,
        stopped=stopped,
        fullest=float(load.max(initial=0.0)) / setup.capacity,
        decided=rebalanced if after.decided is None else after.decided,
        feasible=fits and bool(rate.max(initial=0.0) <= usable),
        avoidable=fits and overfull,
    )


def _advance_backlogs(
    queues: PartitionBacklogs,
    decision: SimulatedDecision,
    paused: Sequence[BoolArray],
    rate: FloatArray,
    setup: SimulationSetup,
) -> _TickEffects:
    """Advance by one tick with the write rates `rate` (P,) and return its figures."""
    late = queues.advance_stages([ReadingStage(*c, m) for c, m in zip(decision.changes, paused, strict=True)])
    members = int(decision.members.max(initial=UNASSIGNED)) + 1
    load = sum_loads(decision.owner, rate, members)
    total = float(rate.sum())
    ages = queues.oldest_ages
    return _TickEffects(
        arrived=total * setup.tick,
        late=float(late.sum()),
        overloaded=int(np.count_nonzero(load > setup.capacity * (1 + CAPACITY_TOLERANCE))),
        mean_lag=float(ages @ rate) / total if total else 0.0,
        worst_lag=float(ages.max(initial=0.0)),
    )
