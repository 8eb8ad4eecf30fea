"""Reasons of moves and notes on plans, as text with figures."""

from collections.abc import Iterable, Sequence
from typing import Final, overload

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, Move, PlannedMoves, TopicPartition
from trimtab.assignor.model.problem import IndexedGroup
from trimtab.assignor.modes.task_groups import list_task_mates, list_task_warnings
from trimtab.assignor.racks.rack_warnings import explain_rack_move, list_rack_warnings
from trimtab.assignor.scores.fill_levels import PlacementDecision
from trimtab.common.units import format_count, format_fill, format_name_list, format_rate

MAX_NAMES_IN_NOTE: Final = 3  # a note is one line of a log


class DecidedMoves(PlannedMoves):
    """The changes of owner in a decision, sorted by partition."""

    # Described on access: a leader logs 20 of up to 100,000 moves.
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(tuple(self))  # of equal decisions the same

    def select_largest(self, count: int) -> "DecidedMoves":
        """Return the `count` moves of the most load, largest first."""
        weight = self._decision.indexed.problem.weight[self._items]
        return DecidedMoves(self._decision, self._items[np.argsort(-weight, kind="stable")[:count]])

    @property
    def write_rate(self) -> float:
        """Total moved load in bytes/s."""
        return float(self._decision.indexed.problem.weight[self._items].sum())


def _describe_move(decision: PlacementDecision, item: int) -> Move:
    group = decision.indexed.group
    partition = group.partition_index.partition_at(int(decision.indexed.item[item]))
    owner = int(group.owner[decision.indexed.item[item]])
    source, target = int(decision.indexed.problem.owner[item]), int(decision.bins[item])
    if source == UNASSIGNED:  # the owner, if any, could not keep it
        reason = _explain_forced_move(group, owner, partition.topic)
        if decision.indexed.measured.any():
            fill = decision.after.fill[target]
            reason = f"{reason}; {decision.display_name(target)} comes to {fill:.0%} of its capacity"
    else:
        why = (
            _explain_task_move(decision, partition, target)
            or explain_rack_move(decision, item)
            or _explain_chosen_move(decision, source, target)
        )
        reason = f"{decision.policy.heuristic}: {why}"
    return Move(
        partition=partition,
        source=group.members[owner].id if 0 <= owner < len(group.members) else None,
        target=decision.names[target],
        write_rate=float(decision.indexed.problem.weight[item]),
        reason=reason,
    )


def list_plan_notes(decision: PlacementDecision) -> tuple[str, ...]:
    """Return the notes on the plan as a whole."""
    notes = [*note_unknown_load(decision)]
    group = decision.indexed.group
    unassigned = decision.indexed.unassigned.tolist()
    if not group.members and len(group.partition_index):
        notes.append("the group has no members: nothing can be read")
    elif unassigned:
        shown = [str(group.partition_index.partition_at(p)) for p in unassigned[:MAX_NAMES_IN_NOTE]]
        notes.append(f"no member subscribes to {format_name_list(shown, len(unassigned))}")
    if any(m.draining for m in decision.indexed.members):
        notes.append("all members are draining: they go on reading")
    return (
        *notes,
        *list_task_warnings(decision.indexed, decision.policy.co_partitioned),
        *list_rack_warnings(decision.indexed),
        *_note_oversized_partitions(decision),
        *_note_overload(decision),
    )


def note_unknown_load(decision: PlacementDecision) -> Iterable[str]:
    """Return a note on rates or lags that are not known, if there are any."""
    if decision.indexed.lag_known is not None:
        yield from _note_unknown_lags(decision.indexed.lag_known)
        return
    measured = decision.indexed.measured
    missing = int((~measured).sum())
    if missing and missing == len(measured):
        yield "no write rate is known: every partition weighs the same"
    elif missing:
        count = f"{missing} of {format_count(len(measured), 'partition')}"
        yield f"no write rate of {count}: their topic's mean, else the overall, serves"


