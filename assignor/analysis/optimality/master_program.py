"""The linear and the integer program over sets of partitions, by HiGHS (extra `certify`).

A column is a kind of consumer with a set of partitions. Every partition is in at least one chosen
column, a kind is used at most `max_uses` times, and all kinds together at most `max_consumers`
times. "At least one" is as good as "exactly one", since a smaller set costs no more.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
from highspy import Highs, HighsModelStatus, HighsVarType, kHighsInf

from trimtab.assignor.analysis.optimality.consumer_kinds import ConsumerKinds
from trimtab.assignor.model import FloatArray, IntArray

REDUCED_COST_TOLERANCE: Final = 1e-8  # a smaller gain may be a rounding error

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
    """Cost of each used consumer, and their maximum; moves are in `ConsumerKinds.move_cost`."""

    per_consumer: float
    max_consumers: int


class PackingColumn(NamedTuple):
    """A kind of consumer with a set of partitions."""

    kind: int
    items: IntArray


@dataclass(frozen=True, slots=True)
class DualPrices:
    """Optimum of the linear program over the known columns, and the dual values of its rows."""

    objective: float
    worth: FloatArray  # (P,) of covering a partition, >= 0
    kind_price: FloatArray  # (K,) of using a kind, >= 0
    consumer_count_price: float  # of one consumer more, >= 0


class MasterProgram:
    """The program; it starts with artificial columns that cost more than any packing."""

    def __init__(self, kinds: ConsumerKinds, prices: MasterPrices) -> None:
        self._kinds = kinds
        self._prices = prices
        self._known_columns: set[tuple[int, bytes]] = set()
        self._columns: list[PackingColumn] = []
        self._partitions = len(kinds.weight)
        self._highs = _create_solver()
        self._add_rows()
        self._add_artificial_columns()

    def add_columns(self, columns: Iterable[PackingColumn]) -> int:
        """Add the new ones of these columns; return their number."""
        fresh = [c for c in columns if len(c.items) and self._register(c)]
        if fresh:
            last = self._partitions + len(self._kinds.max_uses)
            entries = [np.append(c.items, (self._partitions + c.kind, last)).astype(np.int32) for c in fresh]
            self._append_columns([self.column_cost(c) for c in fresh], entries)
            self._columns += fresh
        return len(fresh)

    def column_cost(self, column: PackingColumn) -> float:
        """Return the cost of a column in consumers."""
        moves = self._kinds.move_cost[column.kind, column.items].sum()
        return self._prices.per_consumer + float(moves)

    def would_improve(self, column: PackingColumn, duals: DualPrices) -> bool:
        """Return whether adding the column lowers the linear program's value."""
        paid = float(duals.worth[column.items].sum())
        use = float(duals.kind_price[column.kind])
        return self.column_cost(column) + use + duals.consumer_count_price - paid < -REDUCED_COST_TOLERANCE

    def solve_relaxation(self, seconds: float) -> DualPrices | None:
        """Solve the linear program; return None on timeout."""
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
        """Solve over whole columns that fit; return the least cost found, or inf.

        No column can be added afterwards.
        """
        self._forbid_columns([n for n, c in enumerate(self._columns) if not self._kinds.can_hold(*c)])
        count = self._partitions + len(self._columns)
        whole = np.full(count, HighsVarType.kInteger)
        self._highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), whole)
        self._highs.setOptionValue("presolve", "choose")
        self._run_solver(seconds)
        # The solver's own objective is right up to its tolerances only.
        used = np.array(self._highs.getSolution().col_value[self._partitions :])
        return self._packing_cost([self._columns[n] for n in np.flatnonzero(used > CHOSEN_COLUMN_THRESHOLD)])

    def _forbid_columns(self, columns: list[int]) -> None:
        # The artificial columns, too: they cover any partition at a price that is no packing's.
        forbidden = [*range(self._partitions), *(self._partitions + n for n in columns)]
        zeros = np.zeros(len(forbidden))
        self._highs.changeColsBounds(len(forbidden), np.array(forbidden, dtype=np.int32), zeros, zeros)

    def _packing_cost(self, chosen: Sequence[PackingColumn]) -> float:
        """Return the cost of these columns, each partition in the cheapest; inf if they are no packing."""
        uses = np.bincount([c.kind for c in chosen], minlength=len(self._kinds.max_uses))
        if len(chosen) > self._prices.max_consumers or (uses > self._kinds.max_uses).any():
            return math.inf  # as after a timeout
        least = np.full(self._partitions, math.inf)
        for kind, items in chosen:
            least[items] = np.minimum(least[items], self._kinds.move_cost[kind, items])
        return self._prices.per_consumer * len(chosen) + float(least.sum())

    def _register(self, column: PackingColumn) -> bool:
        key = (column.kind, column.items.tobytes())
        new = key not in self._known_columns
        self._known_columns.add(key)
        return new

    def _add_rows(self) -> None:
        partitions = self._partitions
        times = self._kinds.max_uses
        limits = [*np.where(np.isinf(times), kHighsInf, times), float(self._prices.max_consumers)]
        rows = partitions + len(limits)
        lower = np.append(np.ones(partitions), np.full(len(limits), -kHighsInf))
        upper = np.append(np.full(partitions, kHighsInf), limits)
        starts = np.zeros(rows, dtype=np.int32)
        none = np.array([], dtype=np.int32)
        self._highs.addRows(rows, lower, upper, 0, starts, none, np.array([]))

    def _add_artificial_columns(self) -> None:
        """Add a column for each partition alone, at a cost above that of any packing."""
        partitions = self._partitions
        cost = 1.0 + partitions * self._prices.per_consumer + self._kinds.move_cost.max(axis=0).sum()
        self._append_columns([cost] * partitions, [np.array([p], dtype=np.int32) for p in range(partitions)])

    def _append_columns(self, costs: list[float], entries: list[IntArray]) -> None:
        starts = np.cumsum([0, *(len(e) for e in entries[:-1])]).astype(np.int32)
        index = np.concatenate(entries)
        count = len(costs)
        zero = np.zeros(count)
        free = np.full(count, kHighsInf)
        ones = np.ones(len(index))
        self._highs.addCols(count, np.array(costs), zero, free, len(index), starts, index, ones)

    def _run_solver(self, seconds: float) -> bool:
        self._highs.setOptionValue("time_limit", max(0.0, seconds))
        self._highs.run()
        return bool(self._highs.getModelStatus() == HighsModelStatus.kOptimal)


def _create_solver() -> Highs:
    highs = Highs()
    for name, value in SOLVER_OPTIONS:
        highs.setOptionValue(name, value)
    return highs
