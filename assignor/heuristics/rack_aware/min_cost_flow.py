"""Minimum-cost flow by OR-tools (extra `racks`), and the assignment it gives."""

from typing import Any, Final

import numpy as np
from ortools.graph.python.min_cost_flow import SimpleMinCostFlow

from trimtab.assignor.heuristics.rack_aware.costs import RackCosts, price_partitions
from trimtab.assignor.heuristics.rack_aware.flow_network import FlowNetwork, build_network
from trimtab.assignor.model import UNASSIGNED, FloatArray, IntArray, LongArray, PackingProblem
from trimtab.common.errors import BrokenHeuristicError
from trimtab.common.units import format_count

MAX_COST_STEPS: Final = 2.0**40  # of the highest partition cost: the solver is exact on integers
MAX_SOLVER_COST: Final = 2.0**60  # limit of cost times nodes: the solver multiplies them in 64 bits


def find_cheapest_assignment(problem: PackingProblem, costs: RackCosts, *, per_topic: bool) -> IntArray:
    """Return the member of each partition (P,) of a closed problem, UNASSIGNED without a reader.

    Counts are as even as possible, with `per_topic` those of each topic first, at the least cost.
    Raises BrokenHeuristicError if the solver fails.
    """
    net = build_network(problem, price_partitions(problem, costs), per_topic=per_topic)
    placed = np.full(len(problem.weight), UNASSIGNED, dtype=np.int32)
    if len(net.layout.items):
        placed[net.layout.items] = _read_assignment(net, _solve_flows(net))
    return placed


def _solve_flows(net: FlowNetwork) -> LongArray:
    solver: Any = SimpleMinCostFlow()  # its stubs type arrays as scalars
    arcs = net.item_arcs.concat_arcs(net.hub_arcs, net.member_arcs)
    numbers = solver.add_arcs_with_capacity_and_unit_cost(
        arcs.tail, arcs.head, arcs.capacity, _scale_costs(arcs.cost, net)
    )
    solver.set_nodes_supplies(np.arange(len(net.supply)), net.supply)
    status = solver.solve()
    if status != solver.OPTIMAL:
        raise BrokenHeuristicError(
            f"heuristic 'rack-aware' (KIP-925): the solver ends with {status.name} for "
            f"{format_count(len(net.layout.items), 'partition')}; choose another heuristic"
        )
    flows: LongArray = solver.flows(numbers)
    return flows


def _scale_costs(cost: FloatArray, net: FlowNetwork) -> LongArray:
    partition = float(net.item_arcs.cost.max(initial=0.0)) or 1.0
    anything = float(cost.max(initial=0.0)) or 1.0
    steps = min(MAX_COST_STEPS / partition, MAX_SOLVER_COST / (len(net.supply) + 1) / anything)
    counted: LongArray = np.rint(cost * steps).astype(np.int64)
    return counted


def _read_assignment(net: FlowNetwork, flows: LongArray) -> IntArray:
    """Return the member of each item (I,)."""
    members = net.layout.members_by_seat()
    split = len(net.item_arcs.tail)
    taken = flows[:split] > 0
    given = flows[split : split + len(net.hub_arcs.tail)]
    goes = np.empty(len(net.layout.items), dtype=np.int64)
    goes[net.item_arcs.tail[taken]] = net.item_arcs.head[taken]
    reader = members[goes]
    places = np.lexsort((net.hub_arcs.head, net.hub_arcs.tail))
    # Items of one hub are alike to the flow, so its seats take them in order.
    waiting = np.flatnonzero(reader == UNASSIGNED)
    waiting = waiting[np.argsort(goes[waiting], kind="stable")]
    reader[waiting] = np.repeat(members[net.hub_arcs.head[places]], given[places])
    return reader
