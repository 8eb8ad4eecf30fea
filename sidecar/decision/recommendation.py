"""How many replicas the load asks for, and what stabilisation leaves of it.

The rules are those of the HPA, the count is the assignor's:

1. The count comes from the heuristic in open mode, starting from the present owners. Of a share
   group, in which every worker is given messages of every partition, it is the load divided by what
   one may be filled with.
2. Dead band: a wish to grow counts only if the load would not fit into the present count filled up
   to headroom x (1 + band); a wish to shrink only as far as it would fit filled to headroom x (1 -
   band).
3. What is unknown pulls against the move: unknown partitions weigh nothing towards growing and
   forbid shrinking. With nothing known, the present count is wished for.
4. Growing follows the lowest wish of its window, shrinking the highest. The first window starts
   with the present count, and blind turns wish for it. Limits apply before the windows, steps
   after.
5. With nothing known for so many turns in a row, the fallback's count is wished for.
6. Where growing showed no effect (`effect`), the present count is wanted, or the least.
7. The last replica goes, where none need run, when nothing was written and nothing waited for
   `idle_after` seconds, all of it known; the first comes back in the turn that sees a record,
   whatever the windows say.
"""

import math
from dataclasses import dataclass, replace
from typing import Final

from trimtab.assignor.decisions import size
from trimtab.assignor.model import Plan
from trimtab.sidecar.decision.group_model import Situation
from trimtab.sidecar.decision.learned_capacity import learned
from trimtab.sidecar.decision.scale_to_zero import awake, idle
from trimtab.sidecar.decision.scale_up_effectiveness import judged
from trimtab.sidecar.decision.scaling_policy import Memory, ScalePolicy, Use, Wish
from trimtab.sidecar.measurement.freshness import Look, freshness, look

ENOUGH: Final = 1e-6
"""Of a worker: sums of floats are not exact."""


@dataclass(frozen=True, slots=True)
class Sizing:
    """Counts: `wished` by the load, `steady` after dead band and limits, `wanted` after windows.

    `notes` say what held a wish back, `warnings` what is to be said whatever is done.
    """

    wished: int | None
    steady: int
    wanted: int
    expected: Plan | None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def wish(at: Situation, memory: Memory, now: float) -> tuple[Sizing, Memory]:
    """Return what is wanted now and the memory with this wish in it."""
    current = at.policy.clamp(at.plan.replicas)
    expected = _expected(at)
    wished = _wished(at, expected)
    memory = _noted(at, memory, now, known=wished is not None)
    steady, notes = _steady(at, current, wished, memory.dark)
    memory = remember(memory, at.policy, current, now)
    memory = replace(memory, wishes=(*memory.wishes, Wish(now, steady)))
    wanted = _stabilised(memory, at.policy, current, now)
    sizing = Sizing(wished, steady, wanted, expected, notes)
    sizing = _to_zero_and_back(at, _effective(at, sizing, memory, now), memory, now)
    return _with_goal(at, sizing, memory), memory


def remember(memory: Memory, policy: ScalePolicy, count: int, now: float) -> Memory:
    """Return the memory without what no window needs; an empty one starts with this count."""
    if not memory.wishes:
        return replace(memory, wishes=(Wish(now, count),))
    return memory.recent(now, max(policy.out.window, policy.back.window))


def _noted(at: Situation, memory: Memory, now: float, *, known: bool) -> Memory:
    """Return the memory with what this turn tells of idleness, effect and capacities."""
    since = memory.idle if memory.idle is not None and memory.idle <= now else now
    memory = replace(
        memory, dark=0 if known else memory.dark + 1, idle=since if idle(at.seen.speeds) else None
    )
    short = now if memory.short is None or memory.short > now else memory.short
    lacking = len(at.active) < at.plan.replicas
    memory = replace(memory, looks=_looks(at, memory, now), short=short if lacking else None)
    return learned(at, judged(at, memory, now), now)


def _looks(at: Situation, memory: Memory, now: float) -> tuple[Look, ...]:
    """Return the ages of what waited over the window of consumption, with this turn's."""
    since = now - at.policy.effect_window
    kept = tuple(seen for seen in memory.looks if since < seen.time <= now)
    new = look(now, at.seen.speeds) if at.policy.effect_window else None
    return kept if new is None else (*kept, new)


def _expected(at: Situation) -> Plan | None:
    """Return the placement that is wished for; None where nothing is known, or to be placed."""
    if _is_dark(at) or at.seen.group.shared:
        return None
    return _sized(at, 1.0)


