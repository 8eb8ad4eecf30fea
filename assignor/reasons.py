"""Why a partition moves, and what to know about a plan, in words with their figures."""

from collections.abc import Iterable

import numpy as np

from trimtab.assignor.model import Group, Member, TopicPartition
from trimtab.assignor.outcome import Outcome
from trimtab.assignor.units import format_rate

SHOWN = 3  # names in a list before "and 7 more"


def reason(decided: Outcome, item: int, owner: str | None, member: Member | None) -> str:
    """Say why the item moves; `owner` is who read it, `member` that one if it is still there."""
    target = int(decided.bins[item])
    forced = _forced(decided.framed.partitions[item], owner, member, decided)
    if forced:
        fill = decided.after.fill[target]
        return f"{forced}; {decided.person(target)} comes to {fill:.0%} of its capacity"
    source = int(decided.framed.problem.owner[item])
    return f"{decided.policy.heuristic}: {_chosen(decided, source, target)}"


def notes(decided: Outcome, group: Group) -> tuple[str, ...]:
    """Say what to know about the plan as a whole."""
    found = [*decided.framed.notes]
    if not group.members and group.partitions:
        found.append("the group has no members: nothing can be read")
    elif decided.framed.unassigned:
        found.append(f"no member subscribes to {_listed(map(str, decided.framed.unassigned))}")
    if any(m.draining for m in decided.framed.members):
        found.append("all members are draining: they go on reading")
    return (*found, *_too_large(decided), *_overload(decided))


def _forced(
    partition: TopicPartition, owner: str | None, member: Member | None, decided: Outcome
) -> str:
    """Say why the owner could not keep the partition; "" if it could."""
    if owner is None:
        return "nobody read it"
    if member is None:
        return f"its owner {owner} left"
    name = member.instance or member.id
    if partition.topic not in member.topics:
        return f"{name} no longer subscribes to {partition.topic}"
    return "" if member.id in decided.names else f"{name} is draining"


def _chosen(decided: Outcome, source: int, target: int) -> str:
    """Say why a partition that could have stayed moves."""
    before, after = decided.before.fill, decided.after.fill
    giver, taker = decided.person(source), decided.person(target)
    if decided.overfull(decided.before)[source]:
        limit = decided.policy.headroom
        allowed = f" ({limit:.0%} may be filled)" if limit < 1 else ""
        return f"{giver} would be at {before[source]:.0%} of its capacity{allowed}"
    if not decided.after.count[source]:
        return f"{giver} is emptied: its load fits elsewhere"
    if not decided.before.count[target]:
        return f"spread onto {taker}, which read nothing"
    what = "evens the load" if decided.spread else "repacked"
    return (
        f"{what}: {giver} goes from {before[source]:.0%} to {after[source]:.0%} of its capacity, "
        f"{taker} from {before[target]:.0%} to {after[target]:.0%}"
    )


def _too_large(decided: Outcome) -> Iterable[str]:
    """Name the partitions that no care in packing can help."""
    weight = decided.framed.problem.weight
    limit = (decided.capacity * decided.policy.headroom)[decided.bins]
    large = np.flatnonzero((weight > limit) & decided.framed.known).tolist()
    for item in large[:SHOWN]:
        yield (
            f"{decided.framed.partitions[item]} writes {format_rate(weight[item])}, more than "
            f"{decided.person(int(decided.bins[item]))} may take ({format_rate(limit[item])}): "
            "split the key or raise the capacity"
        )
    if len(large) > SHOWN:
        yield f"and {len(large) - SHOWN} more partitions like that"


def _overload(decided: Outcome) -> Iterable[str]:
    """Name the members that carry too much, other than by one partition too large for them."""
    over = decided.overfull(decided.after) & (decided.after.count > 1)
    if over.any():
        fill = decided.after.fill
        total = format_rate(float(decided.framed.problem.weight.sum()))
        room = format_rate(float(decided.capacity.sum()) * decided.policy.headroom)
        shown = (f"{decided.person(n)} at {fill[n]:.0%}" for n in np.flatnonzero(over).tolist())
        how = "spread in proportion" if decided.spread else "placed regardless"
        yield f"overload: {total} for members that may take {room}; {how}: {_listed(shown)}"


def _listed(names: Iterable[str]) -> str:
    known = tuple(names)
    more = f" and {len(known) - SHOWN} more" if len(known) > SHOWN else ""
    return ", ".join(known[:SHOWN]) + more
