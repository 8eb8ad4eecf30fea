"""The cheapest flow, by OR-tools (extra `racks`), and who reads what by it.

The solver is exact on integers, so costs are counted in steps of at most 2⁻⁴⁰ of the dearest
partition's; where evenness has its price too, in as fine ones as fit into 64 bits.
"""

from typing import Any, Final

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from trimtab.assignor.heuristics.rack_aware.costs import Costs, priced
from trimtab.assignor.heuristics.rack_aware.flow_network import Network, network
from trimtab.assignor.heuristics.rack_aware.layout import Long
from trimtab.assignor.model import NOBODY, FloatArray, IntArray, Problem
from trimtab.common.errors import BrokenHeuristic

FINEST: Final = 2.0**40
LARGEST: Final = 2.0**60
"""The solver multiplies costs by the number of nodes."""


def cheapest(problem: Problem, costs: Costs, *, per_topic: bool) -> IntArray:
    """Return the member of each partition (P,) of a closed problem, NOBODY where none reads it.

    Counts are as even as can be, those of each topic first if `per_topic`; of all such assignments
    it is one that costs least. Raises BrokenHeuristic if the solver gives up.
    """
    net = network(problem, priced(problem, costs), per_topic=per_topic)
    placed = np.full(len(problem.weight), NOBODY, dtype=np.int32)
    if len(net.layout.items):
        placed[net.layout.items] = _read(net, _flows(net))
    return placed


def _flows(net: Network) -> Long:
    """Return the flow on every arc (A,)."""
    solver: Any = SimpleMinCostFlow()  # its arrays are typed by their elements, wrongly
    arcs = net.items.and_(net.hubs, net.rest)
    numbers = solver.add_arcs_with_capacity_and_unit_cost(
        arcs.tail, arcs.head, arcs.capacity, _counted(arcs.cost, net)
    )
    solver.set_nodes_supplies(np.arange(len(net.supply)), net.supply)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise BrokenHeuristic(
            f"heuristic 'rack-aware' (KIP-925): the solver ends with {status.name} for "
            f"{len(net.layout.items)} partitions; choose another heuristic"
        )
    flows: Long = solver.flows(numbers)
    return flows


def _counted(cost: FloatArray, net: Network) -> Long:
    """Return costs in whole steps."""
    partition = float(net.items.cost.max(initial=0.0)) or 1.0
    anything = float(cost.max(initial=0.0)) or 1.0
    steps = min(FINEST / partition, LARGEST / (len(net.supply) + 1) / anything)
    counted: Long = np.rint(cost * steps).astype(np.int64)
    return counted


def _read(net: Network, flows: Long) -> IntArray:
    """Return who reads each item (I,).

    What is in one hub is handed to its seats by number; to the flow it is all one.
    """
    sitter = net.layout.sitters()
    taken = flows[: len(net.items.tail)] > 0
    goes = np.empty(len(net.layout.items), dtype=np.int64)
    goes[net.items.tail[taken]] = net.items.head[taken]
    reader = sitter[goes]
    given = flows[len(net.items.tail) : len(net.items.tail) + len(net.hubs.tail)]
    places = np.lexsort((net.hubs.head, net.hubs.tail))
    waiting = np.flatnonzero(reader == NOBODY)
    waiting = waiting[np.argsort(goes[waiting], kind="stable")]
    reader[waiting] = np.repeat(sitter[net.hubs.head[places]], given[places])
    return reader
