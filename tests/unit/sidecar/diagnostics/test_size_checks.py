"""Sizes that a broker refuses are reported before; measured by `benchmarks.sidecar.bench_group_size`."""

import pytest

from trimtab.common.units import format_bytes
from trimtab.sidecar.diagnostics.doctor.checks import FindingLevel, MemberMetadata
from trimtab.sidecar.diagnostics.doctor.size_checks import (
    check_group_size,
    check_record_limit,
    estimate_group_record,
)

# members, partitions, bytes of a subscription and of an assignment, bytes of the stored record
MEASURED = ((2000, 10_000, 149, 79, 662_981), (1000, 100_000, 529, 459, 1_090_981))


@pytest.mark.parametrize(("members", "partitions", "subscription", "assignment", "stored"), MEASURED)
def test_the_record_is_estimated_in_any_state(
    members: int, partitions: int, subscription: int, assignment: int, stored: int
) -> None:
    """Both estimates, with the members' bytes and without them, are within a tenth of the real size."""
    stable = MemberMetadata(b"x" * subscription, b"x" * assignment)
    for metadata in (stable, MemberMetadata(b"", b"")):
        group = {f"consumer-{n}": metadata for n in range(members)}
        assert estimate_group_record(group, partitions) == pytest.approx(stored, rel=0.1)


@pytest.mark.parametrize(
    ("members", "partitions", "limit", "codec", "level"),
    [
        (100, 1_000, None, None, FindingLevel.OK),
        (2_000, 10_000, "1048588", "0", FindingLevel.OK),
        (2_300, 12_000, "1048588", "0", FindingLevel.WARNING),
        (1_000, 100_000, None, None, FindingLevel.WARNING),
        (1_000, 100_000, "1048588", "4", FindingLevel.OK),
        (1_000, 100_000, "10485760", "0", FindingLevel.OK),
        (3_000, 300_000, "1048588", "4", FindingLevel.WARNING),
    ],
)
def test_a_group_near_the_limit_is_reported(
    members: int, partitions: int, limit: str | None, codec: str | None, level: FindingLevel
) -> None:
    """The warning has both sizes, the topic's setting and the codec."""
    group = {f"consumer-{n}": MemberMetadata(b"", b"") for n in range(members)}
    finding = check_group_size(group, partitions, limit, codec)
    assert finding.level is level
    assert format_bytes(estimate_group_record(group, partitions)) in finding.message
    if level is FindingLevel.WARNING:
        assert "max.message.bytes=4194352" in finding.remedy
        assert "offsets.topic.compression.codec=4" in finding.remedy


def test_a_control_topic_with_a_small_limit_is_reported() -> None:
    """The remedy sets the topic's limit; a limit that is large enough, or unreadable, is no finding."""
    (finding,) = check_record_limit("trimtab.plans", "100000")
    assert (finding.level, "max.message.bytes=950000" in finding.remedy) == (FindingLevel.WARNING, True)
    assert list(check_record_limit("trimtab.plans", "1048588")) == []
    assert list(check_record_limit("trimtab.plans", None)) == []
