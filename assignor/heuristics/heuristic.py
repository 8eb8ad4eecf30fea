"""What a heuristic is: a function from a `Problem` to bins, with a name and promises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trimtab.assignor.model import NOBODY, IntArray, Problem
from trimtab.common.errors import BrokenHeuristic, TrimtabError

Pack: TypeAlias = Callable[[Problem], IntArray]
"""Returns shape (P,): the bin of each partition.

Bins 0..M-1 are the members. In open mode (`problem.spare` is set) bins from M on are members to be
added, which subscribe to every topic; the lowest numbers are used first. In closed mode a partition
that fits nowhere gets `NOBODY`. The problem's arrays are not to be written to.
"""


@dataclass(frozen=True, slots=True)
class Needs:
    """A package that is not always installed, and the extra that brings it."""

    package: str
    extra: str

    def missing(self, name: str) -> str:
        """Say what to do about it."""
        return (
            f"heuristic {name!r} needs {self.package}, which is not installed; "
            f"pip install 'trimtab[{self.extra}]', or choose another one"
        )


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A heuristic by name.

    `settles`: applied to its own output it moves nothing. `counts`: it packs by capacity and so can
    decide how many consumers there should be; one that does not is only asked to place. `presets`
    are variants, chosen as "name:preset"; `tuned` makes one of a number, chosen as "name:0.7".
    `level` is its own way to spread the load of a closed problem over all members; without one it
    is packed at the least capacity that holds everything. `settings` are numbers that may be given
    after the name or preset, with their defaults, and `varied` makes a variant of a preset (or a
    number, or "") and settings. `racks`: it weighs what crosses racks, so `Problem.racks` is there.
    """

    name: str
    pack: Pack
    summary: str
    source: str
    settles: bool = False
    counts: bool = True
    presets: Mapping[str, Pack] = field(default_factory=dict[str, Pack])
    tuned: Callable[[float], Pack] | None = None
    level: Pack | None = None
    settings: Mapping[str, float] = field(default_factory=dict[str, float])
    varied: "Callable[[str, Mapping[str, float]], Heuristic] | None" = None
    racks: bool = False
    needs: Needs | None = None


def run(entry: Heuristic, problem: Problem) -> IntArray:
    """Apply a heuristic. Raises BrokenHeuristic if it fails or its bins make no sense."""
    try:
        bins = np.asarray(entry.pack(problem), dtype=np.int32)
    except TrimtabError:
        raise
    except Exception as error:  # whatever a third party's code may raise
        raise BrokenHeuristic(
            f"heuristic {entry.name!r} ({entry.source}) failed: {error!r}; choose another one"
        ) from error
    fault = _fault(bins, problem)
    if fault:
        raise BrokenHeuristic(
            f"heuristic {entry.name!r} ({entry.source}) {fault}; choose another one"
        )
    return bins


def _fault(bins: IntArray, problem: Problem) -> str:
    """Say what is wrong with an answer; "" if nothing is."""
    items, members = len(problem.weight), len(problem.capacity)
    if bins.shape != (items,):
        return f"gave {bins.shape} bins for {items} partitions"
    if not items:
        return ""
    low, high = (NOBODY, members) if problem.spare is None else (0, members + items)
    if bins.min() < low or bins.max() >= high:
        return f"gave a bin outside {low}..{high - 1}"
    member = (bins != NOBODY) & (bins < members)
    if not problem.subscribed[problem.topic[member], bins[member]].all():
        return "gave a partition to a member that does not subscribe to it"
    return ""
