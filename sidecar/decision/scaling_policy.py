"""How the sidecar may scale: limits, rules, and what is remembered between two decisions."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from trimtab.assignor.model import Policy, TopicPartition
from trimtab.sidecar.decision.hpa_behavior import LONGEST_PERIOD, Change, Pace, Rules, Way
from trimtab.sidecar.decision.schedule import Period, in_force
from trimtab.sidecar.measurement.freshness import Look
from trimtab.sidecar.measurement.write_rate import Drain

OUT: Final = Rules((Pace(4),))
BACK: Final = Rules((Pace(1),), window=300.0)
"""Growing and shrinking unless something else is asked for."""


class Use(StrEnum):
    """Which count is wished for when measuring fails."""

    CURRENT = "current"
    STATIC = "static"
    IF_HIGHER = "current-if-higher"


@dataclass(frozen=True, slots=True)
class Fallback:
    """What is wished for once no write speed was known in `after` turns in a row."""

    use: Use = Use.CURRENT
    replicas: int = 0
    after: int = 3

    def count(self, current: int) -> int:
        """Return the count that is wished for where `current` replicas are planned."""
        match self.use:
            case Use.CURRENT:
                return current
            case Use.STATIC:
                return self.replicas
            case Use.IF_HIGHER:
                return max(current, self.replicas)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Between which shares of the configured capacity a learned one may be."""

    least: float = 0.5
    most: float = 2.0


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    """The operator's wishes; times in seconds.

    Of the stabilisation windows as the HPA has them: out follows the lowest wish of its window, in
    the highest. `goal` is the p99 freshness that is asked for, None for none. `idle_after` is for
    how long nothing may have been written or waiting before the last replica goes (`least` of 0).
    `effect_window` is what consumption is measured over, before and after growing; `effect_retry`
    how long growing stops where it brought nothing. `learn` are the bounds of learned capacities,
    None where none is learned. `advisory` says that the replica target cannot be acted upon: the
    count is then taken as it is found.
    """

    placement: Policy = field(default_factory=Policy)
    least: int = 1
    most: int = 10
    out: Rules = OUT
    back: Rules = BACK
    cool_down: float = 30.0
    pause: frozenset[Way] = frozenset()
    schedule: tuple[Period, ...] = ()
    fallback: Fallback = Fallback()
    goal: float | None = None
    idle_after: float = 300.0
    effect_window: float = 120.0
    effect_retry: float = 600.0
    learn: Bounds | None = None
    ask_again: float = 60.0
    start_grace: float = 120.0
    drain: Drain = field(default_factory=Drain)
    advisory: bool = False

    @property
    def room(self) -> float:
        """Bytes/s that one consumer may be filled with."""
        return self.placement.capacity * self.placement.headroom

    def clamp(self, count: int) -> int:
        """Return the count within the limits."""
        return max(self.least, min(self.most, count))

    def at(self, now: float) -> "ScalePolicy":
        """Return the policy with what its schedule asks for at a time (seconds, epoch)."""
        if not self.schedule:
            return self
        wanted = in_force(self.schedule, now)
        most = self.most if wanted.most is None else wanted.most
        least = self.least if wanted.least is None else wanted.least
        return replace(
            self, least=min(least, most), most=most, pause=self.pause | wanted.pause, schedule=()
        )


@dataclass(frozen=True, slots=True)
class Wish:
    """A count that was wished for at a time."""

    time: float
    count: int


@dataclass(frozen=True, slots=True)
class Growth:
    """A scale-out whose effect is not known yet: what there was before it.

    `consumed` is bytes/s of the whole group; `settled` is when `reached` replicas had joined.
    """

    time: float
    replicas: int
    consumed: float
    settled: float = 0.0
    reached: int = 0


@dataclass(frozen=True, slots=True)
class Stall:
    """Why and until when growing stops."""

    until: float
    reason: str


@dataclass(frozen=True, slots=True)
class Busy:
    """A consumer that has been behind with all it reads since a time, and what it reads."""

    since: float
    owned: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Memory:
    """What a decision remembers.

    All of it may be lost; then the sidecar is only more cautious for a while, except that it has
    forgotten, as the HPA does, the changes that policies with a period count (`changes`).

    Times are seconds since the epoch. `replaced` holds the starts of replicas for dead ones and
    for a restart; `placed` is the placement at the last request for a better one. `dark` counts
    turns in a row in which no write speed was known. `idle` is since when nothing was written and
    nothing waited. `looks` are the ages of what waited lately. `learned` are capacities in bytes/s
    by instance. `short` is since when fewer replicas run than planned.
    """

    wishes: tuple[Wish, ...] = ()
    changed: float | None = None
    changes: tuple[Change, ...] = ()
    replaced: tuple[float, ...] = ()
    short: float | None = None
    placed: frozenset[tuple[TopicPartition, str]] = frozenset()
    dark: int = 0
    idle: float | None = None
    looks: tuple[Look, ...] = ()
    growth: Growth | None = None
    stall: Stall | None = None
    busy: Mapping[str, Busy] = field(default_factory=dict[str, Busy])
    learned: Mapping[str, float] = field(default_factory=dict[str, float])

    def recent(self, now: float, horizon: float) -> "Memory":
        """Return the memory without the wishes older than `horizon` seconds, or from the future.

        The future comes about when the clock is set back.
        """
        kept = tuple(w for w in self.wishes if now - horizon <= w.time <= now)
        return replace(self, wishes=kept)

    def scaled(self, now: float, by: int) -> "Memory":
        """Return the memory with a change of the count in it, without those no policy counts."""
        kept = (c for c in self.changes if now - LONGEST_PERIOD < c.time <= now)
        changes = (*kept, Change(now, by)) if by else tuple(kept)
        return replace(self, changed=now, changes=changes, short=None)

    def since_change(self, now: float) -> float:
        """Return the seconds since the last change; infinite if there was none."""
        return float("inf") if self.changed is None else max(0.0, now - self.changed)
