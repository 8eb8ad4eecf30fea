"""How many replicas the load asks for, and what stabilisation leaves of it.

The rules are those of the HPA, the count is the assignor's:

1. The count comes from the heuristic in open mode, starting from the present owners.
2. Dead band: a wish to grow counts only if the load would not fit into the present count filled up
   to headroom x (1 + band); a wish to shrink only as far as it would fit filled to headroom x (1 -
   band).
3. What is unknown pulls against the move: unknown partitions weigh nothing towards growing and
   forbid shrinking. With nothing known, the present count is wished for.
4. Growing follows the lowest wish of its window, shrinking the highest. The first window starts
   with the present count, and blind turns wish for it. Limits apply before the windows, steps
   after.
"""

from dataclasses import dataclass, replace

from trimtab.assignor.decide import size
from trimtab.assignor.model import Plan
from trimtab.sidecar.policy import Memory, ScalePolicy, Wish
from trimtab.sidecar.situation import Situation


@dataclass(frozen=True, slots=True)
class Sizing:
    """Counts: `wished` by the load, `steady` after dead band and limits, `wanted` after windows."""

    wished: int | None
    steady: int
    wanted: int
    expected: Plan | None
    notes: tuple[str, ...] = ()


def wish(at: Situation, memory: Memory, now: float) -> tuple[Sizing, Memory]:
    """Return what is wanted now and the memory with this wish in it."""
    current = at.policy.clamp(at.plan.replicas)
    expected = _expected(at)
    steady, notes = _steady(at, current, expected)
    memory = remember(memory, at.policy, current, now)
    memory = replace(memory, wishes=(*memory.wishes, Wish(now, steady)))
    wanted = _stabilised(memory, at.policy, current, now)
    wished = None if expected is None else expected.consumers
    return Sizing(wished, steady, wanted, expected, notes), memory


def remember(memory: Memory, policy: ScalePolicy, count: int, now: float) -> Memory:
    """Return the memory without what no window needs; an empty one starts with this count."""
    if not memory.wishes:
        return replace(memory, wishes=(Wish(now, count),))
    return memory.recent(now, max(policy.window_out, policy.window_in))


def _expected(at: Situation) -> Plan | None:
    if not at.seen.speeds or len(at.unknown) == len(at.seen.speeds):
        return None
    return _sized(at, 1.0)


def _sized(at: Situation, share: float) -> Plan:
    policy = at.policy.placement
    policy = replace(policy, headroom=min(1.0, policy.headroom * share))
    return size(at.group(with_draining=False), at.load(unknown_is_nothing=True), policy)


def _steady(at: Situation, current: int, expected: Plan | None) -> tuple[int, tuple[str, ...]]:
    """Return the wish after rules 2 and 3 and the limits, and what held it back."""
    if expected is None:
        return current, ("no write speed is known",)
    band, wanted = at.policy.dead_band, at.policy.clamp(expected.consumers)
    if wanted > current:
        fits = at.policy.clamp(_sized(at, 1 + band).consumers) <= current
        return (current, (f"{wanted} is within the dead band",)) if fits else (wanted, ())
    if wanted < current and at.unknown:
        return current, (f"{len(at.unknown)} partitions are unknown, so nothing is taken away",)
    if wanted < current:
        careful = max(wanted, at.policy.clamp(_sized(at, 1 - band).consumers))
        held = careful >= current
        return min(current, careful), (f"{wanted} is within the dead band",) if held else ()
    return current, ()


def _stabilised(memory: Memory, policy: ScalePolicy, current: int, now: float) -> int:
    """Bound the present count by the windows (rule 4); the newest wish is in both."""
    *before, newest = memory.wishes
    out = [w.count for w in before if w.time > now - policy.window_out]
    back = [w.count for w in before if w.time > now - policy.window_in]
    lowest, highest = min([*out, newest.count]), max([*back, newest.count])
    return max(min(current, highest), lowest)
