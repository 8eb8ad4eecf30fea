"""The network whose cheapest flow is the cheapest assignment (KIP-925), small enough to be fast.

    item ──► hub ──► seat ──► member ──► end

1. The proposal has an arc from every partition to every member. But a partition costs the same with
   all members of a rack, so here it has an arc to one hub of each rack near it, one to the hub
   "anywhere", at the price of being far, and one to its owner, with whom it does not move. What
   goes "anywhere" may arrive near; the same flow is there for less, so in the cheapest none does.
2. A member's seats are its own node, or, where a topic's counts are to be even, one for the topic.
3. Members and such seats hold between their limits. What is the least is taken off the demands, so
   that all arcs begin at none.
4. Where a member's limits leave several counts open, each partition more costs more than all the
   traffic and moves that it could save: evenness comes first.
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
from trimtab.assignor.heuristics.rack_aware.layout import FlowLayout, LongArray, build_layout
from trimtab.assignor.model import UNASSIGNED, FloatArray, PackingProblem


class Arcs(NamedTuple):
    """A arcs: from node `tail` to node `head`, so many units at so much each."""

    tail: LongArray  # (A,)
    head: LongArray  # (A,)
    capacity: LongArray  # (A,)
    cost: FloatArray  # (A,)

    @classmethod
    def from_columns(
        cls,
        tail: LongArray,
        head: LongArray,
        capacity: LongArray | int = 1,
        cost: FloatArray | float = 0.0,
    ) -> "Arcs":
        """Take arcs with capacities and costs of their own, or one for all."""
        return cls(
            tail,
            head,
            np.full(len(tail), capacity, dtype=np.int64),
            np.full(len(tail), cost, dtype=np.float64),
        )

    def concat_arcs(self, *others: "Arcs") -> "Arcs":
        """Return these and then the others."""
        return Arcs(*(np.concatenate(column) for column in zip(self, *others, strict=True)))


@dataclass(frozen=True, slots=True)
class FlowNetwork:
    """A flow problem; the cheapest flow that meets all demands is the answer."""

    layout: FlowLayout
    item_arcs: Arcs  # from items to hubs and seats
    hub_arcs: Arcs  # from hubs to seats
    member_arcs: Arcs  # from seats to members, from members to the end
    supply: LongArray  # (N,) units that each node gives; below 0 it takes them


def build_network(
    problem: PackingProblem, partition_costs: PartitionCosts, *, per_topic: bool
) -> FlowNetwork:
    """Lay out the network of a closed problem; with `per_topic` each topic's counts are even."""
    nodes = build_layout(problem, partition_costs.racks.remote.shape[1], per_topic=per_topic)
    topics = compute_topic_limits(problem)
    seats = CountLimits(topics.least[nodes.balanced_topics], topics.most[nodes.balanced_topics])
    members = compute_member_limits(problem, per_topic=per_topic)
    return FlowNetwork(
        layout=nodes,
        item_arcs=_arcs_from_items(problem, partition_costs, nodes),
        hub_arcs=_arcs_from_hubs(partition_costs, nodes),
        member_arcs=_arcs_to_members(nodes, seats).concat_arcs(
            _arcs_to_end(nodes, members, partition_costs)
        ),
        supply=_compute_supply(nodes, seats, members),
    )


def _arcs_from_items(
    problem: PackingProblem, partition_costs: PartitionCosts, nodes: FlowLayout
) -> Arcs:
    """Return the arcs anywhere, then those near, then those to the owners (rule 1)."""
    far = partition_costs.racks.remote[nodes.items]
    toll, move = partition_costs.cross_rack[nodes.items], partition_costs.move[nodes.items]
    everyone = np.arange(len(nodes.items))
    anywhere = Arcs.from_columns(
        everyone, nodes.hub_node(nodes.kind, nodes.rack_count), cost=toll + move
    )
    item, rack = np.nonzero(~far & (toll > 0)[:, None])  # where all is near, anywhere will do
    near = Arcs.from_columns(item, nodes.hub_node(nodes.kind[item], rack), cost=move[item])
    owner = problem.owner[nodes.items]
    read = np.flatnonzero((owner != UNASSIGNED) & nodes.readers[nodes.kind, owner])
    crosses = partition_costs.racks.find_cross_rack(problem.owner)[nodes.items]
    home = Arcs.from_columns(
        read, nodes.seat[nodes.kind[read], owner[read]], cost=np.where(crosses, toll, 0.0)[read]
    )
    return anywhere.concat_arcs(near, home)


def _arcs_from_hubs(partition_costs: PartitionCosts, nodes: FlowLayout) -> Arcs:
    kind, member = np.nonzero(nodes.readers)
    seat, everything = nodes.seat[kind, member], len(nodes.items)
    near = Arcs.from_columns(
        nodes.hub_node(kind, partition_costs.racks.member_rack[member]), seat, everything
    )
    return near.concat_arcs(
        Arcs.from_columns(nodes.hub_node(kind, nodes.rack_count), seat, everything)
    )


def _arcs_to_members(nodes: FlowLayout, seats: CountLimits) -> Arcs:
    """Return the arcs from seats that are not members themselves; none for who does not read."""
    member = np.broadcast_to(
        nodes.first_member + np.arange(nodes.topic_seats.shape[1]), nodes.topic_seats.shape
    )
    return Arcs.from_columns(
        nodes.topic_seats.ravel(), member.ravel(), (seats.most - seats.least).ravel()
    )


def _arcs_to_end(nodes: FlowLayout, members: CountLimits, partition_costs: PartitionCosts) -> Arcs:
    """Return an arc for each partition that a member may hold beyond its least (rule 4)."""
    more = members.most - members.least
    member = np.repeat(np.arange(len(more)), more)
    rank = np.arange(len(member)) - np.repeat(np.cumsum(more) - more, more)
    rank += members.least[member]
    dearest = float((partition_costs.cross_rack + partition_costs.move).max(initial=0.0)) or 1.0
    # what a swap along a chain of seats could save, at most
    decisive = (min(len(nodes.items), nodes.first_hub - nodes.first_member) + 1) * dearest
    cost = decisive * (rank - rank.min(initial=0))
    return Arcs.from_columns(
        nodes.first_member + member, np.full(len(member), nodes.end_node), cost=cost
    )


def _compute_supply(nodes: FlowLayout, seats: CountLimits, members: CountLimits) -> LongArray:
    """Return what each node gives; a least count is taken here and given there (rule 3)."""
    supply = np.zeros(nodes.end_node + 1, dtype=np.int64)
    supply[: len(nodes.items)] = 1
    supply[nodes.topic_seats] = -seats.least
    supply[nodes.first_member : nodes.first_member + len(members.least)] = (
        seats.least.sum(axis=0) - members.least
    )
    supply[nodes.end_node] = -supply.sum()
    return supply
