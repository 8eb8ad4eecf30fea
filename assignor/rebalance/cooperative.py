"""Cooperative staging (KIP-429): from the target to what may be handed out in this round.

The rules, all kept here:

1. A partition has at most one owner: the claimant with the newest generation. Two claims of one
   generation cancel each other, neither keeps the partition.
2. A partition is handed to a member only if that member owns it, or if no member at all claims it.
   Everything else of the target is promised: its claimants revoke it, rejoin, and the next round
   hands it out. So no partition is ever given to two members, whatever the target says.
3. A promise is repeated by the member that holds it (`MemberData.promised`). While the cause of a
   decision stays the same, the next round completes it instead of deciding afresh.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import NOBODY, BoolArray, IntArray
from trimtab.assignor.partition_index import owners_of


@dataclass(frozen=True, slots=True, eq=False)
class Claims:
    """What M members say they read: N claims, and since which generation each of the M reads."""

    member: IntArray  # (N,)
    partition: IntArray  # (N,)
    generation: IntArray  # (M,)


@dataclass(frozen=True, slots=True, eq=False)
class Settled:
    """Who owns each of P partitions (NOBODY: none), and whether anybody claims it."""

    owner: IntArray  # (P,)
    claimed: BoolArray  # (P,)


def settle(claims: Claims, partitions: int) -> Settled:
    """Find the owner of each claimed partition (rule 1); contested ones have none."""
    claimed = np.zeros(partitions, dtype=np.bool_)
    claimed[claims.partition] = True
    generation = claims.generation[claims.member]
    newest = np.full(partitions, np.iinfo(np.int32).min, dtype=np.int32)
    np.maximum.at(newest, claims.partition, generation)
    counts = generation == newest[claims.partition]
    member, partition = claims.member[counts], claims.partition[counts]
    owner = owners_of(member, partition, partitions)
    owner[partition[owner[partition] != member]] = NOBODY  # somebody else claims it, too
    return Settled(owner, claimed)


def stage(target: IntArray, settled: Settled) -> BoolArray:
    """Tell what of the target (P,) is handed out now; the rest of it is promised (rule 2)."""
    now: BoolArray = (target != NOBODY) & ((settled.owner == target) | ~settled.claimed)
    return now