def _is_dark(at: Situation) -> bool:
    return not at.seen.speeds or len(at.unknown) == len(at.seen.speeds)


def _wished(at: Situation, expected: Plan | None) -> int | None:
    if expected is not None:
        return expected.consumers
    return None if _is_dark(at) else _count(at, 1.0)


def _count(at: Situation, share: float) -> int:
    """Return how many would do if they were filled to this share of the headroom."""
    if not at.seen.group.shared:
        return _sized(at, share).consumers
    room = at.policy.placement.capacity * min(1.0, at.policy.placement.headroom * share)
    return max(1, math.ceil(at.total() / room - ENOUGH))


def _sized(at: Situation, share: float) -> Plan:
    policy = at.policy.placement
    policy = replace(policy, headroom=min(1.0, policy.headroom * share))
    return size(at.group(with_draining=False), at.load(unknown_is_nothing=True), policy)


def _steady(
    at: Situation, current: int, wished: int | None, dark: int
) -> tuple[int, tuple[str, ...]]:
    """Return the wish after rules 2, 3 and 5 and the limits, and what held it back."""
    if wished is None:
        return _fallen_back(at.policy, current, dark)
    wanted = at.policy.clamp(wished)
    if wanted > current:
        band = at.policy.out.dead_band
        fits = at.policy.clamp(_count(at, 1 + band)) <= current
        return (current, (f"{wanted} is within the dead band",)) if fits else (wanted, ())
    if wanted < current and at.unknown:
        return current, (f"{len(at.unknown)} partitions are unknown, so nothing is taken away",)
    if wanted < current:
        band = at.policy.back.dead_band
        careful = max(wanted, at.policy.clamp(_count(at, 1 - band)))
        held = careful >= current
        return min(current, careful), (f"{wanted} is within the dead band",) if held else ()
    return current, ()


def _fallen_back(policy: ScalePolicy, current: int, dark: int) -> tuple[int, tuple[str, ...]]:
    fallback, reason = policy.fallback, "no write speed is known"
    if dark < fallback.after or fallback.use is Use.CURRENT:
        return current, (reason,)
    count = policy.clamp(fallback.count(current))
    return count, (f"{reason} for {dark} turns: fallback {fallback.use}, {count} replicas",)


def _stabilised(memory: Memory, policy: ScalePolicy, current: int, now: float) -> int:
    """Bound the present count by the windows (rule 4); the newest wish is in both."""
    *before, newest = memory.wishes
    out = [w.count for w in before if w.time > now - policy.out.window]
    back = [w.count for w in before if w.time > now - policy.back.window]
    lowest, highest = min([*out, newest.count]), max([*back, newest.count])
    return max(min(current, highest), lowest)


def _effective(at: Situation, sizing: Sizing, memory: Memory, now: float) -> Sizing:
    """Return what is wanted while growing is stopped (rule 6)."""
    stall, most = memory.stall, max(at.plan.replicas, at.policy.least)
    if stall is None or sizing.wanted <= most:
        return sizing
    warning = f"{stall.reason}; tried again in {stall.until - now:.0f} s"
    return replace(sizing, steady=most, wanted=most, warnings=(warning,))


def _with_goal(at: Situation, sizing: Sizing, memory: Memory) -> Sizing:
    """Return the sizing with what is to be said of a goal that is missed."""
    goal, found = at.policy.goal, freshness(memory.looks)
    told = None if goal is None or found is None else found.told(goal)
    return sizing if told is None else replace(sizing, warnings=(*sizing.warnings, told))


def _to_zero_and_back(at: Situation, sizing: Sizing, memory: Memory, now: float) -> Sizing:
    """Return what is wanted where no replica need run (rule 7)."""
    if at.policy.least or at.plan.replicas > 1:
        return sizing
    if not at.plan.replicas:
        return _from_zero(at, sizing)
    if memory.idle is None or sizing.wanted > 1:
        return sizing
    quiet, enough = now - memory.idle, at.policy.idle_after
    if quiet >= enough:
        return replace(sizing, steady=0, wanted=0)
    note = f"nothing to read for {quiet:.0f} s, the last one goes after {enough:.0f} s"
    return replace(sizing, notes=(*sizing.notes, note))


def _from_zero(at: Situation, sizing: Sizing) -> Sizing:
    if awake(at.seen.speeds):
        count = max(1, sizing.steady)
        return replace(sizing, steady=count, wanted=count)
    fallen_back = sizing.wished is None and sizing.wanted > 0
    if fallen_back:
        return sizing
    return replace(sizing, steady=0, wanted=0, notes=sizing.notes or ("nothing is to be read",))
