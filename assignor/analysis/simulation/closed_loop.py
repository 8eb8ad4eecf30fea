"""Closed-loop simulation: measure, decide, read during the next tick.

A decision at tick t sees the write rates of t and the backlog at its end. It applies during t + 1,
in which moved partitions pause. The group starts empty: the first decision moves nothing and causes
no pause.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.assignor.analysis.simulation.backlog_model import PartitionBacklogs
from trimtab.assignor.analysis.simulation.contenders import Contender, SimulatedDecision
from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray
from trimtab.assignor.packing import CAPACITY_TOLERANCE, sum_loads
from trimtab.assignor.score import find_moved


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


class _TickEffects(NamedTuple):
    arrived: float = 0.0
    late: float = 0.0
    overloaded: int = 0
    mean_lag: float = 0.0
    worst_lag: float = 0.0


def run_simulation(contender: Contender, stream: WriteRateStream, setup: SimulationSetup) -> SimulationRun:
    """Simulate a contender on a stream. Raises BrokenHeuristicError for a broken heuristic."""
    queues = PartitionBacklogs(stream.rates, setup)
    rates = np.nan_to_num(stream.rates, nan=0.0)
    decided: list[_DecisionEffects] = []
    passed = [_TickEffects()]
    unowned = np.full(len(stream.partitions), UNASSIGNED, dtype=np.int32)
    before = SimulatedDecision(unowned, np.empty(0, dtype=np.int32))
    decisions = contender.iter_decisions(stream, setup, lambda: queues.backlog)
    for tick, after in enumerate(decisions):
        changed = find_moved(before.owner, after.owner) & (after.owner != UNASSIGNED)
        share = rates[tick] / setup.capacity
        decided.append(_measure_decision(before, after, changed, share, first=tick == 0))
        if tick + 1 < len(rates):
            paused = np.full_like(changed, decided[-1].rebalanced) if contender.eager else changed
            passed.append(_advance_backlogs(queues, after, paused, rates[tick + 1], setup))
        before = after
    columns = zip(*(d + p for d, p in zip(decided, passed, strict=True)), strict=True)
    return SimulationRun(contender.name, contender.packs_by_capacity, *map(np.array, columns))


def _measure_decision(
    before: SimulatedDecision, after: SimulatedDecision, changed: BoolArray, share: FloatArray, *, first: bool
) -> _DecisionEffects:
    """Return the figures of a decision; `share` (P,) is the write rates in capacities."""
    started = 0 if first else len(np.setdiff1d(after.members, before.members, assume_unique=True))
    stopped = len(np.setdiff1d(before.members, after.members, assume_unique=True))
    moves = int(np.count_nonzero(changed))
    return _DecisionEffects(
        consumers=len(after.members),
        r_score=float(share[changed].sum()),
        moved=moves,
        rebalanced=bool(moves or started or stopped),
        started=started,
        stopped=stopped,
    )


def _advance_backlogs(
    queues: PartitionBacklogs,
    decision: SimulatedDecision,
    paused: BoolArray,
    rate: FloatArray,
    setup: SimulationSetup,
) -> _TickEffects:
    """Advance by one tick with the write rates `rate` (P,) and return its figures."""
    late = queues.advance_tick(decision.owner, paused)
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
