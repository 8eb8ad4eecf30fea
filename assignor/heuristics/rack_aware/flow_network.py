"""Flow network whose cheapest flow is the cheapest assignment (KIP-925).

    item ──► hub ──► seat ──► member ──► end

1. A partition costs the same with all members of a rack. So it has an arc to the hub of each rack
   with a replica, one to the hub "anywhere" at the cross-rack cost, and one to its owner without a
   move cost. KIP-925 has an arc from every partition to every member; this network is smaller.
2. A member's seat is its own node, or one node per topic if the topic's counts are to be even.
3. Members and topic seats hold between their limits. Minimum counts are taken off the demands, so
   that every arc's lower bound is 0.
4. If a member's limits allow several counts, each further partition costs more than all traffic and
   moves that it could save: even counts come first.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trimtab.assignor.heuristics.rack_aware.balance import (
    CountLimits,
    compute_member_limits,
    compute_topic_limits,
)
from trimtab.assignor.heuristics.rack_aware.costs import PartitionCosts
from trimtab.assignor.heuristics.rack_aware.layout import FlowLayout, build_layout
from trimtab.assignor.model import UNASSIGNED, FloatArray, LongArray, PackingProblem


class Arcs(NamedTuple):
    """A arcs from node `tail` to node `head` with a capacity and a cost per unit."""

    tail: LongArray  # (A,)
    head: LongArray  # (A,)
    capacity: LongArray  # (A,)
    cost: FloatArray  # (A,)

    @classmethod
    def from_columns(
        cls, tail: LongArray, head: LongArray, capacity: LongArray | int = 1, cost: FloatArray | float = 0.0
    ) -> "Arcs":
        """Build arcs; a number as capacity or cost applies to all."""
        capacities = np.full(len(tail), capacity, dtype=np.int64)
        return cls(tail, head, capacities, np.full(len(tail), cost, dtype=np.float64))

    def concat_arcs(self, *others: "Arcs") -> "Arcs":
        """Return these arcs followed by the others."""
        return Arcs(*(np.concatenate(column) for column in zip(self, *others, strict=True)))


@dataclass(frozen=True, slots=True)
class FlowNetwork:
    """A minimum-cost flow problem of N nodes."""

    layout: FlowLayout
    item_arcs: Arcs  # from items to hubs and seats
    hub_arcs: Arcs  # from hubs to seats
    member_arcs: Arcs  # from seats to members, from members to the end
    supply: LongArray  # (N,) units each node supplies; a demand is negative


def build_network(problem: PackingProblem, costs: PartitionCosts, *, per_topic: bool) -> FlowNetwork:
    """Build the network of a closed problem; with `per_topic` each topic's counts are even."""
    nodes = build_layout(problem, costs.racks.remote.shape[1], per_topic=per_topic)
    topics = compute_topic_limits(problem)
    seats = CountLimits(topics.least[nodes.balanced_topics], topics.most[nodes.balanced_topics])
    members = compute_member_limits(problem, per_topic=per_topic)
    return FlowNetwork(
        layout=nodes,
        item_arcs=_arcs_from_items(problem, costs, nodes),
        hub_arcs=_arcs_from_hubs(costs, nodes),
        member_arcs=_arcs_to_members(nodes, seats).concat_arcs(_arcs_to_end(nodes, members, costs)),
        supply=_supply(nodes, seats, members),
    )


def _arcs_from_items(problem: PackingProblem, costs: PartitionCosts, nodes: FlowLayout) -> Arcs:
    """Return the arcs to "anywhere", to near racks, and to the owners (rule 1)."""
    cross_rack, move = costs.cross_rack[nodes.items], costs.move[nodes.items]
    hub = nodes.hub_node(nodes.kind, nodes.rack_count)
    anywhere = Arcs.from_columns(np.arange(len(hub)), hub, cost=cross_rack + move)
    # A partition that is near everywhere needs no arc but "anywhere".
    item, rack = np.nonzero(~costs.racks.remote[nodes.items] & (cross_rack > 0)[:, None])
    near = Arcs.from_columns(item, nodes.hub_node(nodes.kind[item], rack), cost=move[item])
    owner = problem.owner[nodes.items]
    read = np.flatnonzero((owner != UNASSIGNED) & nodes.readers[nodes.kind, owner])
    crosses = costs.racks.find_cross_rack(problem.owner)[nodes.items]
    seat = nodes.seat[nodes.kind[read], owner[read]]
    stay = np.where(crosses, cross_rack, 0.0)[read]
    home = Arcs.from_columns(read, seat, cost=stay)
    return anywhere.concat_arcs(near, home)


def _arcs_from_hubs(costs: PartitionCosts, nodes: FlowLayout) -> Arcs:
    kind, member = np.nonzero(nodes.readers)
    seat = nodes.seat[kind, member]
    everything = len(nodes.items)
    near = Arcs.from_columns(nodes.hub_node(kind, costs.racks.member_rack[member]), seat, everything)
    return near.concat_arcs(Arcs.from_columns(nodes.hub_node(kind, nodes.rack_count), seat, everything))


def _arcs_to_members(nodes: FlowLayout, seats: CountLimits) -> Arcs:
    member = nodes.first_member + np.arange(nodes.topic_seats.shape[1])
    member = np.broadcast_to(member, nodes.topic_seats.shape)
    return Arcs.from_columns(nodes.topic_seats.ravel(), member.ravel(), (seats.most - seats.least).ravel())


def _arcs_to_end(nodes: FlowLayout, members: CountLimits, costs: PartitionCosts) -> Arcs:
    """Return an arc for each partition a member may hold beyond its minimum (rule 4)."""
    more = members.most - members.least
    member = np.repeat(np.arange(len(more)), more)
    rank = np.arange(len(member)) - np.repeat(np.cumsum(more) - more, more)
    rank += members.least[member]
    highest = float((costs.cross_rack + costs.move).max(initial=0.0)) or 1.0
    # More than a swap along a chain of seats can save: the chain passes each seat once.
    step = (min(len(nodes.items), nodes.first_hub - nodes.first_member) + 1) * highest
    cost = step * (rank - rank.min(initial=0))
    return Arcs.from_columns(nodes.first_member + member, np.full(len(member), nodes.end_node), cost=cost)


def _supply(nodes: FlowLayout, seats: CountLimits, members: CountLimits) -> LongArray:
    """Return the supply of each node (N,), with minimum counts taken off (rule 3)."""
    supply = np.zeros(nodes.end_node + 1, dtype=np.int64)
    supply[: len(nodes.items)] = 1
    supply[nodes.topic_seats] = -seats.least
    first, last = nodes.first_member, nodes.first_member + len(members.least)
    supply[first:last] = seats.least.sum(axis=0) - members.least
    supply[nodes.end_node] = -supply.sum()
    return supply
