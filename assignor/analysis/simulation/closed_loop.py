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
    """Figures of each of N ticks, all of shape (N,).

    A decision's own figures stand at its tick. Its effects stand at the next: `arrived` and `late`
    (bytes), `overloaded` (consumers with more arriving than their capacity), `mean_lag` (seconds,
    weighted by arriving bytes) and `worst_lag` (seconds) cover the time up to the tick.
    """

    name: str
    packs_by_capacity: bool
    consumers: IntArray
    r_score: FloatArray
    moved: IntArray
    rebalanced: BoolArray
    started: IntArray
    stopped: IntArray
    arrived: FloatArray
    late: FloatArray
    overloaded: IntArray
    mean_lag: FloatArray
    worst_lag: FloatArray


class _DecisionEffects(NamedTuple):
    """Figures of a decision."""

    consumers: int
    r_score: float
    moved: int
    rebalanced: bool
    started: int
    stopped: int


class _TickEffects(NamedTuple):
    """Figures of the time up to a tick."""

    arrived: float = 0.0
    late: float = 0.0
    overloaded: int = 0
    mean_lag: float = 0.0
    worst_lag: float = 0.0


def run_simulation(contender: Contender, stream: WriteRateStream, setup: SimulationSetup) -> SimulationRun:
    """Simulate a contender on a stream. Raises BrokenHeuristicError for a broken heuristic."""
    queues = PartitionBacklogs(stream.rates, setup)
    decided: list[_DecisionEffects] = []
    passed = [_TickEffects()]
    before = _empty_decision(len(stream.partitions))
    decisions = contender.iter_decisions(stream, setup, lambda: queues.backlog)
    for tick, after in enumerate(decisions):
        speeds = np.nan_to_num(stream.rates[tick], nan=0.0)
        changed = find_moved(before.owner, after.owner) & (after.owner != UNASSIGNED)
        decided.append(_measure_decision(before, after, changed, speeds / setup.capacity, first=tick == 0))
        if tick + 1 < len(stream.rates):
            paused = np.full_like(changed, decided[-1].rebalanced) if contender.eager else changed
            following = np.nan_to_num(stream.rates[tick + 1], nan=0.0)
            passed.append(_advance_backlogs(queues, after, paused, following, setup))
        before = after
    columns = zip(*(d + p for d, p in zip(decided, passed, strict=True)), strict=True)
    return SimulationRun(
        contender.name, contender.packs_by_capacity, *(np.array(column) for column in columns)
    )


def _empty_decision(partitions: int) -> SimulatedDecision:
    return SimulatedDecision(np.full(partitions, UNASSIGNED, dtype=np.int32), np.empty(0, dtype=np.int32))


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
    speeds: FloatArray,
    setup: SimulationSetup,
) -> _TickEffects:
    """Advance by one tick with the write rates `speeds` (P,) and return its figures."""
    late = queues.advance_tick(decision.owner, paused)
    members = int(decision.members.max(initial=UNASSIGNED)) + 1
    load = sum_loads(decision.owner, speeds, members)
    total, ages = float(speeds.sum()), queues.oldest_ages
    return _TickEffects(
        arrived=total * setup.tick,
        late=float(late.sum()),
        overloaded=int(np.count_nonzero(load > setup.capacity * (1 + CAPACITY_TOLERANCE))),
        mean_lag=float(ages @ speeds) / total if total else 0.0,
        worst_lag=float(ages.max(initial=0.0)),
    )
