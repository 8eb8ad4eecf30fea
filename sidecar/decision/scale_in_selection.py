"""Which replicas to drain: those whose load costs least to move, as the leader would move it.

Where the target takes replicas away in an order, only the last ones may go. Of a share group any
may: nothing is placed, so nothing moves, and the newest knows least.
"""

from dataclasses import dataclass
from typing import Final

from trimtab.sidecar.decision.group_model import Situation, overflow, weigh

LOOKED_AT: Final = 8
"""Candidates for which a whole placement is computed: the least loaded ones."""

SLACK: Final = 1e-6
"""Relative overload that counts as none: sums of floats are not exact."""


@dataclass(frozen=True, slots=True, order=True)
class Cost:
    """What draining a candidate costs; the least comes first."""

    overflow: float  # bytes/s above capacity afterwards
    moved: float  # bytes/s that change their reader
    load: float  # bytes/s that the candidate reads
    name: str


def choose(at: Situation, count: int, *, forced: bool = False) -> tuple[str, ...]:
    """Return up to `count` replicas to drain; fewer where the others could not hold what they read.

    With `forced` (above the limit) the count comes first.
    """
    if at.seen.group.shared:
        return _newest(at, min(count, len(at.active) - 1))
    chosen: list[str] = []
    for _ in range(min(count, len(at.active) - 1)):
        best = min(_cost(at, chosen, name) for name in _candidates(at, chosen))
        allowed = at.overflow() + SLACK * at.policy.placement.capacity
        if best.overflow > allowed and not forced:
            break
        chosen.append(best.name)
    return tuple(chosen)


def _newest(at: Situation, count: int) -> tuple[str, ...]:
    alive = [i for i in at.seen.replicas or () if i.name in at.active]
    last = sorted(alive, key=lambda i: (-i.ordinal, -i.started, i.name))
    return tuple(instance.name for instance in last[:count])


def _candidates(at: Situation, chosen: list[str]) -> list[str]:
    loads, ordinals = at.loads(), at.ordinals()
    left = [n for n in at.active if n not in chosen]
    last = max(ordinals[n] for n in left)
    free = (n for n in left if ordinals[n] == last)
    return sorted(free, key=lambda n: (loads[n], len(at.owned(n)), n))[:LOOKED_AT]


def _cost(at: Situation, chosen: list[str], name: str) -> Cost:
    load = at.load()
    plan = at.without([*chosen, name])
    moved = weigh((m.partition for m in plan.moves if m.source is not None), load)
    return Cost(
        overflow(plan.assignment, load, at.capacity), moved, weigh(at.owned(name), load), name
    )
