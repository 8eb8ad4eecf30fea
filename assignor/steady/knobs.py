"""What steady can be told: how dear a move is, and how much foresight is worth."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True)
class Knobs:
    """Settings of one decision.

    `move_cost` is the paper's trade-off λ: how many consumers one would keep until the next
    decision to avoid moving one consumer's worth of load. `foresight` (β) is what a byte that is
    expected to be moved at the next decision counts, compared with one that is moved now.
    """

    move_cost: float
    foresight: float
    tries: int = 1000  # of the large neighbourhood search
    starts: int = 1  # candidates that are improved
    closings: int = 20  # consumers that are tried to be emptied


PRESETS: Final[Mapping[str, Knobs]] = MappingProxyType(
    {
        "tight": Knobs(0.08, 0.3),
        "balanced": Knobs(0.5, 0.7),
        "calm": Knobs(1.3, 1.1),
        "lexicographic": Knobs(0.03, 0.0, tries=2000, starts=2, closings=60),
    }
)

DEFAULT: Final = "balanced"
