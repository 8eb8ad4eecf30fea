"""Cooperative staging (KIP-429): from the target to what may be handed out in this round.

The rules, all kept here:

1. A partition has at most one owner: the claimant with the newest generation. Two claims of one
   generation cancel each other, neither keeps the partition.
2. A partition is handed to a member only if that member owns it, or if no member at all claims it.
   Everything else of the target is promised: its claimants revoke it, rejoin, and the next round
   hands it out. So no partition is ever given to two members, whatever the target says.
3. A promise is repeated by the member that holds it (`MemberUserData.promised`). While the cause of a
   decision stays the same, the next round completes it instead of deciding afresh.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray
from trimtab.assignor.partition_index import index_owners


@dataclass(frozen=True, slots=True, eq=False)
class OwnershipClaims:
    """What M members say they read: N claims, and since which generation each of the M reads."""

    member: IntArray  # (N,)
    partition: IntArray  # (N,)
    generation: IntArray  # (M,)


@dataclass(frozen=True, slots=True, eq=False)
class Ownership:
    """Who owns each of P partitions (NOBODY: none), and whether anybody claims it."""

    owner: IntArray  # (P,)
    claimed: BoolArray  # (P,)


def resolve_ownership(claims: OwnershipClaims, partition_count: int) -> Ownership:
    """Find the owner of each claimed partition (rule 1); contested ones have none."""
    claimed = np.zeros(partition_count, dtype=np.bool_)
    claimed[claims.partition] = True
    generation = claims.generation[claims.member]
    newest = np.full(partition_count, np.iinfo(np.int32).min, dtype=np.int32)
    np.maximum.at(newest, claims.partition, generation)
    counts = generation == newest[claims.partition]
    member, partition = claims.member[counts], claims.partition[counts]
    owner = index_owners(member, partition, partition_count)
    owner[partition[owner[partition] != member]] = UNASSIGNED  # somebody else claims it, too
    return Ownership(owner, claimed)


def withhold_moving_partitions(target: IntArray, ownership: Ownership) -> BoolArray:
    """Tell what of the target (P,) is handed out now; the rest of it is promised (rule 2)."""
    now: BoolArray = (target != UNASSIGNED) & ((ownership.owner == target) | ~ownership.claimed)
    return now
