"""Findings about the sidecars that divide the groups."""

from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel
from trimtab.sidecar.diagnostics.doctor.shard_checks import ShardOwner, check_shards
from trimtab.sidecar.leadership.group_shards import compute_shard

TOPIC = "trimtab.shards"
GROUP = "lake"
COUNT = 4
NUMBER = compute_shard(GROUP, COUNT)
OTHERS = frozenset(range(COUNT)) - {NUMBER}


def test_a_groups_sidecar_is_named() -> None:
    """With all shards owned the finding tells which sidecar has the group."""
    owners = [ShardOwner("10.0.0.1", OTHERS), ShardOwner("10.0.0.2", frozenset([NUMBER]))]
    found = check_shards(TOPIC, GROUP, COUNT, owners)
    assert found.level is FindingLevel.OK
    assert found.message == (
        f"2 sidecars have the 4 shards; group lake is in shard {NUMBER}, of the sidecar at 10.0.0.2"
    )


def test_what_is_missing_is_told() -> None:
    """No topic yet is a note, no sidecar a failure, and an unowned shard a note while they rebalance."""
    assert check_shards(TOPIC, GROUP, None, []).level is FindingLevel.NOTE
    nobody = check_shards(TOPIC, GROUP, COUNT, [])
    assert (nobody.level, nobody.message) == (FindingLevel.FAILED, "no sidecar is a member of its group")
    moving = check_shards(TOPIC, GROUP, COUNT, [ShardOwner("a", OTHERS), ShardOwner("b", frozenset())])
    assert moving.level is FindingLevel.NOTE
    assert moving.message.startswith("1 of 4 shards without a sidecar")


def test_more_sidecars_than_shards_are_a_warning() -> None:
    """The spare one manages nothing."""
    owners = [ShardOwner("a", frozenset(range(COUNT))), ShardOwner("b", frozenset())]
    found = check_shards(TOPIC, GROUP, COUNT, owners)
    assert (found.level, found.message) == (
        FindingLevel.WARNING,
        "1 of 2 sidecars without a shard: the topic has only 4",
    )
