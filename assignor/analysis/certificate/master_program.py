"""The linear program over sets of partitions, and the integer program over the same: HiGHS.

A column is a kind of consumer with a set of partitions. Every partition is in at least one chosen
column (a smaller set costs no more, so this is as good as exactly one), a kind is used as often as
it may, and all together at most `max_consumers` times. Needs the extra `certify`; one thread.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from highspy import Highs, HighsModelStatus, HighsVarType, kHighsInf

from trimtab.assignor.analysis.certificate.consumer_kinds import ConsumerKinds
from trimtab.assignor.model import FloatArray, IntArray

REDUCED_COST_TOLERANCE: Final = 1e-8
"""Reduced cost above which a column is not worth adding."""

CHOSEN_COLUMN_THRESHOLD: Final = 0.5

SOLVER_OPTIONS: Final = (
    ("output_flag", False),
    ("threads", 1),
    ("simplex_strategy", 4),  # primal: columns are added to an optimum
    ("presolve", "off"),  # the basis of the round before is worth more
    ("mip_rel_gap", 1e-5),
)


@dataclass(frozen=True, slots=True)
class MasterPrices:
    """`per_consumer` for each one used; at most `max_consumers` of them. Moves are priced in `ConsumerKinds.move_cost`."""

    per_consumer: float
    max_consumers: int


class PackingColumn(NamedTuple):
    """A set of partitions for a kind."""

    kind: int
    items: IntArray


@dataclass(frozen=True, slots=True)
class DualPrices:
    """The linear program's optimum over the columns known, and what its rows are worth there."""

    objective: float
    worth: FloatArray  # (P,) of covering a partition, >= 0
    kind_price: FloatArray  # (K,) of using a kind, >= 0
    consumer_count_price: float  # of one consumer more, >= 0


class MasterProgram:
    """The program, growing by columns; at first nothing but stand-ins that cost more than all."""

    def __init__(self, kinds: ConsumerKinds, prices: MasterPrices) -> None:
        self._kinds, self._prices = kinds, prices
        self._known_columns: set[tuple[int, bytes]] = set()
        self._columns: list[PackingColumn] = []
        self._partitions = len(kinds.weight)
        self._highs = _create_solver()
        self._add_rows()
        self._add_artificial_columns()

    def add_columns(self, columns: Iterable[PackingColumn]) -> int:
        """Add columns that are new; return how many were."""
        fresh = [c for c in columns if len(c.items) and self._register_column(c)]
        if fresh:
            last = self._partitions + len(self._kinds.max_uses)
            entries = [
                np.append(c.items, (self._partitions + c.kind, last)).astype(np.int32)
                for c in fresh
            ]
            self._append_columns([self.column_cost(c) for c in fresh], entries)
            self._columns += fresh
        return len(fresh)

    def column_cost(self, column: PackingColumn) -> float:
        """Return the cost of a column."""
        moves = self._kinds.move_cost[column.kind, column.items].sum()
        return self._prices.per_consumer + float(moves)

    def would_improve(self, column: PackingColumn, duals: DualPrices) -> bool:
        """Tell whether adding the column would lower the linear program's value."""
        paid = float(duals.worth[column.items].sum())
        use = float(duals.kind_price[column.kind])
        return (
            self.column_cost(column) + use + duals.consumer_count_price - paid
            < -REDUCED_COST_TOLERANCE
        )

    def solve_relaxation(self, seconds: float) -> DualPrices | None:
        """Solve the linear program; None if time ran out."""
        if not self._run_solver(seconds):
            return None
        row = np.array(self._highs.getSolution().row_dual)
        partitions = self._partitions
        return DualPrices(
            objective=self._highs.getInfo().objective_function_value,
            worth=np.maximum(row[:partitions], 0.0),
            kind_price=np.maximum(-row[partitions:-1], 0.0),
            consumer_count_price=max(-float(row[-1]), 0.0),
        )

    def solve_integer(self, seconds: float) -> float:
        """Solve over whole columns that truly fit; the least cost found, inf if none is.

        It ends the program: no column can be added afterwards. The cost is that of the packing read
        from the solution, not what the solver says, which is right up to its tolerances only.
        """
        self._forbid_columns(
            [n for n, c in enumerate(self._columns) if not self._kinds.can_hold(*c)]
        )
        count = self._partitions + len(self._columns)
        whole = np.full(count, HighsVarType.kInteger)
        self._highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), whole)
        self._highs.setOptionValue("presolve", "choose")
        self._run_solver(seconds)
        used = np.array(self._highs.getSolution().col_value[self._partitions :])
        return self._packing_cost(
            [self._columns[n] for n in np.flatnonzero(used > CHOSEN_COLUMN_THRESHOLD)]
        )

    def _forbid_columns(self, columns: list[int]) -> None:
        """Forbid the stand-ins and these columns."""
        barred = [*range(self._partitions), *(self._partitions + n for n in columns)]
        zeros = np.zeros(len(barred))
        self._highs.changeColsBounds(len(barred), np.array(barred, dtype=np.int32), zeros, zeros)

    def _packing_cost(self, chosen: Sequence[PackingColumn]) -> float:
        """Return the cost of a packing where each partition goes to the cheapest column with it.

        It is inf where these columns are no packing: time may have run out with a part of one.
        """
        uses = np.bincount([c.kind for c in chosen], minlength=len(self._kinds.max_uses))
        if len(chosen) > self._prices.max_consumers or (uses > self._kinds.max_uses).any():
            return math.inf
        least = np.full(self._partitions, math.inf)
        for kind, items in chosen:
            least[items] = np.minimum(least[items], self._kinds.move_cost[kind, items])
        return self._prices.per_consumer * len(chosen) + float(least.sum())

    def _register_column(self, column: PackingColumn) -> bool:
        key = (column.kind, column.items.tobytes())
        new = key not in self._known_columns
        self._known_columns.add(key)
        return new

    def _add_rows(self) -> None:
        partitions, times = self._partitions, self._kinds.max_uses
        limits = [*np.where(np.isinf(times), kHighsInf, times), float(self._prices.max_consumers)]
        rows = partitions + len(limits)
        lower = np.append(np.ones(partitions), np.full(len(limits), -kHighsInf))
        upper = np.append(np.full(partitions, kHighsInf), limits)
        none = np.array([], dtype=np.int32)
        starts = np.zeros(rows, dtype=np.int32)
        self._highs.addRows(rows, lower, upper, 0, starts, none, np.array([]))

    def _add_artificial_columns(self) -> None:
        """Let every partition be covered by nothing, at a cost above that of any packing."""
        partitions = self._partitions
        dear = (
            1.0 + partitions * self._prices.per_consumer + self._kinds.move_cost.max(axis=0).sum()
        )
        self._append_columns(
            [dear] * partitions, [np.array([p], dtype=np.int32) for p in range(partitions)]
        )

    def _append_columns(self, costs: list[float], entries: list[IntArray]) -> None:
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

    def _run_solver(self, seconds: float) -> bool:
        self._highs.setOptionValue("time_limit", max(0.0, seconds))
        self._highs.run()
        return bool(self._highs.getModelStatus() == HighsModelStatus.kOptimal)


def _create_solver() -> Highs:
    highs = Highs()
    for name, value in SOLVER_OPTIONS:
        highs.setOptionValue(name, value)
    return highs
