"""Parameters of steady: move cost, foresight, rack cost, and search effort."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from trimtab.common.errors import UnknownHeuristicError


@dataclass(frozen=True, slots=True)
class SteadyParams:
    """Parameters of one decision."""

    # λ, the paper's trade-off, and κ are consumers to keep until the next decision to avoid moving
    # one consumer's worth of load, or reading it across racks.
    move_cost: float
    foresight: float  # β: weight of a byte expected to move at the next decision ÷ one moved now
    search_tries: int = 1000  # of the large neighbourhood search
    improved_candidates: int = 1  # best candidates to improve
    close_tries: int = 20  # consumers to try to empty
    rack_cost: float = 0.0  # κ
    # R that a decision may add to even the fills, in consumers filled to the headroom.
    spread_budget: float = 0.0


STEADY_PRESETS: Final[Mapping[str, SteadyParams]] = MappingProxyType(
    {
        "tight": SteadyParams(0.08, 0.3, search_tries=1500),
        "balanced": SteadyParams(0.5, 0.7),
        "calm": SteadyParams(1.25, 1.05),
        "lexicographic": SteadyParams(0.03, 0.0, search_tries=2000, improved_candidates=2, close_tries=60),
    }
)

DEFAULT_PRESET: Final = "balanced"


def params_for_move_cost(move_cost: float) -> SteadyParams:
    """Return the parameters for a move cost; foresight and tries are interpolated between presets.

    Raises UnknownHeuristicError for a cost that is not a finite number above 0.
    """
    if not (math.isfinite(move_cost) and move_cost > 0):
        raise UnknownHeuristicError(
            f"heuristic 'steady:{move_cost:g}': the number is the move cost, in consumers "
            "per consumer's worth of moved load; it must be finite and above 0"
        )
    # Lexicographic is no point of the curve: it has no foresight.
    known = [STEADY_PRESETS[name] for name in ("tight", "balanced", "calm")]
    costs = [math.log(k.move_cost) for k in known]
    foresight = np.interp(math.log(move_cost), costs, [k.foresight for k in known])
    tries = np.interp(math.log(move_cost), costs, [k.search_tries for k in known])
    return SteadyParams(move_cost, float(foresight), int(tries))


def resolve_params(preset: str) -> SteadyParams:
    """Return the parameters of "", a preset, or a move cost as text."""
    return STEADY_PRESETS.get(preset or DEFAULT_PRESET) or params_for_move_cost(float(preset))
