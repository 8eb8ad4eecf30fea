"""What a heuristic is: a function from a `PackingProblem` to bins, with a name and promises."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem
from trimtab.common.errors import BrokenHeuristicError, TrimtabError

PackFunction: TypeAlias = Callable[[PackingProblem], IntArray]
"""Returns shape (P,): the bin of each partition.

Bins 0..M-1 are the members. In open mode (`problem.spare` is set) bins from M on are members to be
added, which subscribe to every topic; the lowest numbers are used first. In closed mode a partition
that fits nowhere gets `UNASSIGNED`. The problem's arrays are not to be written to.
"""


@dataclass(frozen=True, slots=True)
class HeuristicDependency:
    """A package that is not always installed, and the extra that brings it."""

    package: str
    extra: str

    def explain_missing(self, name: str) -> str:
        """Say what to do about it."""
        return (
            f"heuristic {name!r} needs {self.package}, which is not installed; "
            f"pip install 'trimtab[{self.extra}]', or choose another one"
        )


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A heuristic by name.

    `idempotent`: applied to its own output it moves nothing. `packs_by_capacity`: it packs by capacity and so can
    decide how many consumers there should be; one that does not is only asked to place. `presets`
    are variants, chosen as "name:preset"; `make_tuned` makes one of a number, chosen as "name:0.7".
    `balance_load` is its own way to spread the load of a closed problem over all members; without one it
    is packed at the least capacity that holds everything. `settings` are numbers that may be given
    after the name or preset, with their defaults, and `make_variant` makes a variant of a preset (or a
    number, or "") and settings. `weighs_racks`: it weighs what crosses racks, so `PackingProblem.racks` is there.
    """

    name: str
    pack: PackFunction
    summary: str
    source: str
    idempotent: bool = False
    packs_by_capacity: bool = True
    presets: Mapping[str, PackFunction] = field(default_factory=dict[str, PackFunction])
    make_tuned: Callable[[float], PackFunction] | None = None
    balance_load: PackFunction | None = None
    settings: Mapping[str, float] = field(default_factory=dict[str, float])
    make_variant: "Callable[[str, Mapping[str, float]], Heuristic] | None" = None
    weighs_racks: bool = False
    dependency: HeuristicDependency | None = None


def run_heuristic(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Apply a heuristic. Raises BrokenHeuristicError if it fails or its bins make no sense."""
    try:
        bins = np.asarray(entry.pack(problem), dtype=np.int32)
    except TrimtabError:
        raise
    except Exception as error:  # whatever a third party's code may raise
        raise BrokenHeuristicError(
            f"heuristic {entry.name!r} ({entry.source}) failed: {error!r}; choose another one"
        ) from error
    fault = _find_fault(bins, problem)
    if fault:
        raise BrokenHeuristicError(
            f"heuristic {entry.name!r} ({entry.source}) {fault}; choose another one"
        )
    return bins


def _find_fault(bins: IntArray, problem: PackingProblem) -> str:
    """Say what is wrong with an answer; "" if nothing is."""
    items, members = len(problem.weight), len(problem.capacity)
    if bins.shape != (items,):
        return f"gave {bins.shape} bins for {items} partitions"
    if not items:
        return ""
    low, high = (
        (UNASSIGNED, members) if problem.new_member_capacity is None else (0, members + items)
    )
    if bins.min() < low or bins.max() >= high:
        return f"gave a bin outside {low}..{high - 1}"
    member = (bins != UNASSIGNED) & (bins < members)
    if not problem.subscribed[problem.topic[member], bins[member]].all():
        return "gave a partition to a member that does not subscribe to it"
    return ""
