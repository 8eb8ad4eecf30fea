"""Division of the groups among sidecars."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from trimtab.sidecar.leadership.group_shards import ALL_SHARDS, OwnedShards, SoleSidecar, compute_shard

NAMES = [f"group-{n}" for n in range(500)]


@given(st.text(), st.integers(1, 100), st.integers(1, 6))
def test_each_group_has_one_sidecar(group: str, count: int, sidecars: int) -> None:
    """Sidecars with disjoint shards have disjoint groups, and together all of them."""
    owned = [OwnedShards().assign(range(n, count, sidecars), count) for n in range(sidecars)]
    assert sum(one.owns_group(group) for one in owned) == 1


def test_a_name_has_the_same_shard_in_each_version() -> None:
    """Sidecars of two versions agree; a change here would give groups two sidecars during an upgrade."""
    assert [compute_shard(name, 60) for name in ("lake", "clicks", "größe")] == [47, 21, 53]


def test_shards_are_even() -> None:
    """None of 60 shards has more than five times its share of 500 groups, and three sidecars are even."""
    shards = Counter(compute_shard(name, 60) for name in NAMES)
    assert max(shards.values()) < 5 * len(NAMES) / 60
    thirds = Counter(compute_shard(name, 60) // 20 for name in NAMES)
    assert max(thirds.values()) < 1.2 * len(NAMES) / 3


def test_nothing_is_owned_before_the_first_assignment() -> None:
    """A sidecar that starts waits for its shards; one that is alone has all."""
    assert not any(OwnedShards().owns_group(name) for name in NAMES)
    assert all(ALL_SHARDS.owns_group(name) for name in NAMES)
    assert SoleSidecar().begin_round() == ALL_SHARDS
    assert not SoleSidecar().get_error()


def test_shards_come_and_go_one_by_one() -> None:
    """A rebalance tells what is added and revoked; what stays is not named."""
    owned = OwnedShards().assign([0, 1, 2], 4).revoke([1]).assign([3], 4)
    assert owned.numbers == {0, 2, 3}


def test_shards_are_kept_until_the_sidecar_is_a_member_again() -> None:
    """Brokers that are away take no groups from the page; the next assignment then is the whole one."""
    lost = OwnedShards().assign([0, 1], 4).lose_membership()
    assert lost.numbers == {0, 1}
    assert lost.assign([1, 2], 4) == OwnedShards(4, frozenset([1, 2]))


def test_added_partitions_change_the_shards_of_groups() -> None:
    """The newest count is used."""
    owned = OwnedShards().assign(range(4), 4).assign(range(4, 8), 8)
    assert (owned.count, owned.numbers) == (8, frozenset(range(8)))
    assert all(owned.owns_group(name) for name in NAMES)
