"""Selects the replicas to drain: those whose load costs least to move.

1. The cost is that of the placement that the plan would publish. The others must stay within the
   headroom, unless the drain is forced: above the limit of replicas, overload is accepted.
2. Candidates are replicas that sizing leaves empty, up to half of them, and the least loaded ones.
3. Replicas with a pending restart come first: they would be replaced otherwise.
4. Targets that remove replicas in order allow only the last ones. In a share group nothing moves, and
   the newest replicas are selected.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trimtab.sidecar.decision.group_model import GroupModel, exceeds, sum_rates

MAX_DRAIN_CANDIDATES: Final = 8  # each costs a whole placement


@dataclass(frozen=True, slots=True, order=True)
class DrainCost:
    """Cost of draining replicas; sorts by cost."""

    fullest: float  # load / capacity of the fullest of the others; at least the limit
    up_to_date: int  # victims that have no pending restart
    moved_rate: float  # bytes/s that change their owner
    load: float  # bytes/s that the victims read
    victims: tuple[str, ...]


def select_victims(model: GroupModel, count: int, *, forced: bool = False) -> tuple[str, ...]:
    """Return up to `count` replicas to drain; fewer if the others cannot take over their load."""
    count = min(count, len(model.active) - 1)
    if model.is_share_group:
        return _select_newest(model, count)
    victims: tuple[str, ...] = ()  # one at a time: each placement includes the victims before it
    for _ in range(count):
        costs = (_compute_drain_cost(model, (*victims, name)) for name in _list_candidates(model, victims))
        best = min(costs)
        if not forced and exceeds(best.fullest, _limit_fill(model)):
            break
        victims = best.victims
    return victims


def _select_newest(model: GroupModel, count: int) -> tuple[str, ...]:
    alive = [i for i in model.observation.replicas or () if i.name in model.active]
    old = model.observation.pending_restarts
    newest = sorted(alive, key=lambda i: (-i.ordinal, i.name not in old, -i.started_at, i.name))
    return tuple(instance.name for instance in newest[:count])


def _list_candidates(model: GroupModel, selected: Sequence[str]) -> list[str]:
    loads = model.loads
    ordinals = model.map_ordinals()
    left = [n for n in model.active if n not in selected]
    last = max(ordinals[n] for n in left)  # equal for all replicas of targets without an order
    free = [n for n in left if ordinals[n] == last]
    old = model.observation.pending_restarts
    free.sort(key=lambda n: (n not in old, loads[n], len(model.owned_partitions(n)), n))
    kept = {n for n, owned in model.sized.assignment.items() if owned} if model.sized else set[str]()
    spare = [n for n in free if kept.isdisjoint(model.list_consumers([n]))]
    return list(dict.fromkeys((*spare[: MAX_DRAIN_CANDIDATES // 2], *free)))[:MAX_DRAIN_CANDIDATES]


def _limit_fill(model: GroupModel) -> float:
    """Return the fill that the others may reach."""
    # A heuristic that places by count or lag may exceed it with any number of consumers.
    return model.fill_limit if model.packs_by_capacity else max(model.fill_limit, model.fullest)


def _compute_drain_cost(model: GroupModel, victims: tuple[str, ...]) -> DrainCost:
    load = model.build_load()
    placed = model.place_on(set(model.active).difference(victims))
    fullest = float("inf") if placed.unassigned else model.compute_fullest(placed.assignment)
    moved = sum_rates((m.partition for m in placed.moves if m.source is not None), load)
    given = sum_rates((p for name in victims for p in model.owned_partitions(name)), load)
    current = len(set(victims).difference(model.observation.pending_restarts))
    return DrainCost(max(fullest, model.fill_limit), current, moved, given, victims)
