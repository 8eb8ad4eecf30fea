"""Replay of a stream: a heuristic decides tick by tick in open mode."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, PackingProblem
from trimtab.assignor.model.forecast import RateChangeStats, select_forecast
from trimtab.assignor.model.heuristic import Heuristic
from trimtab.assignor.modes.open_mode import pack_open_mode
from trimtab.assignor.scores.score import find_moved, lower_bound, r_score


@dataclass(frozen=True, slots=True, eq=False)  # == of arrays is an array
class ReplayTick:
    """Result and cost of one decision of a replay."""

    consumers: int
    r_score: float
    moved: int  # partitions that changed their owner
    owner: IntArray  # (P,) UNASSIGNED for an absent partition


def replay_stream(
    entry: Heuristic, stream: WriteRateStream, capacity: float, lags: Callable[[], FloatArray] | None = None
) -> Iterator[ReplayTick]:
    """Yield the decision of every tick; `capacity` in bytes/s is that of every consumer.

    `lags` is called before each decision and returns simulated backlogs (P,) in bytes; the default
    is one second of writes.
    """
    # The group starts empty, so the first tick moves nothing and scores 0.
    owner: IntArray = np.full(len(stream.partitions), UNASSIGNED, dtype=np.int32)
    topics = sorted({p.topic for p in stream.partitions})
    topic = np.array([topics.index(p.topic) for p in stream.partitions], dtype=np.int32)
    changes = RateChangeStats.empty(len(stream.partitions))
    for rates in stream.rates:
        present = ~np.isnan(rates)
        changes = changes.with_measurement(rates)
        before = owner[present]
        rate = rates[present]
        lag = rate if lags is None else lags()[present]
        forecast = select_forecast(changes.forecast_next(rates), present)
        problem = _build_problem(rate, before, topic[present], lag, capacity)
        after = pack_open_mode(entry, replace(problem, forecast=forecast))
        owner = np.full_like(owner, UNASSIGNED)
        owner[present] = after
        yield ReplayTick(
            consumers=len(np.unique(after)),
            r_score=r_score(rate, before, after, capacity),
            moved=int(np.count_nonzero(find_moved(before, after))),
            owner=owner,
        )


def lower_bounds(stream: WriteRateStream, capacity: float) -> list[int]:
    """Return the L2 bound on the number of consumers at every tick."""
    return [lower_bound(rates[~np.isnan(rates)], capacity) for rates in stream.rates]


def _build_problem(
    rate: FloatArray, owner: IntArray, topic: IntArray, lag: FloatArray, capacity: float
) -> PackingProblem:
    members = int(owner.max(initial=UNASSIGNED)) + 1
    topics = int(topic.max(initial=-1)) + 1
    return PackingProblem(
        weight=rate,
        owner=owner,
        topic=topic,
        lag=lag,
        capacity=np.full(members, capacity),
        subscribed=np.ones((topics, members), dtype=np.bool_),
        new_member_capacity=capacity,
    )
