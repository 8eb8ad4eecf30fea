"""All faults of a history: those of the testing kit, and those of lake, sidecar and topic."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from support.lake.writer_steps import FLUSH_STEPS, REBALANCE_STEPS
from trimtab.testing.simulation.faults import brokers, cut, freeze, kill, leave, messages, stall

if TYPE_CHECKING:
    from simulation.history import History

Fault = Callable[["History"], str | None]
"""Breaks something and says what, or finds nothing to break."""

STEPS: Final = (*FLUSH_STEPS, *REBALANCE_STEPS)


def crash(at: "History") -> str | None:
    """Kill a worker at its next passage of a named step."""
    worker = at.any_worker()
    if worker is None or at.deaths_left <= 0:
        return None
    at.deaths_left -= 1
    worker.crash_at = at.rng.choice(STEPS)
    return f"{worker.name} will crash at {worker.crash_at}"


def lake(at: "History") -> str | None:
    """Let calls of the lake fail, get no response or take effect late, or stop doing so."""
    trouble, rng = at.lake.trouble, at.rng
    trouble.failing, trouble.unanswered, trouble.late = (
        rng.choice((0.0, 0.0, 0.2)),
        rng.choice((0.0, 0.1, 0.4)),
        rng.choice((0.0, 0.1, 0.4)),
    )
    return f"lake: {trouble.failing} fail, {trouble.unanswered} unanswered, {trouble.late} late"


def lake_away(at: "History") -> str | None:
    """Make the lake unreachable."""
    seconds = at.rng.uniform(0.5, 4.0)
    at.lake.trouble.away = at.hub.now + seconds
    return f"the lake is away for {seconds:.1f} s"


def sidecar(at: "History") -> str | None:
    """Kill the sidecar; another one starts later and knows only published state."""
    if at.sidecar is None or not at.sidecar.alive:
        return None
    at.sidecar.end()
    seconds = at.rng.uniform(0.1, 5.0)
    at.hub.at(seconds, at.start_sidecar)
    return f"the sidecar is killed, the next starts in {seconds:.1f} s"


def grow(at: "History") -> str | None:
    """Give the topic more partitions."""
    now = len(at.log.partitions(at.topic))
    if now >= at.shape.most_partitions:
        return None
    more = now + at.rng.randint(1, 2)
    at.log.grow(at.topic, more)
    return f"{at.topic} has {more} partitions now"


def retention(at: "History") -> str | None:
    """Delete the older records of some partitions, read or unread."""
    changes: list[str] = []
    for partition in sorted(at.log.ends):
        low, end = at.log.lows[partition], at.log.ends[partition]
        if at.rng.random() < 0.5 and low < end:
            at.log.expire(partition, at.rng.randint(low + 1, end))
            changes.append(f"{partition} begins at {at.log.lows[partition]}")
    return f"retention: {', '.join(changes)}" if changes else None


FAULTS: Final[tuple[Fault, ...]] = (
    crash,
    crash,
    kill,
    freeze,
    freeze,
    freeze,
    cut,
    cut,
    stall,
    stall,
    brokers,
    messages,
    lake,
    lake_away,
    sidecar,
    grow,
    retention,
    leave,
)
