"""The linear program over sets of partitions, and the integer program over the same: HiGHS.

A column is a kind of consumer with a set of partitions. Every partition is in at least one chosen
column (a smaller set costs no more, so this is as good as exactly one), a kind is used as often as
it may, and all together at most `most` times. Needs the extra `certify`; one thread.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from highspy import Highs, HighsModelStatus, HighsVarType, kHighsInf

from trimtab.assignor.analysis.certificate.consumer_kinds import Kinds
from trimtab.assignor.model import FloatArray, IntArray

REDUCED: Final = 1e-8
"""Reduced cost above which a column is not worth adding."""

HALF: Final = 0.5

OPTIONS: Final = (
    ("output_flag", False),
    ("threads", 1),
    ("simplex_strategy", 4),  # primal: columns are added to an optimum
    ("presolve", "off"),  # the basis of the round before is worth more
    ("mip_rel_gap", 1e-5),
)


@dataclass(frozen=True, slots=True)
class Prices:
    """`consumer` for each one used; at most `most` of them. Moves are priced in `Kinds.move`."""

    consumer: float
    most: int


class Column(NamedTuple):
    """A set of partitions for a kind."""

    kind: int
    items: IntArray


@dataclass(frozen=True, slots=True)
class Duals:
    """The linear program's optimum over the columns known, and what its rows are worth there."""

    value: float
    worth: FloatArray  # (P,) of covering a partition, >= 0
    use: FloatArray  # (K,) of using a kind, >= 0
    count: float  # of one consumer more, >= 0


class Master:
    """The program, growing by columns; at first nothing but stand-ins that cost more than all."""

    def __init__(self, kinds: Kinds, prices: Prices) -> None:
        self._kinds, self._prices = kinds, prices
        self._known: set[tuple[int, bytes]] = set()
        self._columns: list[Column] = []
        self._partitions = len(kinds.weight)
        self._highs = _quiet()
        self._add_rows()
        self._add_stand_ins()

    def add(self, columns: Iterable[Column]) -> int:
        """Add columns that are new; return how many were."""
        fresh = [c for c in columns if len(c.items) and self._is_new(c)]
        if fresh:
            last = self._partitions + len(self._kinds.times)
            entries = [
                np.append(c.items, (self._partitions + c.kind, last)).astype(np.int32)
                for c in fresh
            ]
            self._add([self.cost(c) for c in fresh], entries)
            self._columns += fresh
        return len(fresh)

    def cost(self, column: Column) -> float:
        """Return the cost of a column."""
        moves = self._kinds.move[column.kind, column.items].sum()
        return self._prices.consumer + float(moves)

    def lacks(self, column: Column, duals: Duals) -> bool:
        """Tell whether adding the column would lower the linear program's value."""
        paid = float(duals.worth[column.items].sum())
        use = float(duals.use[column.kind])
        return self.cost(column) + use + duals.count - paid < -REDUCED

    def solve(self, seconds: float) -> Duals | None:
        """Solve the linear program; None if time ran out."""
        if not self._run(seconds):
            return None
        row = np.array(self._highs.getSolution().row_dual)
        partitions = self._partitions
        return Duals(
            value=self._highs.getInfo().objective_function_value,
            worth=np.maximum(row[:partitions], 0.0),
            use=np.maximum(-row[partitions:-1], 0.0),
            count=max(-float(row[-1]), 0.0),
        )

    def solve_whole(self, seconds: float) -> float:
        """Solve over whole columns that truly fit; the least cost found, inf if none is.

        It ends the program: no column can be added afterwards. The cost is that of the packing read
        from the solution, not what the solver says, which is right up to its tolerances only.
        """
        self._bar([n for n, c in enumerate(self._columns) if not self._kinds.hold(*c)])
        count = self._partitions + len(self._columns)
        whole = np.full(count, HighsVarType.kInteger)
        self._highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), whole)
        self._highs.setOptionValue("presolve", "choose")
        self._run(seconds)
        used = np.array(self._highs.getSolution().col_value[self._partitions :])
        return self._packed([self._columns[n] for n in np.flatnonzero(used > HALF)])

    def _bar(self, columns: list[int]) -> None:
        """Forbid the stand-ins and these columns."""
        barred = [*range(self._partitions), *(self._partitions + n for n in columns)]
        zeros = np.zeros(len(barred))
        self._highs.changeColsBounds(len(barred), np.array(barred, dtype=np.int32), zeros, zeros)

    def _packed(self, chosen: Sequence[Column]) -> float:
        """Return the cost of a packing where each partition goes to the cheapest column with it.

        It is inf where these columns are no packing: time may have run out with a part of one.
        """
        uses = np.bincount([c.kind for c in chosen], minlength=len(self._kinds.times))
        if len(chosen) > self._prices.most or (uses > self._kinds.times).any():
            return math.inf
        least = np.full(self._partitions, math.inf)
        for kind, items in chosen:
            least[items] = np.minimum(least[items], self._kinds.move[kind, items])
        return self._prices.consumer * len(chosen) + float(least.sum())

    def _is_new(self, column: Column) -> bool:
        key = (column.kind, column.items.tobytes())
        new = key not in self._known
        self._known.add(key)
        return new

    def _add_rows(self) -> None:
        partitions, times = self._partitions, self._kinds.times
        limits = [*np.where(np.isinf(times), kHighsInf, times), float(self._prices.most)]
        rows = partitions + len(limits)
        lower = np.append(np.ones(partitions), np.full(len(limits), -kHighsInf))
        upper = np.append(np.full(partitions, kHighsInf), limits)
        none = np.array([], dtype=np.int32)
        starts = np.zeros(rows, dtype=np.int32)
        self._highs.addRows(rows, lower, upper, 0, starts, none, np.array([]))

    def _add_stand_ins(self) -> None:
        """Let every partition be covered by nothing, at a cost above that of any packing."""
        partitions = self._partitions
        dear = 1.0 + partitions * self._prices.consumer + self._kinds.move.max(axis=0).sum()
        self._add([dear] * partitions, [np.array([p], dtype=np.int32) for p in range(partitions)])

    def _add(self, costs: list[float], entries: list[IntArray]) -> None:
        starts = np.cumsum([0, *(len(e) for e in entries[:-1])]).astype(np.int32)
        index = np.concatenate(entries)
        count = len(costs)
        free = np.full(count, kHighsInf)
        self._highs.addCols(
            count,
            np.array(costs),
            np.zeros(count),
            free,
            len(index),
            starts,
            index,
            np.ones(len(index)),
        )

    def _run(self, seconds: float) -> bool:
        self._highs.setOptionValue("time_limit", max(0.0, seconds))
        self._highs.run()
        return bool(self._highs.getModelStatus() == HighsModelStatus.kOptimal)


def _quiet() -> Highs:
    highs = Highs()
    for name, value in OPTIONS:
        highs.setOptionValue(name, value)
    return highs
