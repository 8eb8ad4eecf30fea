"""Why a partition moves, and what to know about a plan, in words with their figures."""

from collections.abc import Iterable, Sequence
from typing import overload

import numpy as np

from trimtab.assignor.fill_levels import PlacementDecision
from trimtab.assignor.model import UNASSIGNED, IntArray, Member, Move
from trimtab.assignor.problem import IndexedGroup
from trimtab.assignor.racks.rack_warnings import explain_rack_move, list_rack_warnings
from trimtab.common.units import format_name_list, format_rate

MAX_NAMES_IN_NOTE = 3  # names in a list before "and 7 more"


class DecidedMoves(Sequence[Move]):
    """The changes of owner in a decision, by partition; each is put into words when asked for.

    An owner that has left the group counts as nobody.
    """

    def __init__(self, decision: PlacementDecision, items: IntArray | None = None) -> None:
        self._decision = decision
        if items is None:
            items = np.flatnonzero(decision.source != decision.target).astype(np.int32)
        self._items = items

    def __len__(self) -> int:
        return len(self._items)

    @overload
    def __getitem__(self, index: int) -> Move: ...

    @overload
    def __getitem__(self, index: slice) -> "DecidedMoves": ...

    def __getitem__(self, index: int | slice) -> "Move | DecidedMoves":
        if isinstance(index, slice):
            return DecidedMoves(self._decision, self._items[index])
        return _describe_move(self._decision, int(self._items[index]))

    def select_largest(self, count: int) -> "DecidedMoves":
        """Return those that move the most load, the largest first."""
        weight = self._decision.indexed.problem.weight[self._items]
        return DecidedMoves(self._decision, self._items[np.argsort(-weight, kind="stable")[:count]])

    @property
    def write_rate(self) -> float:
        """Load of all that moves, bytes/s."""
        return float(self._decision.indexed.problem.weight[self._items].sum())


def _describe_move(decision: PlacementDecision, item: int) -> Move:
    there = decision.indexed.indexed_group
    partition = there.partition_index.partition_at(int(decision.indexed.item[item]))
    owner = int(there.owner[decision.indexed.item[item]])
    member = there.members[owner] if 0 <= owner < len(there.members) else None
    return Move(
        partition=partition,
        source=member.id if member else None,
        target=decision.names[decision.bins[item]],
        write_rate=float(decision.indexed.problem.weight[item]),
        reason=_explain_move(
            decision,
            item,
            _explain_forced_move(partition.topic, _find_owner_name(there, owner), member),
        ),
    )


def _find_owner_name(indexed_group: IndexedGroup, owner: int) -> str | None:
    if owner == UNASSIGNED:
        return None
    count = len(indexed_group.members)
    return (
        indexed_group.members[owner].id
        if owner < count
        else indexed_group.departed_owners[owner - count]
    )


def _explain_move(decision: PlacementDecision, item: int, forced: str) -> str:
    """Say why the item moves; `forced` is why its owner could not keep it, if it could not."""
    source, target = int(decision.indexed.problem.owner[item]), int(decision.bins[item])
    if source == UNASSIGNED:
        fill = decision.after.fill[target]
        return f"{forced}; {decision.display_name(target)} comes to {fill:.0%} of its capacity"
    why = explain_rack_move(decision, item) or _explain_chosen_move(decision, source, target)
    return f"{decision.policy.heuristic}: {why}"


def list_plan_notes(decision: PlacementDecision) -> tuple[str, ...]:
    """Say what to know about the plan as a whole."""
    found = [*decision.indexed.notes]
    there, unassigned = decision.indexed.indexed_group, decision.indexed.unassigned.tolist()
    if not there.members and len(there.partition_index):
        found.append("the group has no members: nothing can be read")
    elif unassigned:
        shown = [str(there.partition_index.partition_at(p)) for p in unassigned[:MAX_NAMES_IN_NOTE]]
        found.append(f"no member subscribes to {format_name_list(shown, len(unassigned))}")
    if any(m.draining for m in decision.indexed.members):
        found.append("all members are draining: they go on reading")
    return (
        *found,
        *list_rack_warnings(decision.indexed),
        *_note_oversized_partitions(decision),
        *_note_overload(decision),
    )


def _explain_forced_move(topic: str, owner: str | None, member: Member | None) -> str:
    """Say why the owner could not keep a partition of the topic."""
    if owner is None:
        return "nobody read it"
    if member is None:
        return f"its owner {owner} left"
    name = member.instance or member.id
    if topic not in member.topics:
        return f"{name} no longer subscribes to {topic}"
    return f"{name} is draining"


def _explain_chosen_move(decision: PlacementDecision, source: int, target: int) -> str:
    """Say why a partition that could have stayed moves."""
    before, after = decision.before.fill, decision.after.fill
    giver, taker = decision.display_name(source), decision.display_name(target)
    if decision.find_overfull(decision.before)[source]:
        limit = decision.policy.headroom
        allowed = f" ({limit:.0%} may be filled)" if limit < 1 else ""
        return f"{giver} would be at {before[source]:.0%} of its capacity{allowed}"
    if not decision.after.count[source]:
        return f"{giver} is emptied: its load fits elsewhere"
    if not decision.before.count[target]:
        return f"spread onto {taker}, which read nothing"
    if not decision.indexed.measured.any():
        was, is_ = decision.before.count, decision.after.count
        return (
            f"evens the partitions: {giver} goes from {was[source]} to {is_[source]}, "
            f"{taker} from {was[target]} to {is_[target]}"
        )
    what = "evens the load" if decision.is_spread else "repacked"
    return (
        f"{what}: {giver} goes from {before[source]:.0%} to {after[source]:.0%} of its capacity, "
        f"{taker} from {before[target]:.0%} to {after[target]:.0%}"
    )


def _note_oversized_partitions(decision: PlacementDecision) -> Iterable[str]:
    """Name the partitions that no care in packing can help."""
    weight, universe = (
        decision.indexed.problem.weight,
        decision.indexed.indexed_group.partition_index,
    )
    limit = (decision.capacity * decision.policy.headroom)[decision.bins]
    large = np.flatnonzero((weight > limit) & decision.indexed.measured).tolist()
    for item in large[:MAX_NAMES_IN_NOTE]:
        name = universe.partition_at(int(decision.indexed.item[item]))
        yield (
            f"{name} writes {format_rate(weight[item])}, more than "
            f"{decision.display_name(int(decision.bins[item]))} may take ({format_rate(limit[item])}): "
            "split the key or raise the capacity"
        )
    if len(large) > MAX_NAMES_IN_NOTE:
        yield f"and {len(large) - MAX_NAMES_IN_NOTE} more partitions like that"


def _note_overload(decision: PlacementDecision) -> Iterable[str]:
    """Name the members that carry too much, other than by one partition too large for them."""
    over = decision.find_overfull(decision.after) & (decision.after.count > 1)
    if over.any():
        fill = decision.after.fill
        total = format_rate(float(decision.indexed.problem.weight.sum()))
        room = format_rate(float(decision.capacity.sum()) * decision.policy.headroom)
        numbers = np.flatnonzero(over).tolist()
        shown = [
            f"{decision.display_name(n)} at {fill[n]:.0%}" for n in numbers[:MAX_NAMES_IN_NOTE]
        ]
        how = "spread in proportion" if decision.is_spread else "placed regardless"
        named = format_name_list(shown, len(numbers))
        yield f"overload: {total} for members that may take {room}; {how}: {named}"