def _note_unknown_lags(known: BoolArray) -> Iterable[str]:
    missing = int((~known).sum())
    if missing and missing == len(known):
        yield "no lag is known: partitions are spread by count"
    elif missing:
        yield f"no lag of {missing} of {format_count(len(known), 'partition')} is known: it counts as 0"


def _explain_forced_move(group: IndexedGroup, owner: int, topic: str) -> str:
    if owner == UNASSIGNED:
        return "no member owned it"
    if owner >= len(group.members):
        return f"its owner {group.departed_owners[owner - len(group.members)]} left"
    member = group.members[owner]
    name = member.instance or member.id
    if topic not in member.topics:
        return f"{name} no longer subscribes to {topic}"
    return f"{name} is draining"


def _explain_task_move(decision: PlacementDecision, partition: TopicPartition, target: int) -> str:
    """Return the reason of a move to the rest of a task; "" if the target read nothing of it."""
    mates = list_task_mates(partition, decision.policy.co_partitioned)
    read = [str(mate) for mate in mates if decision.indexed.find_owner(mate) == target]
    return f"joins {format_name_list(read, len(read))} on {decision.display_name(target)}" if read else ""


def _explain_chosen_move(decision: PlacementDecision, source: int, target: int) -> str:
    before, after = decision.before.fill, decision.after.fill
    donor, recipient = decision.display_name(source), decision.display_name(target)
    if decision.find_overfull(decision.before)[source]:
        limit = decision.policy.headroom
        allowed = f" ({limit:.0%} may be filled)" if limit < 1 else ""
        return f"{donor} would be at {format_fill(before[source], limit)} of its capacity{allowed}"
    if not decision.after.count[source]:
        return f"{donor} is emptied: its load fits elsewhere"
    if not decision.before.count[target]:
        return f"spread onto {recipient}, which read nothing"
    if not decision.indexed.measured.any():
        was, is_ = decision.before.count, decision.after.count
        return (
            f"evens the partitions: {donor} goes from {was[source]} to {is_[source]}, "
            f"{recipient} from {was[target]} to {is_[target]}"
        )
    what = "evens the load" if decision.is_spread else "repacked"
    return (
        f"{what}: {donor} goes from {before[source]:.0%} to {after[source]:.0%} of its capacity, "
        f"{recipient} from {before[target]:.0%} to {after[target]:.0%}"
    )


def _note_oversized_partitions(decision: PlacementDecision) -> Iterable[str]:
    weight = decision.indexed.problem.weight
    index = decision.indexed.group.partition_index
    limit = (decision.capacity * decision.policy.headroom)[decision.bins]
    # An estimated weight is the topic's mean: no reason to split a key.
    large = np.flatnonzero((weight > limit) & decision.indexed.measured).tolist()
    for item in large[:MAX_NAMES_IN_NOTE]:
        name = index.partition_at(int(decision.indexed.item[item]))
        reader = decision.display_name(int(decision.bins[item]))
        yield (
            f"{name} writes {format_rate(weight[item])}, more than {reader} may take "
            f"({format_rate(limit[item])}): split the key or raise the capacity"
        )
    if len(large) > MAX_NAMES_IN_NOTE:
        yield f"and {len(large) - MAX_NAMES_IN_NOTE} more oversized partitions"


def _note_overload(decision: PlacementDecision) -> Iterable[str]:
    # A member with one oversized partition has a note of its own.
    over = decision.find_overfull(decision.after) & (decision.after.count > 1)
    if over.any():
        fill = decision.after.fill
        total = format_rate(float(decision.indexed.problem.weight.sum()))
        room = format_rate(float(decision.capacity.sum()) * decision.policy.headroom)
        numbers = np.flatnonzero(over).tolist()
        shown = [f"{decision.display_name(n)} at {fill[n]:.0%}" for n in numbers[:MAX_NAMES_IN_NOTE]]
        how = "spread in proportion" if decision.is_spread else "placed regardless"
        named = format_name_list(shown, len(numbers))
        yield f"overload: {total} for members that may take {room}; {how}: {named}"
