"""The closed loop: speeds are measured, a contender decides, the next speeds arrive, queues form.

A decision at tick t knows the speeds of t and what is unread at its end; it is in force while those
of t + 1 arrive. What it moves pauses then. The group starts empty: the first decision moves nothing
and nobody pauses for it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.assignor.analysis.simulation.backlog_model import Queues
from trimtab.assignor.analysis.simulation.contenders import Contender, Decision
from trimtab.assignor.analysis.simulation.setup import Setup
from trimtab.assignor.analysis.streams.stream import Stream
from trimtab.assignor.model import NOBODY, BoolArray, FloatArray, IntArray
from trimtab.assignor.packing import TOLERANCE, loads
from trimtab.assignor.score import moved


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """What happened at each of N ticks; all of shape (N,).

    What a decision does stands at its own tick, what follows from it at the next: `arrived`, `late`
    (bytes), `overloaded` (consumers to which more arrives than they sustain), `mean_lag` (seconds,
    over the bytes that arrive) and `worst_lag` (seconds) are of the time up to the tick.
    """

    name: str
    counts: bool
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


class _Decided(NamedTuple):
    """What a decision does."""

    consumers: int
    r_score: float
    moved: int
    rebalanced: bool
    started: int
    stopped: int


class _Passed(NamedTuple):
    """What the time up to a tick brought."""

    arrived: float = 0.0
    late: float = 0.0
    overloaded: int = 0
    mean_lag: float = 0.0
    worst_lag: float = 0.0


def simulate(contender: Contender, stream: Stream, setup: Setup) -> Run:
    """Run a stream through a contender. Raises BrokenHeuristic where that gives nonsense."""
    queues = Queues(stream.speeds, setup)
    decided: list[_Decided] = []
    passed = [_Passed()]
    before = _nobody(len(stream.partitions))
    decisions = contender.decide(stream, setup, lambda: queues.backlog)
    for tick, after in enumerate(decisions):
        speeds = np.nan_to_num(stream.speeds[tick], nan=0.0)
        changed = moved(before.owner, after.owner) & (after.owner != NOBODY)
        decided.append(_decided(before, after, changed, speeds / setup.capacity, first=tick == 0))
        if tick + 1 < len(stream.speeds):
            paused = np.full_like(changed, decided[-1].rebalanced) if contender.eager else changed
            following = np.nan_to_num(stream.speeds[tick + 1], nan=0.0)
            passed.append(_passed(queues, after, paused, following, setup))
        before = after
    columns = zip(*(d + p for d, p in zip(decided, passed, strict=True)), strict=True)
    return Run(contender.name, contender.counts, *(np.array(column) for column in columns))


def _nobody(partitions: int) -> Decision:
    return Decision(np.full(partitions, NOBODY, dtype=np.int32), np.empty(0, dtype=np.int32))


def _decided(
    before: Decision, after: Decision, changed: BoolArray, share: FloatArray, *, first: bool
) -> _Decided:
    """Return what a decision does; `share` (P,) is each partition's speed in capacities."""
    started = 0 if first else len(np.setdiff1d(after.members, before.members, assume_unique=True))
    stopped = len(np.setdiff1d(before.members, after.members, assume_unique=True))
    moves = int(np.count_nonzero(changed))
    return _Decided(
        consumers=len(after.members),
        r_score=float(share[changed].sum()),
        moved=moves,
        rebalanced=bool(moves or started or stopped),
        started=started,
        stopped=stopped,
    )


def _passed(
    queues: Queues, decision: Decision, paused: BoolArray, speeds: FloatArray, setup: Setup
) -> _Passed:
    """Let the next tick pass; `speeds` (P,) arrive in it."""
    late = queues.step(decision.owner, paused)
    members = int(decision.members.max(initial=NOBODY)) + 1
    load = loads(decision.owner, speeds, members)
    total, ages = float(speeds.sum()), queues.ages
    return _Passed(
        arrived=total * setup.tick,
        late=float(late.sum()),
        overloaded=int(np.count_nonzero(load > setup.capacity * (1 + TOLERANCE))),
        mean_lag=float(ages @ speeds) / total if total else 0.0,
        worst_lag=float(ages.max(initial=0.0)),
    )
