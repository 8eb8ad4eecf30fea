"""How much write speeds change from one measurement to the next: what the next tick may bring.

The variance of a partition's change is exponentially weighted, and half of it is pooled with the
others': one partition alone says little. Trends, levels and the variance of several ticks were
tried, too, and won nothing that lasts (`benchmarks/bench_lookahead.py`), so no change is expected,
only its size.
"""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from trimtab.assignor.model import BoolArray, FloatArray, Outlook

KEPT: Final = 0.9
"""Share of the variance that a new change leaves."""

POOLED: Final = 0.5
"""Share of the variance that is the mean of all partitions."""


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no one truth of equality
class Changes:
    """What was seen of P partitions so far; NaN where nothing was."""

    last: FloatArray  # (P,) bytes/s
    variance: FloatArray  # (P,) of the change between two measurements, (bytes/s)²

    @classmethod
    def none(cls, partitions: int) -> Self:
        """Return the memory of having seen nothing."""
        nothing = np.full(partitions, np.nan)
        return cls(nothing, nothing)

    def seen(self, speeds: FloatArray) -> "Changes":
        """Return the memory with one more measurement, shape (P,); NaN where it is away."""
        square = (speeds - self.last) ** 2
        known = square[~np.isnan(square)]
        before = np.where(
            np.isnan(self.variance), known.mean() if known.size else np.nan, self.variance
        )
        after = KEPT * before + (1 - KEPT) * square
        return Changes(
            last=np.where(np.isnan(speeds), self.last, speeds),
            variance=np.where(np.isnan(after), self.variance, after),
        )

    def outlook(self, speeds: FloatArray) -> Outlook:
        """Return what the next measurement may bring; `speeds` (P,) are the present ones."""
        known = self.variance[~np.isnan(self.variance)]
        if not known.size or not len(speeds):
            return unknown(speeds)
        pooled = float(known.mean())
        own = np.where(np.isnan(self.variance), pooled, self.variance)
        return Outlook(np.zeros_like(speeds), (1 - POOLED) * own + POOLED * pooled)


def unknown(speeds: FloatArray) -> Outlook:
    """Return the outlook of speeds (P,) that were never seen to change: that they stay."""
    return Outlook(np.zeros_like(speeds), np.zeros_like(speeds))


def taken(outlook: Outlook, which: BoolArray) -> Outlook:
    """Return the outlook of some of the partitions."""
    return Outlook(outlook.drift[which], outlook.variance[which])
