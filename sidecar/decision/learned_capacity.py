"""What each consumer really sustains, learned while it had backlog.

1. A consumer is busy while every partition it reads that is written to is behind, and at least one
   is; a change of what it reads begins the time anew.
2. What a consumer consumed over a whole window in which it was busy is its capacity, within bounds
   around the configured one.
3. It is kept until the consumer is gone, or shows another one.
"""

from dataclasses import replace

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.decision.group_model import Situation
from trimtab.sidecar.decision.scaling_policy import Busy, Memory
from trimtab.sidecar.measurement.write_rate import late


def learned(at: Situation, memory: Memory, now: float) -> Memory:
    """Return the memory with what this turn shows."""
    if at.policy.learn is None:
        return memory
    busy: dict[str, Busy] = {}
    found = {name: c for name, c in memory.learned.items() if name in at.running}
    for name in at.running:
        owned = at.owned(name)
        if not _behind(at, owned):
            continue
        last = memory.busy.get(name)
        busy[name] = last if last is not None and last.owned == owned else Busy(now, owned)
        if now - busy[name].since >= at.policy.effect_window:
            found[name] = _bounded(at, sum(at.seen.consumed[p] for p in owned))
    return replace(memory, busy=busy, learned=found)


def _behind(at: Situation, owned: frozenset[TopicPartition]) -> bool:
    """Tell whether a reader of these is behind with all of them that are written to (rule 1)."""
    speeds = {p: at.seen.speeds[p] for p in owned if p in at.seen.speeds}
    if len(speeds) < len(owned) or any(p not in at.seen.consumed for p in owned):
        return False
    if at.seen.stuck & owned:
        return False  # what it consumes says nothing of what it could
    waits = {p: late(speed, at.policy.drain) for p, speed in speeds.items()}
    return any(waits.values()) and all(waits[p] or s.bytes_per_s == 0 for p, s in speeds.items())


def _bounded(at: Situation, rate: float) -> float:
    usual, bounds = at.policy.placement.capacity, at.policy.learn
    assert bounds is not None, "only asked for where capacities are learned"
    return min(max(rate, bounds.least * usual), bounds.most * usual)
