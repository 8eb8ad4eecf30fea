"""Contenders of a simulation: every heuristic of the registry, and setups without Trimtab.

| name | |
|---|---|
| `range` | Kafka's default assignor on as many consumers as the load needs |
| `keda`, `keda:range` | a lag-threshold autoscaler with Kafka's default assignor |
| `keda:sticky` | the same autoscaler with a sticky assignor |

The range assignor rebalances eagerly: all partitions pause whenever one moves.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, Self, TypeAlias

import numpy as np

from trimtab.assignor.analysis.simulation.lag_autoscaler import LagAutoscaler
from trimtab.assignor.analysis.simulation.setup import SimulationSetup
from trimtab.assignor.analysis.streams.replay import replay_stream
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.heuristics.registry import get_heuristic, is_installed, list_heuristics
from trimtab.assignor.model import UNASSIGNED, BoolArray, FloatArray, IntArray, PackingProblem
from trimtab.assignor.model.heuristic import Heuristic, run_heuristic
from trimtab.assignor.model.packing import CAPACITY_TOLERANCE
from trimtab.assignor.modes.exact_mode import SEARCH_EFFORT
from trimtab.assignor.scores.feasibility import find_feasible
from trimtab.common.errors import UnknownHeuristicError

BacklogReader: TypeAlias = Callable[[], FloatArray]  # returns the current backlog in bytes, (P,)

KEDA_CONTENDER: Final = "keda"
ALL_CONTENDERS: Final = "all"


def place_ranges(problem: PackingProblem) -> IntArray:
    """Return the member of each partition (P,); a topic's first ranges are one longer."""
    placed = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    for topic, readers in enumerate(problem.subscribed):
        members = np.flatnonzero(readers)
        items = np.flatnonzero(problem.topic == topic)
        if len(members) and len(items):
            each, more = divmod(len(items), len(members))
            sizes = np.full(len(members), each)
            sizes[:more] += 1
            placed[items] = np.repeat(members, sizes)
    return placed


RANGE_ASSIGNOR: Final = Heuristic(
    name="range",
    pack=place_ranges,
    summary="Kafka's default: per topic, consecutive partitions to the members in order",
    source="org.apache.kafka.clients.consumer.RangeAssignor",
    idempotent=True,
    packs_by_capacity=False,
)


class OwnerChange(NamedTuple):
    """Owner of each partition (P,) from `at` seconds after a decision on."""

    at: float
    owner: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedDecision:
    """A decision as it is carried out during the tick that follows it."""

    changes: tuple[OwnerChange, ...]  # in order, the first at 0 s
    members: IntArray  # (K,) at the end of the tick, sorted, idle ones included
    # A placement was decided and carried out within the tick; None: whenever something changes.
    decided: bool | None = None
    # These members can hold all within the headroom, each larger partition on one of its own; None:
    # members can be added.
    feasible: bool | None = None

    @classmethod
    def at_once(cls, owner: IntArray, members: IntArray) -> Self:
        """Return a decision that is carried out at once."""
        return cls((OwnerChange(0.0, owner),), members)

    @property
    def owner(self) -> IntArray:
        """Owner of each partition at the end of the tick, (P,)."""
        return self.changes[-1].owner


DecisionIterator: TypeAlias = Callable[
    [WriteRateStream, SimulationSetup, BacklogReader], Iterator[SimulatedDecision]
]
"""Yields the decision of every tick; calls the reader before each."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A heuristic, alone or below a lag-threshold autoscaler."""

    name: str
    heuristic: Heuristic
    autoscaled: bool = False

    @property
    def packs_by_capacity(self) -> bool:
        """Whether it decides the number of consumers by capacity, so that CBS applies."""
        return self.heuristic.packs_by_capacity and not self.autoscaled

    @property
    def is_trimtab_setting(self) -> bool:
        """Whether Trimtab can be set to it."""
        return not (self.autoscaled or self.eager)

    @property
    def eager(self) -> bool:
        """Whether all partitions pause whenever one moves."""
        return self.heuristic is RANGE_ASSIGNOR

    def iter_decisions(
        self, stream: WriteRateStream, setup: SimulationSetup, lags: BacklogReader
    ) -> Iterator[SimulatedDecision]:
        """Yield the decision of every tick; `lags` is called before each."""
        if self.autoscaled:
            yield from iter_autoscaled_decisions(self.heuristic, stream, setup, lags)
            return
        for tick in replay_stream(self.heuristic, stream, setup.capacity * setup.headroom, lags):
            members = np.unique(tick.owner[tick.owner != UNASSIGNED])
            yield SimulatedDecision.at_once(tick.owner, members)


def parse_contender(name: str) -> Contender:
    """Return the contender of this name. Raises UnknownHeuristicError."""
    base, _, below = name.partition(":")
    if name == RANGE_ASSIGNOR.name:
        return Contender(name, RANGE_ASSIGNOR)
    if base != KEDA_CONTENDER:
        return Contender(name, _lookup_heuristic(name))
    known = {"": RANGE_ASSIGNOR, RANGE_ASSIGNOR.name: RANGE_ASSIGNOR, "sticky": get_heuristic("sticky")}
    if below not in known:
        raise UnknownHeuristicError(f"preset {below!r} of keda is not known; there is: range, sticky")
    return Contender(name, known[below], autoscaled=True)


