"""Whether growing helped: more consumers that read no more are a reason to stop growing.

1. A scale-out of a group that is behind is remembered with what the group consumed before it.
2. Once the new ones have joined, and there are half as many more at least, a whole window of
   consumption is awaited and compared. Less would not show above the noise of commits. Further
   steps in that time do not count, but what they bring does.
3. Growing helped if the group is no longer behind, or if it consumes more by at least a tenth of
   what the added consumers would bring were they as good as those before.
4. Where it did not help, nothing is added until a stated time; then growing is tried again. Limits
   stand above this: a minimum is brought about.
5. What is not known proves nothing: then growing goes on, and after some windows the growth is
   forgotten. A window of 0 never looks.
"""

from dataclasses import replace
from typing import Final

from trimtab.common.units import format_rate
from trimtab.sidecar.decision.decision import Verdict
from trimtab.sidecar.decision.group_model import Situation
from trimtab.sidecar.decision.scaling_policy import Growth, Memory, Stall
from trimtab.sidecar.measurement.observation import Observation
from trimtab.sidecar.measurement.write_rate import Drain, late

SHARE: Final = 0.1
"""Of what the added consumers should bring, that must have come."""

WORTH: Final = 1.5
"""Growth of the count below which nothing can be told."""

PATIENCE: Final = 3.0
"""Windows after which a growth that could not be judged is forgotten."""


def behind(seen: Observation, drain: Drain) -> float | None:
    """Return the bytes that wait for longer than allowed; None where none is known.

    What is stuck is not counted: no consumer would work it off.
    """
    counted = (s for p, s in seen.speeds.items() if p not in seen.stuck)
    known = [w for s in counted if (w := late(s, drain)) is not None]
    return sum(known) if known else None


def consumed(seen: Observation, drain: Drain) -> float | None:
    """Return the bytes/s that the group consumes; None if unknown of a partition behind."""
    missing = (s for p, s in seen.speeds.items() if p not in seen.consumed)
    if not seen.consumed or any(late(s, drain) for s in missing):
        return None
    return sum(seen.consumed.values())


def grown(verdict: Verdict, seen: Observation, memory: Memory, now: float) -> Memory:
    """Return the memory with a scale-out whose effect is to be looked at (rule 1)."""
    before, numbers = seen.plan, verdict.numbers
    if memory.growth is not None or before is None or not before.replicas:
        return memory
    if not numbers.consumed or not numbers.late:
        return memory
    return replace(memory, growth=Growth(now, before.replicas, numbers.consumed))


def judged(at: Situation, memory: Memory, now: float) -> Memory:
    """Return the memory with the effect of the last growth in it, if it is known by now."""
    if memory.stall is not None and now >= memory.stall.until:
        memory = replace(memory, stall=None)
    growth, window = memory.growth, at.policy.effect_window
    if growth is None:
        return memory
    if not window or now - growth.time > PATIENCE * window + at.policy.start_grace:
        return replace(memory, growth=None)
    if growth.reached < WORTH * growth.replicas:
        joined = not at.pending(now) and at.unsettled() is None
        count = min(at.plan.replicas, len(at.active)) if joined else 0
        return replace(memory, growth=replace(growth, settled=now, reached=count))
    if now - growth.settled < window or consumed(at.seen, at.policy.drain) is None:
        return memory
    return replace(memory, growth=None, stall=_stall(at, growth, now) or memory.stall)


def _stall(at: Situation, growth: Growth, now: float) -> Stall | None:
    after, before = consumed(at.seen, at.policy.drain), growth.consumed
    if after is None or not behind(at.seen, at.policy.drain):
        return None
    if after > before * (1 + SHARE * (growth.reached / growth.replicas - 1)):
        return None
    reason = (
        f"{growth.reached} consumers read no more than {growth.replicas} did "
        f"({format_rate(after)}, {format_rate(before)} before): growing stops, look at the sink, "
        "the network and the consumers' logs"
    )
    return Stall(now + at.policy.effect_retry, reason)
