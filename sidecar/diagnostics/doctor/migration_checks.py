"""Check of a classic group that is to change to the new protocol (KIP-848), member by member. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.assignor.rebalance.consumer_protocol import decode_assignment
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.units import format_count
from trimtab.sidecar.diagnostics.doctor.checks import (
    ASSIGNOR_NAME,
    REBALANCING,
    Finding,
    MemberMetadata,
    noted,
    passed,
)

MIGRATION_CHECK: Final = "change to group.protocol=consumer"
POLICY_CONFIG: Final = "group.consumer.migration.policy"
UPGRADE_POLICIES: Final = frozenset({"upgrade", "bidirectional"})
FATAL_ERROR: Final = (
    "GROUP_ID_NOT_FOUND (The group id does not exist)"  # of librdkafka, of which it never recovers
)


def check_migration(
    members: Mapping[str, MemberMetadata], assignor: str, policy: str | None
) -> Iterable[Finding]:
    """Check whether the coordinator would convert the group when a member of the new protocol joins.

    `assignor` is the group's, empty during a rebalance, when brokers tell no assignments either;
    `policy` is the broker's, None if it is not readable.
    """
    if not members:
        return
    if not assignor:
        yield noted(MIGRATION_CHECK, REBALANCING)
        return
    blocking = sorted(name for name, member in members.items() if _has_user_data(member.assignment))
    if not blocking:
        yield _check_policy(policy)
        return
    # librdkafka's leader puts the members' user data into their assignments, a sidecar that leads puts none
    first = (
        "give all members partition.assignment.strategy=cooperative-sticky,trimtab"
        if assignor == ASSIGNOR_NAME
        else "lead the group with the sidecar (lead)"
    )
    members_with_data = format_count(len(blocking), "member")
    yield noted(
        MIGRATION_CHECK,
        f"not yet possible: the assignments of {members_with_data}, such as {blocking[0]}, have user "
        "data, so the broker does not convert the group, and a librdkafka consumer of the new protocol "
        f"ends with the fatal error {FATAL_ERROR}; first {first} "
        "(docs/any-client.md)",
    )


def _check_policy(policy: str | None) -> Finding:
    text = "possible member by member: no assignment has user data"
    if policy is None:
        return passed(MIGRATION_CHECK, f"{text}; {POLICY_CONFIG} of the brokers is not readable")
    if policy.lower() in UPGRADE_POLICIES:
        return passed(MIGRATION_CHECK, text)
    return noted(
        MIGRATION_CHECK,
        f"not possible member by member: {POLICY_CONFIG} of the brokers is {policy}; set it to bidirectional",
    )


def _has_user_data(assignment: bytes) -> bool:
    try:
        return bool(assignment and decode_assignment(assignment).user_data)
    except InvalidPayloadError:
        return True  # what the broker cannot decode it does not convert
