"""The doctor says whether a classic group can change to the new protocol, and what blocks it."""

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.sidecar.diagnostics.doctor.checks import REBALANCING, FindingLevel, MemberMetadata
from trimtab.sidecar.diagnostics.doctor.migration_checks import check_migration


def member(user_data: bytes) -> MemberMetadata:
    assignment = ConsumerProtocolAssignment(version=0, assigned_partitions=[], user_data=user_data)
    return MemberMetadata(b"", bytes(assignment.encode()))


def test_user_data_of_an_assignment_blocks_the_change() -> None:
    """The finding names a member, librdkafka's fatal error and what to set first."""
    (finding,) = check_migration({"a": member(b""), "b": member(b"decision")}, "trimtab", "bidirectional")
    assert finding.level is FindingLevel.NOTE
    assert "1 member, such as b" in finding.message
    assert "fatal error GROUP_ID_NOT_FOUND (The group id does not exist)" in finding.message
    assert "partition.assignment.strategy=cooperative-sticky,trimtab" in finding.message


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "sticky"])
def test_clients_of_others_cannot_have_our_assignor(assignor: str) -> None:
    """librdkafka's assignments have user data, too: a sidecar that leads makes them without."""
    (finding,) = check_migration({"a": member(b"generation")}, assignor, "bidirectional")
    assert "lead the group with the sidecar" in finding.message
    assert "trimtab,cooperative-sticky" not in finding.message
    assert "cooperative-sticky,trimtab" not in finding.message


@pytest.mark.parametrize("members", [{"a": member(b"")}, {"a": MemberMetadata(b"", b"")}])
def test_a_group_without_user_data_may_change(members: dict[str, MemberMetadata]) -> None:
    """A member that has no assignment yet blocks nothing."""
    (finding,) = check_migration(members, "trimtab", "bidirectional")
    assert finding.level is FindingLevel.OK


@pytest.mark.parametrize(
    ("policy", "level"),
    [
        ("upgrade", FindingLevel.OK),
        ("DISABLED", FindingLevel.NOTE),
        ("downgrade", FindingLevel.NOTE),
        (None, FindingLevel.OK),  # the sidecar may not read it
    ],
)
def test_the_brokers_policy_may_forbid_the_change(policy: str | None, level: FindingLevel) -> None:
    """The finding names the broker's setting, also where the sidecar may not read it."""
    (finding,) = check_migration({"a": member(b"")}, "trimtab", policy)
    assert finding.level is level
    assert (policy == "upgrade") == ("group.consumer.migration.policy" not in finding.message)


def test_an_unreadable_assignment_blocks_the_change() -> None:
    """What cannot be decoded here cannot be converted by the broker."""
    (finding,) = check_migration({"a": MemberMetadata(b"", b"\0")}, "trimtab", "bidirectional")
    assert finding.level is FindingLevel.NOTE


def test_a_group_that_rebalances_may_not_be_judged() -> None:
    """The brokers hide its assignments meanwhile, so user data in them would be missed."""
    (finding,) = check_migration({"a": MemberMetadata(b"", b"")}, "", "bidirectional")
    assert (finding.level, finding.message) == (FindingLevel.NOTE, REBALANCING)


def test_an_empty_group_needs_no_finding() -> None:
    """Its first member chooses the protocol."""
    assert list(check_migration({}, "", None)) == []
