"""Cooperative staging holds its promise whatever the target says."""

from hypothesis import given
from hypothesis import strategies as st

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.staging import Claim, settle, stage

MEMBERS = ("a", "b", "c", "d")
PARTITIONS = tuple(TopicPartition("t", n) for n in range(6))

owners = st.dictionaries(st.sampled_from(PARTITIONS), st.sampled_from(MEMBERS))
claims = st.lists(
    st.builds(
        Claim,
        st.sampled_from(MEMBERS),
        st.integers(-1, 3),
        st.frozensets(st.sampled_from(PARTITIONS)),
    ),
    unique_by=lambda claim: claim.member,
)


def by_member(of: dict[TopicPartition, str]) -> dict[str, set[TopicPartition]]:
    return {m: {p for p, owner in of.items() if owner == m} for m in MEMBERS}


@given(owners, claims)
def test_no_partition_is_given_to_two_members(
    target: dict[TopicPartition, str], claimed: list[Claim]
) -> None:
    """What a member gets now, no other member gets or rightfully reads."""
    shares = stage(by_member(target), claimed)
    given_out = [p for share in shares.values() for p in share.now]
    assert len(given_out) == len(set(given_out))
    rightful = settle(claimed)
    for member, share in shares.items():
        assert all(rightful.get(p, member) == member for p in share.now)


@given(owners, claims)
def test_an_unclaimed_partition_is_never_withheld(
    target: dict[TopicPartition, str], claimed: list[Claim]
) -> None:
    """A partition that nobody claims goes to its target at once: nothing waits for ever."""
    held = {p for claim in claimed for p in claim.partitions}
    shares = stage(by_member(target), claimed)
    for partition, member in target.items():
        assert partition in held or partition in shares[member].now


@given(owners, owners)
def test_a_move_is_complete_after_two_rounds(
    before: dict[TopicPartition, str], target: dict[TopicPartition, str]
) -> None:
    """Round one takes away, round two hands out; in between nobody reads what moves (KIP-429)."""
    wanted = by_member(target)
    held = by_member(before)
    for generation in (1, 2):
        shares = stage(wanted, [Claim(m, generation, frozenset(held[m])) for m in MEMBERS])
        for member in MEMBERS:
            # revoke what is not in the new share; nobody else may have got it in this round
            lost = held[member] - shares[member].now
            assert not any(lost & shares[m].now for m in MEMBERS)
        held = {m: set(shares[m].now) for m in MEMBERS}
    assert held == wanted


def test_the_newest_generation_owns() -> None:
    """A claim of an older generation loses."""
    old = Claim("a", 3, frozenset({PARTITIONS[0]}))
    new = Claim("b", 4, frozenset({PARTITIONS[0]}))
    assert settle([old, new]) == settle([new, old]) == {PARTITIONS[0]: "b"}


def test_two_claims_of_one_generation_cancel() -> None:
    """Of two equal claims neither keeps the partition, in whatever order they come."""
    twins = [Claim(m, 4, frozenset({PARTITIONS[0]})) for m in ("a", "b")]
    older = Claim("c", 3, frozenset({PARTITIONS[0]}))
    assert settle([*twins, older]) == settle([older, *twins]) == {}
    shares = stage({"a": {PARTITIONS[0]}}, twins)
    assert shares["a"].now == frozenset()
