"""How the sidecar may scale: limits, windows, and what is remembered between two decisions."""

from dataclasses import dataclass, field, replace

from trimtab.assignor.model import Policy, TopicPartition
from trimtab.sidecar.speeds import Drain


@dataclass(frozen=True, slots=True)
class ScalePolicy:
    """The operator's wishes; times in seconds.

    `window_out` and `window_in` are stabilisation windows as the HPA has them: out follows the
    lowest wish of its window, in the highest. `dead_band` is the share by which the load must
    leave what the present count is good for. `advisory` says that the replica target cannot be
    acted upon: the count is then taken as it is found.
    """

    placement: Policy = field(default_factory=Policy)
    least: int = 1
    most: int = 10
    step_out: int = 4
    step_in: int = 1
    window_out: float = 0.0
    window_in: float = 300.0
    cool_down: float = 30.0
    dead_band: float = 0.1
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


@dataclass(frozen=True, slots=True)
class Wish:
    """A count that was wished for at a time."""

    time: float
    count: int


@dataclass(frozen=True, slots=True)
class Memory:
    """What a decision remembers.

    All of it may be lost; then the sidecar is only more cautious for a while.

    Times are seconds since the epoch. `replaced` holds the starts of replicas for dead ones and
    for a restart; `placed` is the placement at the last request for a better one.
    """

    wishes: tuple[Wish, ...] = ()
    changed: float | None = None
    replaced: tuple[float, ...] = ()
    placed: frozenset[tuple[TopicPartition, str]] = frozenset()

    def recent(self, now: float, horizon: float) -> "Memory":
        """Return the memory without the wishes older than `horizon` seconds, or from the future.

        The future comes about when the clock is set back.
        """
        kept = tuple(w for w in self.wishes if now - horizon <= w.time <= now)
        return replace(self, wishes=kept)

    def since_change(self, now: float) -> float:
        """Return the seconds since the last change; infinite if there was none."""
        return float("inf") if self.changed is None else max(0.0, now - self.changed)
