"""Who can be simulated: every heuristic of the registry, and what Kafka users have without us.

| name | |
|---|---|
| `range` | Kafka's default assignor on as many consumers as the load needs |
| `keda`, `keda:range` | a lag-threshold autoscaler, with Kafka's default assignor below it |
| `keda:sticky` | the same autoscaler with a sticky assignor |

A contender that assigns by range rebalances eagerly: whenever anything changes, all stop reading.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from trimtab.assignor.analysis.simulation.lag_autoscaler import Autoscaler
from trimtab.assignor.analysis.simulation.range_assignor import RANGE
from trimtab.assignor.analysis.simulation.setup import Setup
from trimtab.assignor.analysis.streams.replay import replay
from trimtab.assignor.analysis.streams.stream import Stream
from trimtab.assignor.heuristics.heuristic import Heuristic, run
from trimtab.assignor.heuristics.registry import get, installed, names
from trimtab.assignor.model import NOBODY, BoolArray, FloatArray, IntArray, Problem
from trimtab.assignor.packing import TOLERANCE
from trimtab.common.errors import UnknownHeuristic

Lags: TypeAlias = Callable[[], FloatArray]
"""Returns what is unread now, (P,) bytes."""

KEDA: Final = "keda"
EVERYTHING: Final = "all"


@dataclass(frozen=True, slots=True, eq=False)
class Decision:
    """Who reads what from now on, (P,), and who is there, idle or not, (K,) sorted."""

    owner: IntArray
    members: IntArray


@dataclass(frozen=True, slots=True)
class Contender:
    """Someone who decides; `counts` as in `Heuristic`, `ours` is one that Trimtab can be set to."""

    name: str
    below: Heuristic
    autoscaled: bool = False

    @property
    def counts(self) -> bool:
        """Whether it packs by capacity, so that its bins can be compared with other packings."""
        return self.below.counts and not self.autoscaled

    @property
    def ours(self) -> bool:
        """Whether it is a setting of Trimtab."""
        return not self.autoscaled and self.below is not RANGE

    @property
    def eager(self) -> bool:
        """Whether all partitions pause whenever one moves."""
        return self.below is RANGE

    def decide(self, stream: Stream, setup: Setup, lags: Lags) -> Iterator[Decision]:
        """Yield a decision for every tick; `lags` is asked when it is made."""
        if self.autoscaled:
            yield from _autoscaled(self.below, stream, setup, lags)
            return
        for tick in replay(self.below, stream, setup.capacity * setup.headroom, lags):
            yield Decision(tick.owner, np.unique(tick.owner[tick.owner != NOBODY]))


def contender(name: str) -> Contender:
    """Return the one of this name. Raises UnknownHeuristic."""
    base, _, below = name.partition(":")
    if name == RANGE.name:
        return Contender(name, RANGE)
    if base != KEDA:
        return Contender(name, _ours(name))
    known = {"": RANGE, RANGE.name: RANGE, "sticky": get("sticky")}
    if below not in known:
        raise UnknownHeuristic(f"preset {below!r} of keda is not known; there is: range, sticky")
    return Contender(name, known[below], autoscaled=True)


def _ours(name: str) -> Heuristic:
    """Return a heuristic; the error for an unknown one names everybody who can take part."""
    try:
        return get(name)
    except UnknownHeuristic as error:
        if name.partition(":")[0] in names():
            raise
        others = f"{RANGE.name}, {KEDA}, {KEDA}:sticky, {EVERYTHING} (everybody)"
        raise UnknownHeuristic(f"{error}, {others}") from None


def default_names() -> tuple[str, ...]:
    """Return the heuristics that count, each preset by itself."""
    found: list[str] = []
    for name in names():
        entry = get(name)
        if entry.counts:
            found += [f"{name}:{preset}" for preset in entry.presets] or [name]
    return tuple(found)


def contenders(wanted: Iterable[str]) -> tuple[Contender, ...]:
    """Return those of these names, each once; "all" is everybody, nothing those that count.

    Raises UnknownHeuristic.
    """
    asked = tuple(wanted) or default_names()
    if EVERYTHING in asked:
        others = tuple(n for n in names() if not get(n).counts and installed(get(n)))
        asked = (*default_names(), *others, RANGE.name, "keda:range", "keda:sticky")
    return tuple(contender(name) for name in dict.fromkeys(asked))


def _autoscaled(below: Heuristic, stream: Stream, setup: Setup, lags: Lags) -> Iterator[Decision]:
    """Yield what the autoscaler does; it assigns anew only when members or partitions change."""
    topics = {name: n for n, name in enumerate(sorted({p.topic for p in stream.partitions}))}
    topic = np.array([topics[p.topic] for p in stream.partitions], dtype=np.int32)
    owner: IntArray = np.full(len(topic), NOBODY, dtype=np.int32)
    first = float(np.nansum(stream.speeds[0])) / setup.capacity
    scaler = Autoscaler(
        threshold=setup.threshold * setup.capacity,
        replicas=max(1, min(len(topic), math.ceil(first * (1 - TOLERANCE)))),
        most=max(1, len(topic)),
    )
    present = 0
    for number, speeds in enumerate(stream.speeds):
        there: BoolArray = ~np.isnan(speeds)
        committed = lags()[there].sum() + float(speeds[there].sum()) * setup.commit / 2
        replicas = scaler.decide(number * setup.tick, committed)
        if replicas != present or ((owner != NOBODY) != there).any():
            owner = _assigned(below, owner, topic, there, replicas)
            present = replicas
        yield Decision(owner, np.arange(replicas, dtype=np.int32))


def _assigned(
    below: Heuristic, owner: IntArray, topic: IntArray, there: BoolArray, replicas: int
) -> IntArray:
    """Return the owners among members 0 to `replicas` - 1; the last ones are those that went."""
    before = np.where(owner[there] < replicas, owner[there], NOBODY)
    weight = np.ones(int(there.sum()))
    topics = int(topic.max(initial=-1)) + 1
    problem = Problem(
        weight=weight,
        owner=before,
        topic=topic[there],
        lag=weight,
        capacity=np.full(replicas, math.inf),
        subscribed=np.ones((topics, replicas), dtype=np.bool_),
    )
    after = np.full_like(owner, NOBODY)
    after[there] = run(below, problem)
    return after
