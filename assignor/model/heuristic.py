"""`Heuristic`: a named function from a `PackingProblem` to bins."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray, PackingProblem
from trimtab.common.errors import BrokenHeuristicError, TrimtabError
from trimtab.common.units import format_count

# Returns the bin of each partition, shape (P,). Bins 0..M-1 are the members. In open mode
# (`problem.new_member_capacity` is set) bins from M on are members to be added, which subscribe to
# every topic; use the lowest numbers first. In closed mode a partition that fits nowhere gets
# UNASSIGNED. Do not write to the problem's arrays: the next heuristic may get them.
PackFunction: TypeAlias = Callable[[PackingProblem], IntArray]


@dataclass(frozen=True, slots=True)
class HeuristicDependency:
    """An optional package, and the extra that installs it."""

    package: str
    extra: str

    def explain_missing(self, name: str) -> str:
        """Return the error text of the heuristic `name` without the package."""
        return (
            f"heuristic {name!r} needs {self.package}, which is not installed; "
            f"pip install 'trimtab[{self.extra}]', or choose another one"
        )


@dataclass(frozen=True, slots=True)
class Heuristic:
    """A heuristic and its properties."""

    name: str
    pack: PackFunction
    summary: str
    source: str
    idempotent: bool = False  # applied to its own output it moves nothing
    packs_by_capacity: bool = True  # it decides the number of consumers; others only place
    presets: Mapping[str, PackFunction] = field(default_factory=dict[str, PackFunction])  # "name:preset"
    make_tuned: Callable[[float], PackFunction] | None = None  # builds the variant "name:0.7"
    # Spreads a closed problem over all members; None: pack at the least capacity that holds it all.
    balance_load: PackFunction | None = None
    settings: Mapping[str, float] = field(default_factory=dict[str, float])  # with their defaults
    # Builds a variant of a preset, a number or "", and settings.
    make_variant: "Callable[[str, Mapping[str, float]], Heuristic] | None" = None
    weighs_racks: bool = False  # it needs `PackingProblem.racks`
    places_by_lag: bool = False  # it needs `PackingProblem.lag`, and no write rates
    dependency: HeuristicDependency | None = None


def run_heuristic(entry: Heuristic, problem: PackingProblem) -> IntArray:
    """Return a heuristic's bins (P,). Raises BrokenHeuristicError on failure or invalid bins."""
    try:
        bins = np.asarray(entry.pack(problem), dtype=np.int32)
    except TrimtabError:
        raise
    except Exception as error:  # a third party's code may raise anything
        raise BrokenHeuristicError(
            f"heuristic {entry.name!r} ({entry.source}) failed: {error!r}; choose another one"
        ) from error
    fault = _find_fault(bins, problem)
    if fault:
        raise BrokenHeuristicError(f"heuristic {entry.name!r} ({entry.source}) {fault}; choose another one")
    return bins


def _find_fault(bins: IntArray, problem: PackingProblem) -> str:
    items, members = len(problem.weight), len(problem.capacity)
    if bins.shape != (items,):
        return f"gave {bins.shape} bins for {format_count(items, 'partition')}"
    if not items:
        return ""
    low, high = (UNASSIGNED, members) if problem.new_member_capacity is None else (0, members + items)
    if bins.min() < low or bins.max() >= high:
        return f"gave a bin outside {low}..{high - 1}"
    member = (bins != UNASSIGNED) & (bins < members)
    if not problem.subscribed[problem.topic[member], bins[member]].all():
        return "gave a partition to a member that does not subscribe to it"
    return ""
