"""Figures of a group from what its members printed: balance, moves, pauses, lateness."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from typing import TypeAlias

from strangers.events import ENDS, Event, Run

Rates: TypeAlias = Callable[[float], Mapping[str, float]]
"""Write rates by partition at a time."""


@dataclass(frozen=True, slots=True)
class Ownership:
    """A run owns a partition from `begin` until `end` (seconds since the epoch)."""

    partition: str
    run: Run
    begin: float
    end: float = inf


def list_ownerships(events: Iterable[Event]) -> list[Ownership]:
    """Return all ownerships in the order in which they began."""
    current: dict[tuple[Run, str], Ownership] = {}
    done: list[Ownership] = []
    for event in events:
        if event.kind == "assigned":
            for partition in event.partitions:
                current.setdefault((event.run, partition), Ownership(partition, event.run, event.at))
        elif event.kind in ("revoked", "lost", *ENDS):
            ended = [key for key in current if key[0] == event.run and _concerns(event, key[1])]
            done += [replace(current.pop(key), end=event.at) for key in ended]
    return sorted([*done, *current.values()], key=lambda o: o.begin)


def _concerns(event: Event, partition: str) -> bool:
    return event.kind in ENDS or partition in event.partitions


def balance_at(owned: Iterable[Ownership], members: int, rates: Mapping[str, float], at: float) -> float:
    """Return the largest member's write rate ÷ the mean of `members`; what nobody owns is in the mean."""
    loads: defaultdict[str, float] = defaultdict(float)
    for one in owned:
        if one.begin <= at < one.end:
            loads[one.run.member] += rates[one.partition]
    return max(loads.values(), default=0.0) * members / sum(rates.values())


def balance_curve(
    owned: Sequence[Ownership], members: int, rates: Rates, window: tuple[float, float], step: float = 0.5
) -> list[tuple[float, float]]:
    """Return (time, largest load ÷ mean) at each `step` seconds of a window."""
    count = int((window[1] - window[0]) / step)
    times = [window[0] + number * step for number in range(count + 1)]
    return [(at, balance_at(owned, members, rates(at), at)) for at in times]


def count_moves(owned: Iterable[Ownership], window: tuple[float, float]) -> int:
    """Return how often a partition went to another member within a window."""
    changes = [pair for pair in _successions(owned) if window[0] <= pair[1].begin < window[1]]
    return sum(old.run.member != new.run.member for old, new in changes)


def measure_pauses(
    events: Iterable[Event], owned: Iterable[Ownership], window: tuple[float, float]
) -> list[float]:
    """Return the seconds from an ownership's last record to the first of the next, of each that began then.

    A partition that returns to the member that revoked it counts, too; one that has not been read since
    does not.
    """
    reads: defaultdict[tuple[Run, str], list[float]] = defaultdict(list)
    for event in events:
        if event.kind == "read":
            reads[event.run, event.partitions[0]].append(event.at)
    gaps = (
        _gap(reads[old.run, old.partition], reads[new.run, new.partition], new.begin)
        for old, new in _successions(owned)
        if window[0] <= new.begin < window[1]
    )
    return [gap for gap in gaps if gap is not None]


def _successions(owned: Iterable[Ownership]) -> Iterator[tuple[Ownership, Ownership]]:
    by_partition: defaultdict[str, list[Ownership]] = defaultdict(list)
    for one in owned:
        by_partition[one.partition].append(one)
    for ownerships in by_partition.values():
        yield from pairwise(ownerships)


def _gap(old: Sequence[float], new: Sequence[float], begin: float) -> float | None:
    before, after = bisect_right(old, begin), bisect_right(new, begin)
    return new[after] - old[before - 1] if before and after < len(new) else None


def measure_latencies(events: Iterable[Event], written: Mapping[str, Mapping[int, float]]) -> list[float]:
    """Return the seconds from production to the first handling of each read record.

    `written` has the time of production by partition and offset.
    """
    seen: set[tuple[str, int]] = set()
    latencies: list[float] = []
    for event in (e for e in events if e.kind == "read"):
        (partition,) = event.partitions
        for offset in range(event.first, event.last + 1):
            if (partition, offset) not in seen and offset in written[partition]:
                seen.add((partition, offset))
                latencies.append(event.at - written[partition][offset])
    return latencies
