"""Cooperative rebalance: no partition has two readers, whatever the target."""

from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import UNASSIGNED
from trimtab.assignor.rebalance.cooperative import (
    Ownership,
    OwnershipClaims,
    resolve_ownership,
    withhold_moving_partitions,
)

MEMBERS = range(4)
PARTITIONS = range(6)


@dataclass(frozen=True)
class Claim:
    """The claims of one member, and their generation."""

    generation: int
    partitions: frozenset[int]


owners = st.lists(
    st.sampled_from([UNASSIGNED, *MEMBERS]), min_size=len(PARTITIONS), max_size=len(PARTITIONS)
).map(lambda of: np.array(of, dtype=np.int32))
claims = st.lists(
    st.builds(Claim, st.integers(-1, 3), st.frozensets(st.sampled_from(PARTITIONS))),
    min_size=len(MEMBERS),
    max_size=len(MEMBERS),
)


def settled(claimed: list[Claim], order: int = 1) -> Ownership:
    pairs = [(m, p) for m, claim in enumerate(claimed) for p in claim.partitions][::order]
    generations = [claim.generation for claim in claimed]
    return resolve_ownership(
        OwnershipClaims(
            np.array([m for m, _ in pairs], dtype=np.int32),
            np.array([p for _, p in pairs], dtype=np.int32),
            np.array(generations, dtype=np.int32),
        ),
        len(PARTITIONS),
    )


@given(owners, claims)
def test_no_partition_has_two_readers(target: np.ndarray, claimed: list[Claim]) -> None:
    """A partition assigned now has no other legitimate reader."""
    rightful = settled(claimed)
    now = withhold_moving_partitions(target, rightful)
    assert (target[now] != UNASSIGNED).all()
    kept = rightful.owner[now]
    assert ((kept == UNASSIGNED) | (kept == target[now])).all()


@given(owners, claims)
def test_an_unclaimed_partition_is_never_withheld(target: np.ndarray, claimed: list[Claim]) -> None:
    """A partition without a claim is assigned at once: none waits forever."""
    held = {p for claim in claimed for p in claim.partitions}
    now = withhold_moving_partitions(target, settled(claimed))
    for partition, member in enumerate(target.tolist()):
        assert member == UNASSIGNED or partition in held or now[partition]


@given(owners, owners)
def test_a_move_is_complete_after_two_rounds(before: np.ndarray, target: np.ndarray) -> None:
    """Round one revokes, round two assigns; in between moving partitions have no reader (KIP-429)."""
    held = before
    for generation in (1, 2):
        of = [Claim(generation, frozenset(np.flatnonzero(held == m).tolist())) for m in MEMBERS]
        now = withhold_moving_partitions(target, settled(of))
        # no member receives a partition in the round in which another one revokes it
        assert ((held == UNASSIGNED) | (held == target))[now].all()
        held = np.where(now, target, UNASSIGNED)
    assert np.array_equal(held, target)


@given(claims)
def test_the_order_of_claims_does_not_matter(claimed: list[Claim]) -> None:
    """Reversed claims give the same ownership, which the rule gives claim by claim, too."""
    found, other = settled(claimed), settled(claimed, order=-1)
    assert np.array_equal(found.owner, other.owner)
    for partition in PARTITIONS:
        of = [(c.generation, m) for m, c in enumerate(claimed) if partition in c.partitions]
        newest = [m for generation, m in of if generation == max(of)[0]]
        assert found.owner[partition] == (newest[0] if len(newest) == 1 else UNASSIGNED)
        assert found.claimed[partition] == bool(of)


def test_the_newest_generation_owns() -> None:
    """A claim of an older generation loses."""
    old, new = Claim(3, frozenset({0})), Claim(4, frozenset({0}))
    assert settled([old, new]).owner[0] == 1
    assert settled([new, old]).owner[0] == 0


def test_two_claims_of_one_generation_cancel() -> None:
    """Neither of two equal claims owns the partition, nor does a third, older one."""
    twin, older = Claim(4, frozenset({0})), Claim(3, frozenset({0}))
    found = settled([twin, twin, older])
    assert found.owner[0] == UNASSIGNED
    target = np.array([0, *[UNASSIGNED] * 5], dtype=np.int32)
    assert not withhold_moving_partitions(target, found).any()


def test_a_repeated_claim_counts_once() -> None:
    """The same claim twice by one member is one claim."""
    twice = OwnershipClaims(
        np.array([2, 2], dtype=np.int32),
        np.array([1, 1], dtype=np.int32),
        np.array([0, 0, 5], dtype=np.int32),
    )
    assert resolve_ownership(twice, len(PARTITIONS)).owner[1] == 2
