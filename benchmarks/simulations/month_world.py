"""A simulated month: write rates, faults and a consumer group.

Backlogs follow the model of `trimtab simulate` (`analysis.simulation.backlog_model`). A started
replica joins one tick later; a stopped one leaves at once. A rebalance completes within a tick, and
moved partitions are not read for `SimulationSetup.pause` seconds. Faults, in order:

- a broker is replaced: a third of the partitions has no leader, so they are neither written nor read
  and their offsets are unknown; afterwards producers catch up at 1.5 times the rate;
- offsets expire: some partitions without writes lose their commits;
- a poison record: no consumer gets past it in one partition;
- a topic is deleted.
"""

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.simulation.backlog_model import PartitionBacklogs
from trimtab.assignor.analysis.streams.generators import ZipfLoad
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import UNASSIGNED, BoolArray, ConsumerGroup, FloatArray, Member, TopicPartition

RECORD = 1_000  # bytes
DAY = 86_400.0
KEPT, DELETED = "orders", "clicks"
LEAST, MOST = 1, 24


class Kind(StrEnum):
    """Kinds of faults."""

    BROKER = "broker replaced"
    OFFSETS = "offsets expired"
    POISON = "poison record"
    TOPIC = "topic deleted"


BEGINS = {Kind.BROKER: 0.17, Kind.OFFSETS: 0.41, Kind.POISON: 0.62, Kind.TOPIC: 0.82}
"""Start of each fault, as a share of the month."""

LASTS = {Kind.BROKER: 1_200.0, Kind.OFFSETS: 14_400.0, Kind.POISON: 28_800.0, Kind.TOPIC: 14_400.0}
"""Duration in seconds, at most an eighth of the month. A deleted topic stays deleted."""

AFTER = 3_600.0
"""Seconds of observation after a fault, at most a sixteenth of the month."""

BLIND = 0.25
"""Share of the broker's downtime in which the group's coordinator is unavailable too."""


@dataclass(frozen=True)
class Fault:
    """A fault from tick `begin` to `end`, observed until `watched`; `hit` (P,) marks its partitions."""

    kind: Kind
    begin: int
    end: int
    watched: int
    hit: BoolArray

    def on(self, tick: int) -> bool:
        return self.begin <= tick < self.end


@dataclass(frozen=True)
class Month:
    """Write rates with faults; `need` (N,) is the load in consumers filled to the headroom, rounded up."""

    stream: WriteRateStream
    faults: Mapping[Kind, Fault]
    need: FloatArray

    def hit(self, kind: Kind, tick: int) -> BoolArray:
        """Return the partitions that faults of this kind affect now, (P,)."""
        fault = self.faults[kind]
        return fault.hit if fault.on(tick) else np.zeros_like(fault.hit)


