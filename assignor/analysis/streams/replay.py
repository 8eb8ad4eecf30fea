"""Replay of a stream: each heuristic decides tick by tick, on its own trajectory, in open mode."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.forecast import RateChangeStats, select_forecast
from trimtab.assignor.heuristics.heuristic import Heuristic
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.open_mode import pack_open_mode
from trimtab.assignor.score import find_moved, lower_bound, r_score


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no one truth of equality
class ReplayTick:
    """What one decision of a replay gave, and what it cost."""

    consumers: int
    r_score: float
    moved: int  # partitions that changed their owner
    owner: IntArray  # (P,) who reads from now on; NOBODY where a partition is away


def replay_stream(
    entry: Heuristic,
    stream: WriteRateStream,
    capacity: float,
    lags: Callable[[], FloatArray] | None = None,
) -> Iterator[ReplayTick]:
    """Yield what every tick decides and costs; `capacity` in bytes/s is that of every consumer.

    Heuristics see how much the speeds changed in earlier ticks (`trimtab.assignor.forecast`). The
    group starts empty, so the first tick moves nothing and scores 0. `lags` is asked before
    each decision for the backlogs (P,) in bytes that whoever takes the ticks has simulated;
    without it the bytes of one second stand for them.
    """
    owner: IntArray = np.full(len(stream.partitions), UNASSIGNED, dtype=np.int32)
    topics = sorted({p.topic for p in stream.partitions})
    topic = np.array([topics.index(p.topic) for p in stream.partitions], dtype=np.int32)
    changes = RateChangeStats.empty(len(stream.partitions))
    for speeds in stream.rates:
        there = ~np.isnan(speeds)
        changes = changes.with_measurement(speeds)
        before, speed = owner[there], speeds[there]
        lag = speed if lags is None else lags()[there]
        problem = _build_tick_problem(speed, before, topic[there], lag, capacity)
        outlook = select_forecast(changes.forecast_next(speeds), there)
        after = pack_open_mode(entry, replace(problem, forecast=outlook))
        owner = np.full_like(owner, UNASSIGNED)
        owner[there] = after
        yield ReplayTick(
            consumers=len(np.unique(after)),
            r_score=r_score(speed, before, after, capacity),
            moved=int(np.count_nonzero(find_moved(before, after))),
            owner=owner,
        )


def lower_bounds(stream: WriteRateStream, capacity: float) -> list[int]:
    """Return for every tick the L2 bound on the number of consumers."""
    return [lower_bound(speeds[~np.isnan(speeds)], capacity) for speeds in stream.rates]


def _build_tick_problem(
    speed: FloatArray, owner: IntArray, topic: IntArray, lag: FloatArray, capacity: float
) -> PackingProblem:
    members = int(owner.max(initial=UNASSIGNED)) + 1
    topics = int(topic.max(initial=-1)) + 1
    return PackingProblem(
        weight=speed,
        owner=owner,
        topic=topic,
        lag=lag,
        capacity=np.full(members, capacity),
        subscribed=np.ones((topics, members), dtype=np.bool_),
        new_member_capacity=capacity,
    )
