"""Cooperative rebalance (KIP-429): the part of a target that one round may assign.

1. A partition has at most one owner: the claimant with the newest generation. Two claims of the
   same generation cancel each other.
2. A partition is assigned to a member only if that member owns it, or if no member claims it. The
   rest of the target is promised: claimants revoke, rejoin, and the next round assigns it.
3. A member repeats its promises (`MemberUserData.promised`). While the cause of a decision stays
   the same, the next round completes it instead of deciding again.
"""

from dataclasses import dataclass

import numpy as np

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray
from trimtab.assignor.model.partition_index import index_owners


@dataclass(frozen=True, slots=True, eq=False)
class OwnershipClaims:
    """N claims of M members on partitions, and the generation of each member."""

    member: IntArray  # (N,)
    partition: IntArray  # (N,)
    generation: IntArray  # (M,)


@dataclass(frozen=True, slots=True, eq=False)
class Ownership:
    """Owner of each of P partitions, or UNASSIGNED, and whether any member claims it."""

    owner: IntArray  # (P,)
    claimed: BoolArray  # (P,)


def resolve_ownership(claims: OwnershipClaims, partition_count: int) -> Ownership:
    """Return the owner of each partition (rule 1); a contested one has none."""
    claimed = np.zeros(partition_count, dtype=np.bool_)
    claimed[claims.partition] = True
    generation = claims.generation[claims.member]
    newest = np.full(partition_count, np.iinfo(np.int32).min, dtype=np.int32)
    np.maximum.at(newest, claims.partition, generation)
    # A member that missed a round still claims what that round gave away; its generation is older.
    counts = generation == newest[claims.partition]
    member, partition = claims.member[counts], claims.partition[counts]
    owner = index_owners(member, partition, partition_count)
    owner[partition[owner[partition] != member]] = UNASSIGNED  # contested
    return Ownership(owner, claimed)


def withhold_moving_partitions(target: IntArray, ownership: Ownership) -> BoolArray:
    """Return which partitions (P,) of the target to assign now; the rest is promised (rule 2)."""
    # Claimed, not owned: a claimant may still read what a contested claim has lost.
    assigned: BoolArray = (target != UNASSIGNED) & ((ownership.owner == target) | ~ownership.claimed)
    return assigned
