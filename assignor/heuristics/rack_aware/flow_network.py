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

from trimtab.assignor.heuristics.rack_aware.balance import Limits, of_members, of_topics
from trimtab.assignor.heuristics.rack_aware.costs import Priced
from trimtab.assignor.heuristics.rack_aware.layout import Layout, Long, layout
from trimtab.assignor.model import NOBODY, FloatArray, Problem


class Arcs(NamedTuple):
    """A arcs: from node `tail` to node `head`, so many units at so much each."""

    tail: Long  # (A,)
    head: Long  # (A,)
    capacity: Long  # (A,)
    cost: FloatArray  # (A,)

    @classmethod
    def of(
        cls, tail: Long, head: Long, capacity: Long | int = 1, cost: FloatArray | float = 0.0
    ) -> "Arcs":
        """Take arcs with capacities and costs of their own, or one for all."""
        return cls(
            tail,
            head,
            np.full(len(tail), capacity, dtype=np.int64),
            np.full(len(tail), cost, dtype=np.float64),
        )

    def and_(self, *others: "Arcs") -> "Arcs":
        """Return these and then the others."""
        return Arcs(*(np.concatenate(column) for column in zip(self, *others, strict=True)))


@dataclass(frozen=True, slots=True)
class Network:
    """A flow problem; the cheapest flow that meets all demands is the answer."""

    layout: Layout
    items: Arcs  # from items to hubs and seats
    hubs: Arcs  # from hubs to seats
    rest: Arcs  # from seats to members, from members to the end
    supply: Long  # (N,) units that each node gives; below 0 it takes them


def network(problem: Problem, priced: Priced, *, per_topic: bool) -> Network:
    """Lay out the network of a closed problem; with `per_topic` each topic's counts are even."""
    nodes = layout(problem, priced.racks.far.shape[1], per_topic=per_topic)
    topics = of_topics(problem)
    seats = Limits(topics.least[nodes.even], topics.most[nodes.even])
    members = of_members(problem, per_topic=per_topic)
    return Network(
        layout=nodes,
        items=_from_items(problem, priced, nodes),
        hubs=_from_hubs(priced, nodes),
        rest=_to_members(nodes, seats).and_(_to_end(nodes, members, priced)),
        supply=_supply(nodes, seats, members),
    )


def _from_items(problem: Problem, priced: Priced, nodes: Layout) -> Arcs:
    """Return the arcs anywhere, then those near, then those to the owners (rule 1)."""
    far = priced.racks.far[nodes.items]
    toll, move = priced.toll[nodes.items], priced.move[nodes.items]
    everyone = np.arange(len(nodes.items))
    anywhere = Arcs.of(everyone, nodes.hub(nodes.kind, nodes.racks), cost=toll + move)
    item, rack = np.nonzero(~far & (toll > 0)[:, None])  # where all is near, anywhere will do
    near = Arcs.of(item, nodes.hub(nodes.kind[item], rack), cost=move[item])
    owner = problem.owner[nodes.items]
    read = np.flatnonzero((owner != NOBODY) & nodes.readers[nodes.kind, owner])
    crosses = priced.racks.crossing(problem.owner)[nodes.items]
    home = Arcs.of(
        read, nodes.seat[nodes.kind[read], owner[read]], cost=np.where(crosses, toll, 0.0)[read]
    )
    return anywhere.and_(near, home)


def _from_hubs(priced: Priced, nodes: Layout) -> Arcs:
    kind, member = np.nonzero(nodes.readers)
    seat, everything = nodes.seat[kind, member], len(nodes.items)
    near = Arcs.of(nodes.hub(kind, priced.racks.at[member]), seat, everything)
    return near.and_(Arcs.of(nodes.hub(kind, nodes.racks), seat, everything))


def _to_members(nodes: Layout, seats: Limits) -> Arcs:
    """Return the arcs from seats that are not members themselves; none for who does not read."""
    member = np.broadcast_to(nodes.members + np.arange(nodes.apart.shape[1]), nodes.apart.shape)
    return Arcs.of(nodes.apart.ravel(), member.ravel(), (seats.most - seats.least).ravel())


def _to_end(nodes: Layout, members: Limits, priced: Priced) -> Arcs:
    """Return an arc for each partition that a member may hold beyond its least (rule 4)."""
    more = members.most - members.least
    member = np.repeat(np.arange(len(more)), more)
    rank = np.arange(len(member)) - np.repeat(np.cumsum(more) - more, more)
    rank += members.least[member]
    dearest = float((priced.toll + priced.move).max(initial=0.0)) or 1.0
    # what a swap along a chain of seats could save, at most
    decisive = (min(len(nodes.items), nodes.hubs - nodes.members) + 1) * dearest
    cost = decisive * (rank - rank.min(initial=0))
    return Arcs.of(nodes.members + member, np.full(len(member), nodes.end), cost=cost)


def _supply(nodes: Layout, seats: Limits, members: Limits) -> Long:
    """Return what each node gives; a least count is taken here and given there (rule 3)."""
    supply = np.zeros(nodes.end + 1, dtype=np.int64)
    supply[: len(nodes.items)] = 1
    supply[nodes.apart] = -seats.least
    supply[nodes.members : nodes.members + len(members.least)] = (
        seats.least.sum(axis=0) - members.least
    )
    supply[nodes.end] = -supply.sum()
    return supply
