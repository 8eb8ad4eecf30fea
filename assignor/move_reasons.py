"""Why a partition moves, and what to know about a plan, in words with their figures."""

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from trimtab.assignor.fill_levels import Outcome
from trimtab.assignor.model import NOBODY, IntArray, Member, Move
from trimtab.assignor.problem import Census
from trimtab.assignor.racks.rack_warnings import nearer, rack_notes
from trimtab.common.units import format_rate, listed

SHOWN = 3  # names in a list before "and 7 more"


class Moves(Sequence[Move]):
    """The changes of owner in a decision, by partition; each is put into words when asked for.

    An owner that has left the group counts as nobody.
    """

    def __init__(self, decided: Outcome, items: IntArray | None = None) -> None:
        self._decided = decided
        if items is None:
            items = np.flatnonzero(decided.source != decided.target).astype(np.int32)
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Move: ...

    @overload
    def __getitem__(self, index: slice) -> "Moves": ...

    def __getitem__(self, index: int | slice) -> "Move | Moves":
        if isinstance(index, slice):
            return Moves(self._decided, self._items[index])
        return _move(self._decided, int(self._items[index]))

    def largest(self, count: int) -> "Moves":
        """Return those that move the most load, the largest first."""
        weight = self._decided.framed.problem.weight[self._items]
        return Moves(self._decided, self._items[np.argsort(-weight, kind="stable")[:count]])

    @property
    def speed(self) -> float:
        """Load of all that moves, bytes/s."""
        return float(self._decided.framed.problem.weight[self._items].sum())


def _move(decided: Outcome, item: int) -> Move:
    there = decided.framed.census
    partition = there.universe.name(int(decided.framed.item[item]))
    owner = int(there.owner[decided.framed.item[item]])
    member = there.members[owner] if 0 <= owner < len(there.members) else None
    return Move(
        partition=partition,
        source=member.id if member else None,
        target=decided.names[decided.bins[item]],
        speed=float(decided.framed.problem.weight[item]),
        reason=_reason(decided, item, _forced(partition.topic, _name(there, owner), member)),
    )


def _name(there: Census, owner: int) -> str | None:
    if owner == NOBODY:
        return None
    count = len(there.members)
    return there.members[owner].id if owner < count else there.gone[owner - count]


def _reason(decided: Outcome, item: int, forced: str) -> str:
    """Say why the item moves; `forced` is why its owner could not keep it, if it could not."""
    source, target = int(decided.framed.problem.owner[item]), int(decided.bins[item])
    if source == NOBODY:
        fill = decided.after.fill[target]
        return f"{forced}; {decided.person(target)} comes to {fill:.0%} of its capacity"
    why = nearer(decided, item) or _chosen(decided, source, target)
    return f"{decided.policy.heuristic}: {why}"


def notes(decided: Outcome) -> tuple[str, ...]:
    """Say what to know about the plan as a whole."""
    found = [*decided.framed.notes]
    there, unassigned = decided.framed.census, decided.framed.unassigned.tolist()
    if not there.members and len(there.universe):
        found.append("the group has no members: nothing can be read")
    elif unassigned:
        shown = [str(there.universe.name(p)) for p in unassigned[:SHOWN]]
        found.append(f"no member subscribes to {listed(shown, len(unassigned))}")
    if any(m.draining for m in decided.framed.members):
        found.append("all members are draining: they go on reading")
    return (*found, *rack_notes(decided.framed), *_too_large(decided), *_overload(decided))


def _forced(topic: str, owner: str | None, member: Member | None) -> str:
    """Say why the owner could not keep a partition of the topic."""
    if owner is None:
        return "nobody read it"
    if member is None:
        return f"its owner {owner} left"
    name = member.instance or member.id
    if topic not in member.topics:
        return f"{name} no longer subscribes to {topic}"
    return f"{name} is draining"


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
    if not decided.framed.known.any():
        was, is_ = decided.before.count, decided.after.count
        return (
            f"evens the partitions: {giver} goes from {was[source]} to {is_[source]}, "
            f"{taker} from {was[target]} to {is_[target]}"
        )
    what = "evens the load" if decided.spread else "repacked"
    return (
        f"{what}: {giver} goes from {before[source]:.0%} to {after[source]:.0%} of its capacity, "
        f"{taker} from {before[target]:.0%} to {after[target]:.0%}"
    )


def _too_large(decided: Outcome) -> Iterable[str]:
    """Name the partitions that no care in packing can help."""
    weight, universe = decided.framed.problem.weight, decided.framed.census.universe
    limit = (decided.capacity * decided.policy.headroom)[decided.bins]
    large = np.flatnonzero((weight > limit) & decided.framed.known).tolist()
    for item in large[:SHOWN]:
        name = universe.name(int(decided.framed.item[item]))
        yield (
            f"{name} writes {format_rate(weight[item])}, more than "
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
        numbers = np.flatnonzero(over).tolist()
        shown = [f"{decided.person(n)} at {fill[n]:.0%}" for n in numbers[:SHOWN]]
        how = "spread in proportion" if decided.spread else "placed regardless"
        named = listed(shown, len(numbers))
        yield f"overload: {total} for members that may take {room}; {how}: {named}"
