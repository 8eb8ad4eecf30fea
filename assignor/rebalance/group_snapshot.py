"""Everybody who joined a round, in arrays: what the leader decides on, and the digest of its cause.

The digest (`cause`) is made of compact bytes in a canonical order: members by id, each kind of
subscription once, partitions as they are numbered.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from trimtab.assignor.model import NOBODY, BoolArray, IntArray, Member, Policy
from trimtab.assignor.partition_index import Holding, Universe
from trimtab.assignor.problem import subscribed
from trimtab.assignor.rebalance.consumer_protocol import Subscription
from trimtab.assignor.rebalance.cooperative import Claims
from trimtab.assignor.rebalance.user_data import MemberData
from trimtab.common.control_topics.values import GroupPlan

_INT32_LE: Final = np.dtype("<i4")


@dataclass(frozen=True, slots=True, eq=False)
class Roll:
    """M members sorted by id, the P partitions of what they subscribe to, and their claims."""

    ids: tuple[str, ...]
    topics: tuple[frozenset[str], ...]
    data: tuple[MemberData, ...]
    claims: Claims
    universe: Universe

    def members(self, plan: GroupPlan | None) -> tuple[Member, ...]:
        """Return the members as a decision sees them.

        What a member says of its capacity counts before what the plan has learned of it.
        """
        draining = frozenset(plan.draining) if plan else frozenset[str]()
        learned = plan.capacities if plan else {}
        return tuple(
            Member(
                id=name,
                topics=topics,
                capacity=learned.get(data.instance) if data.capacity is None else data.capacity,
                instance=data.instance,
                draining=data.draining or data.instance in draining,
                rack=data.rack,
            )
            for name, topics, data in zip(self.ids, self.topics, self.data, strict=True)
        )

    def promised(self) -> IntArray:
        """Return which member each partition is promised to (P,), NOBODY where to none."""
        holdings = [Holding.of(data.promised) for data in self.data]
        heir: IntArray = np.full(len(self.universe), NOBODY, dtype=np.int32)
        member, partition = self.universe.locate(holdings)
        heir[partition] = member
        return heir

    def reads(self) -> BoolArray:
        """Return who subscribes to which topic of the universe, (T, M)."""
        return subscribed(self.universe.topics, self.topics)


def enroll(
    subscriptions: Mapping[str, Subscription], data: Mapping[str, MemberData], universe: Universe
) -> Roll:
    """Put what each member sent into arrays; what it owns outside the universe is passed over."""
    ids = tuple(sorted(subscriptions))
    joined = [subscriptions[name] for name in ids]
    kinds: dict[tuple[str, ...], frozenset[str]] = {}
    member, partition = universe.locate([s.owned for s in joined])
    return Roll(
        ids=ids,
        topics=tuple(kinds.setdefault(s.topics, frozenset(s.topics)) for s in joined),
        data=tuple(
            replace(data[name], rack=s.rack) if s.rack else data[name]
            for name, s in zip(ids, joined, strict=True)
        ),
        claims=Claims(member, partition, np.array([s.generation for s in joined], dtype=np.int32)),
        universe=universe,
    )


def cause(
    members: Sequence[Member], universe: Universe, plan: GroupPlan | None, policy: Policy
) -> str:
    """Return the digest of what a decision was made for."""
    staying = [m for m in members if not m.draining]
    kinds = {kind: i for i, kind in enumerate(dict.fromkeys(m.topics for m in staying))}
    said = [
        [sorted(kind) for kind in kinds],
        [[m.id, kinds[m.topics], m.capacity, m.rack] for m in staying],
        [universe.topics, universe.start.tolist()],
        [0 if plan is None else plan.epoch, policy.heuristic, policy.capacity, policy.headroom],
    ]
    digest = hashlib.blake2b(json.dumps(said).encode(), digest_size=8)
    digest.update(universe.number.astype(_INT32_LE).tobytes())
    return digest.hexdigest()
