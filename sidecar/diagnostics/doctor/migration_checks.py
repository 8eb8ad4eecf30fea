"""Check of a classic group that is to change to the new protocol (KIP-848), member by member. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.assignor.rebalance.consumer_protocol import decode_assignment
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.diagnostics.doctor.checks import Finding, MemberMetadata, noted, passed

MIGRATION_CHECK: Final = "change to group.protocol=consumer"
FATAL_ERROR: Final = (
    "GROUP_ID_NOT_FOUND (The group id does not exist)"  # of librdkafka, of which it never recovers
)


def check_migration(members: Mapping[str, MemberMetadata]) -> Iterable[Finding]:
    """Check whether the coordinator would convert the group when a member of the new protocol joins."""
    if not members:
        return
    blocking = sorted(name for name, member in members.items() if _has_user_data(member.assignment))
    if not blocking:
        yield passed(MIGRATION_CHECK, "possible member by member: no assignment has user data")
        return
    yield noted(
        MIGRATION_CHECK,
        f"not yet possible: the assignments of {len(blocking)} members, such as {blocking[0]}, have user "
        "data, so the broker does not convert the group, and a librdkafka consumer of the new protocol "
        f"ends with the fatal error {FATAL_ERROR}; first give all members "
        "partition.assignment.strategy=cooperative-sticky,trimtab (docs/any-client.md)",
    )


def _has_user_data(assignment: bytes) -> bool:
    try:
        return bool(assignment and decode_assignment(assignment).user_data)
    except InvalidPayloadError:
        return True  # what the broker cannot decode it does not convert
