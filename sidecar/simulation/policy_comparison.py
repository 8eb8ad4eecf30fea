"""Simulates a recorded stream under several policies of a sidecar, and compares what they cost.

The closed loop is that of `trimtab simulate --live`. Its group begins without backlog, sized for the
first write rates.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trimtab.assignor.analysis.simulation import SimulationSetup, parse_contender, run_simulation
from trimtab.assignor.analysis.simulation.closed_loop import SimulationRun
from trimtab.assignor.analysis.simulation.contenders import BacklogReader, SimulatedDecision
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.simulation.live_loop import iter_sidecar_decisions
from trimtab.sidecar.simulation.live_settings import LiveSettings

MAX_PAUSE_TICKS: Final = 1  # of a moved partition, as the simulation has it


@dataclass(frozen=True, slots=True)
class ComparisonInput:
    """A stream, the policies to compare on it, and times in seconds."""

    stream: WriteRateStream
    begin: float  # of the stream, since the epoch: schedules have a time of day
    tick: float
    policies: tuple[AutoscalingPolicy, ...]
    pause: float  # a moved partition is not read for it
    late: float  # a byte is late if its partition's oldest unread byte has waited longer
    startup: float  # from a consumer's start to its join


@dataclass(frozen=True, slots=True)
class PolicyCost:
    """What a policy costs on a stream."""

    consumer_hours: float
    late_percent: float  # of the bytes
    late_time_percent: float  # of the ticks, those with late bytes
    moves: int
    moved_consumers: float  # moved load ÷ capacity: the R-score
    rebalances: int
    worst_lag_s: float
    changes: tuple[tuple[int, int], ...]  # (tick, consumers) whenever the count changes


def compare_policies(given: ComparisonInput, report: Callable[[float], None]) -> tuple[PolicyCost, ...]:
    """Return the cost of each policy; `report` gets the fraction done. Raises BrokenHeuristicError."""
    total = len(given.policies) * len(given.stream.rates)
    done = 0

    def report_tick() -> None:
        nonlocal done
        done += 1
        report(done / total)

    return tuple(_simulate(make_steering(policy), given, report_tick) for policy in given.policies)


def make_steering(policy: AutoscalingPolicy) -> AutoscalingPolicy:
    """Return the policy of a sidecar that scales its group, also of one that only advises."""
    return replace(policy, advisory=False, learned_capacity_bounds=None)


def _simulate(
    policy: AutoscalingPolicy, given: ComparisonInput, report_tick: Callable[[], None]
) -> PolicyCost:
    placement = policy.placement
    setup = SimulationSetup(
        capacity=placement.capacity,
        headroom=placement.headroom,
        tick=given.tick,
        pause=min(given.pause, MAX_PAUSE_TICKS * given.tick),
        late=given.late,
    )

    def iter_decisions(
        stream: WriteRateStream, setup: SimulationSetup, lags: BacklogReader
    ) -> Iterator[SimulatedDecision]:
        live = LiveSettings(given.startup)
        for decision in iter_sidecar_decisions(policy, stream, setup, lags, live, begin=given.begin):
            report_tick()
            yield decision

    contender = parse_contender(placement.heuristic)
    return _summarize(run_simulation(contender, given.stream, setup, iter_decisions), setup)


def _summarize(run: SimulationRun, setup: SimulationSetup) -> PolicyCost:
    arrived = float(run.arrived.sum())
    return PolicyCost(
        consumer_hours=float(run.consumers.sum()) * setup.tick / 3600,
        late_percent=100 * float(run.late.sum()) / arrived if arrived else 0.0,
        late_time_percent=100 * float((run.late > 0).mean()),
        moves=int(run.moved.sum()),
        moved_consumers=float(run.r_score.sum()),
        rebalances=int(run.rebalanced.sum()),
        worst_lag_s=float(run.worst_lag.max(initial=0.0)),
        changes=list_changes(run.consumers.tolist()),
    )


def list_changes(counts: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return (index, count) of the first count and of each that differs from the one before."""
    values = np.asarray(counts)
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    return tuple((int(n), int(values[n])) for n in starts)
