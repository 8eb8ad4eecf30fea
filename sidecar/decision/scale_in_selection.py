"""Selects the replicas to drain: those whose load costs least to move.

The cost is that of the placement the leader would compute. Targets that remove replicas in order
allow only the last ones. In a share group nothing moves, and the newest replicas are selected.
"""

from dataclasses import dataclass
from typing import Final

from trimtab.sidecar.decision.group_model import GroupModel, compute_overflow, sum_rates

MAX_DRAIN_CANDIDATES: Final = 8  # the least loaded: each costs a whole placement

OVERLOAD_SLACK: Final = 1e-6  # relative overload that counts as none: float sums are inexact


@dataclass(frozen=True, slots=True, order=True)
class DrainCost:
    """Cost of draining a candidate; sorts by cost."""

    overflow: float  # bytes/s above capacity afterwards
    moved_rate: float  # bytes/s that change their owner
    load: float  # bytes/s that the candidate reads
    name: str


def select_victims(model: GroupModel, count: int, *, forced: bool = False) -> tuple[str, ...]:
    """Return up to `count` replicas to drain; fewer if the others cannot take over their load."""
    if model.is_share_group:
        return _select_newest(model, min(count, len(model.active) - 1))
    victims: list[str] = []  # one at a time: each placement includes the victims before it
    for _ in range(min(count, len(model.active) - 1)):
        best = min(_compute_drain_cost(model, victims, name) for name in _list_candidates(model, victims))
        allowed = model.compute_overflow() + OVERLOAD_SLACK * model.policy.placement.capacity
        if best.overflow > allowed and not forced:  # forced: above the limit, overload is accepted
            break
        victims.append(best.name)
    return tuple(victims)


def _select_newest(model: GroupModel, count: int) -> tuple[str, ...]:
    alive = [i for i in model.observation.replicas or () if i.name in model.active]
    newest = sorted(alive, key=lambda i: (-i.ordinal, -i.started_at, i.name))
    return tuple(instance.name for instance in newest[:count])


def _list_candidates(model: GroupModel, selected: list[str]) -> list[str]:
    loads = model.compute_loads()
    ordinals = model.map_ordinals()
    left = [n for n in model.active if n not in selected]
    last = max(ordinals[n] for n in left)  # equal for all replicas of targets without an order
    free = (n for n in left if ordinals[n] == last)
    return sorted(free, key=lambda n: (loads[n], len(model.owned_partitions(n)), n))[:MAX_DRAIN_CANDIDATES]


def _compute_drain_cost(model: GroupModel, selected: list[str], name: str) -> DrainCost:
    load = model.build_load()
    plan = model.plan_without([*selected, name])
    overflow = compute_overflow(plan.assignment, load, model.capacity_of)
    moved = sum_rates((m.partition for m in plan.moves if m.source is not None), load)
    return DrainCost(overflow, moved, sum_rates(model.owned_partitions(name), load), name)