def _lookup_heuristic(name: str) -> Heuristic:
    try:
        return get_heuristic(name)
    except UnknownHeuristicError as error:
        if name.partition(":")[0] in list_heuristics():
            raise  # its preset or setting is unknown: other contenders are no help
        others = (RANGE_ASSIGNOR.name, KEDA_CONTENDER, f"{KEDA_CONTENDER}:sticky", ALL_CONTENDERS)
        raise UnknownHeuristicError(f"{error}, {', '.join(others)}") from None


def default_contender_names() -> tuple[str, ...]:
    """Return the heuristics that pack by capacity, with a name for each preset."""
    names: list[str] = []
    for name in list_heuristics():
        entry = get_heuristic(name)
        if entry.packs_by_capacity:
            names += [f"{name}:{preset}" for preset in entry.presets] or [name]
    return tuple(names)


def parse_contenders(requested: Iterable[str]) -> tuple[Contender, ...]:
    """Return the contenders of these names without repeats; "all" means all, () the default ones.

    Raises UnknownHeuristicError.
    """
    names = tuple(requested) or default_contender_names()
    if ALL_CONTENDERS in names:
        entries = map(get_heuristic, list_heuristics())
        others = (e.name for e in entries if not e.packs_by_capacity and is_installed(e))
        names = (*default_contender_names(), *others, RANGE_ASSIGNOR.name, "keda:range", "keda:sticky")
    return tuple(parse_contender(name) for name in dict.fromkeys(names))


def iter_autoscaled_decisions(
    heuristic: Heuristic,
    stream: WriteRateStream,
    setup: SimulationSetup,
    lags: BacklogReader,
    startup: float = 0.0,
) -> Iterator[SimulatedDecision]:
    """Yield the decision of every tick; a consumer joins `startup` seconds after its start."""
    topics = {name: n for n, name in enumerate(sorted({p.topic for p in stream.partitions}))}
    topic = np.array([topics[p.topic] for p in stream.partitions], dtype=np.int32)
    owner: IntArray = np.full(len(topic), UNASSIGNED, dtype=np.int32)
    scaler = _create_autoscaler(stream, setup)
    ready = [0.0] * scaler.replicas  # when each replica has joined, ascending
    joined = 0
    for number, rates in enumerate(stream.rates):
        now = number * setup.tick
        there: BoolArray = ~np.isnan(rates)
        # The scaler sees committed offsets, which trail by half a commit interval on average.
        committed = lags()[there].sum() + float(rates[there].sum()) * setup.commit / 2
        replicas = scaler.decide_replicas(now, committed)
        ready = [*ready[:replicas], *[now + startup] * (replicas - len(ready))]  # the last ones stop
        changes: list[OwnerChange] = []
        for at in sorted({now, *(t for t in ready if now < t < now + setup.tick)}):
            present = bisect_right(ready, at)
            # Kafka reassigns only if members or partitions change.
            if present != joined or ((owner != UNASSIGNED) != there).any():
                owner = _assign_partitions(heuristic, owner, topic, there, present)
                joined = present
            changes.append(OwnerChange(at - now, owner))
        fits = is_feasible(rates[there], np.full(joined, setup.capacity * setup.headroom))
        yield SimulatedDecision(tuple(changes), np.arange(joined, dtype=np.int32), feasible=fits)


def is_feasible(weight: FloatArray, usable: FloatArray) -> bool:
    """Return whether a placement of these partitions (P,) within `usable` (M,), bytes/s, is found.

    A partition that is larger than any of them may have a consumer of its own.
    """
    count = len(weight)
    problem = PackingProblem(
        weight=weight,
        owner=np.full(count, UNASSIGNED, dtype=np.int32),
        topic=np.zeros(count, dtype=np.int32),
        lag=np.zeros(count),
        capacity=usable,
        subscribed=np.ones((1, len(usable)), dtype=np.bool_),
    )
    return not count or (len(usable) > 0 and find_feasible(problem, SEARCH_EFFORT) is not None)


def _create_autoscaler(stream: WriteRateStream, setup: SimulationSetup) -> LagAutoscaler:
    most = max(1, len(stream.partitions))
    first = float(np.nansum(stream.rates[0])) / setup.capacity
    return LagAutoscaler(
        lag_threshold=setup.threshold * setup.capacity,
        replicas=max(1, min(most, math.ceil(first * (1 - CAPACITY_TOLERANCE)))),
        max_replicas=most,
    )


def _assign_partitions(
    heuristic: Heuristic, owner: IntArray, topic: IntArray, there: BoolArray, replicas: int
) -> IntArray:
    before = np.where(owner[there] < replicas, owner[there], UNASSIGNED)  # the last replicas stop
    weight = np.ones(int(there.sum()))
    topics = int(topic.max(initial=-1)) + 1
    problem = PackingProblem(
        weight=weight,
        owner=before,
        topic=topic[there],
        lag=weight,
        capacity=np.full(replicas, math.inf),
        subscribed=np.ones((topics, replicas), dtype=np.bool_),
    )
    after = np.full_like(owner, UNASSIGNED)
    after[there] = run_heuristic(heuristic, problem)
    return after