def generate_month(days: float, partitions: int, setup: SimulationSetup, seed: int) -> Month:
    """Return a month of `days` days; two thirds of the partitions belong to the topic that remains."""
    ticks = round(days * DAY / setup.tick)
    shape = ZipfLoad(partitions, ticks, setup.capacity, day=DAY / setup.tick, load=0.16, noise=0.02)
    write_rates = shape.generate_stream(np.random.default_rng(seed)).rates
    gone = partitions // 3
    names = [TopicPartition(DELETED, n) for n in range(gone)]
    names += [TopicPartition(KEPT, n) for n in range(partitions - gone)]
    kept = np.arange(partitions) >= gone
    busy = write_rates.mean(axis=0)
    quiet = kept & (busy <= np.sort(busy[kept])[5])
    middle = np.arange(partitions) == np.argsort(np.where(kept, busy, np.inf))[kept.sum() // 2]
    hit = {
        Kind.BROKER: np.arange(partitions) % 3 == 1,
        Kind.OFFSETS: quiet,
        Kind.POISON: middle,
        Kind.TOPIC: ~kept,
    }
    faults = {kind: _create_fault(kind, hit[kind], ticks, setup.tick) for kind in Kind}
    _apply_faults(write_rates, faults)
    filled = np.nansum(write_rates, axis=1) / (setup.capacity * setup.headroom)
    return Month(WriteRateStream(tuple(names), write_rates), faults, np.maximum(LEAST, np.ceil(filled)))


def _create_fault(kind: Kind, hit: BoolArray, ticks: int, tick: float) -> Fault:
    begin = round(BEGINS[kind] * ticks)
    lasts = min(round(LASTS[kind] / tick), ticks // 8)
    after = min(round(AFTER / tick), ticks // 16)
    return Fault(kind, begin, begin + lasts, begin + lasts + after, hit)


def _apply_faults(write_rates: FloatArray, faults: Mapping[Kind, Fault]) -> None:
    """Return the write rates with the faults applied."""
    broker, offsets, topic = faults[Kind.BROKER], faults[Kind.OFFSETS], faults[Kind.TOPIC]
    caught_up = broker.end + 2 * (broker.end - broker.begin)
    write_rates[broker.end : caught_up, broker.hit] *= 1.5
    write_rates[broker.begin : broker.end, broker.hit] = 0.0
    write_rates[offsets.begin : offsets.end, offsets.hit] = 0.0
    write_rates[topic.begin :, topic.hit] = np.nan


@dataclass
class WorldFigures:
    """Figures of each tick."""

    replicas: list[int] = field(default_factory=list[int])
    arrived: list[float] = field(default_factory=list[float])
    late: list[float] = field(default_factory=list[float])
    late_of_faults: list[float] = field(default_factory=list[float])
    rebalanced: list[bool] = field(default_factory=list[bool])
    moved: int = 0
    cut_off: int = 0  # replicas stopped while they owned partitions


class World:
    """A group with its partitions and consumers at one tick of a month."""

    def __init__(self, written: Month, setup: SimulationSetup) -> None:
        self.month, self.setup = written, setup
        self.tick = 0
        self.owners: dict[TopicPartition, str] = {}
        self.members: tuple[str, ...] = ()
        self.tick_figures = WorldFigures()
        self._queues = PartitionBacklogs(written.stream.rates, setup)
        self._cause: object = None
        self._committed: FloatArray = np.zeros(len(written.stream.partitions))

    @property
    def now(self) -> float:
        """Seconds since the month began."""
        return self.tick * self.setup.tick

    def existing_partitions(self) -> tuple[TopicPartition, ...]:
        """Return the existing partitions."""
        away = np.isnan(self.month.stream.rates[self.tick])
        names = self.month.stream.partitions
        return tuple(p for p, gone in zip(names, away.tolist(), strict=True) if not gone)

    def written(self) -> FloatArray:
        """Return the log end offsets, (P,) bytes."""
        return self._queues.written

    def committed(self) -> FloatArray:
        """Return the committed offsets, (P,) bytes."""
        return self._committed

    def uncommitted(self) -> BoolArray:
        """Return the partitions without a commit, (P,)."""
        return self.month.hit(Kind.OFFSETS, self.tick)

    def leaderless(self) -> BoolArray:
        """Return the partitions without a leader, (P,)."""
        return self.month.hit(Kind.BROKER, self.tick)

    def coordinated(self) -> bool:
        """Return whether the group's coordinator is available."""
        fault = self.month.faults[Kind.BROKER]
        blind = math.ceil((fault.end - fault.begin) * BLIND)
        return not fault.begin <= self.tick < fault.begin + blind

    def group(self, draining: Collection[str] = ()) -> ConsumerGroup:
        """Return the group as seen by its leader."""
        existing_partitions = self.existing_partitions()
        topics = frozenset(p.topic for p in existing_partitions)
        members = tuple(
            Member(name, topics, instance=name, draining=name in draining) for name in self.members
        )
        return ConsumerGroup(members, existing_partitions, self.owners)

    def step(
        self,
        alive: Collection[str],
        running: int,
        cause: object,
        assign: Callable[[], Mapping[str, tuple[TopicPartition, ...]]],
    ) -> None:
        """Run a tick with these members; they rebalance if `cause` or the members have changed.

        `running` includes replicas that have not joined yet.
        """
        self.members = tuple(sorted(alive))
        cut = {name for name in self.owners.values() if name not in alive}
        self.tick_figures.cut_off += len(cut)
        cause = (self.members, len(self.existing_partitions()), cause)
        before = self.owners
        if cause != self._cause and self.members:
            self._cause = cause
            self.owners = {p: name for name, items in assign().items() for p in items}
        elif cut:
            self.owners = {p: n for p, n in before.items() if n not in cut}
        self._read(before, running)

    def _commit(self) -> None:
        """Commit half an interval behind the read position; commits never decrease."""
        write_rates = np.nan_to_num(self.month.stream.rates[self.tick], nan=0.0)
        read = self._queues.written - self._queues.backlog
        behind = read - write_rates * self.setup.commit / 2
        self._committed = np.maximum(self._committed, behind)

    def _read(self, before: Mapping[TopicPartition, str], replicas: int) -> None:
        number = {name: n for n, name in enumerate(self.members)}
        names = self.month.stream.partitions
        owner = np.array([number.get(self.owners.get(p, ""), UNASSIGNED) for p in names], dtype=np.int32)
        changed = np.array([self.owners.get(p) != before.get(p) for p in names])
        stuck = self.month.hit(Kind.POISON, self.tick) | self.leaderless()
        self.tick += 1
        late = self._queues.advance_tick(np.where(stuck, UNASSIGNED, owner), changed)
        self._commit()
        figures = self.tick_figures
        figures.replicas.append(replicas)
        figures.rebalanced.append(bool(changed.any()))
        figures.moved += int((changed & (owner != UNASSIGNED)).sum())
        figures.arrived.append(float(np.nansum(self.month.stream.rates[self.tick])) * self.setup.tick)
        figures.late.append(float(late.sum()))
        figures.late_of_faults.append(float(late[stuck].sum()))
