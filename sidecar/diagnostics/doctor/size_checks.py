"""Checks of record sizes: the group's record in __consumer_offsets, and the control topics. Pure.

The coordinator writes a group's subscriptions and assignments as one record at each rebalance. If the
record exceeds max.message.bytes, the members get REBALANCE_IN_PROGRESS and join again, without an end.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.common.control_topics.record_parts import MAX_RECORD_BYTES
from trimtab.common.units import format_bytes
from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel, MemberMetadata, passed
from trimtab.sidecar.kafka.control_topic_store import MIN_MESSAGE_LIMIT_BYTES

OFFSETS_TOPIC: Final = "__consumer_offsets"
GROUP_SIZE_CHECK: Final = "group size"
DEFAULT_MESSAGE_LIMIT_BYTES: Final = 1_048_588  # Kafka's message.max.bytes
# measured by benchmarks/sidecar/bench_group_size.py
MEMBER_BYTES: Final = 300  # of one topic; ids, user data and headers of subscription and assignment
MEMBER_ID_BYTES: Final = 110  # ids and host, which are in neither
PARTITION_BYTES: Final = 8  # 4 where it is owned, 4 where it is assigned
COMPRESSION_RATIO: Final = 2  # of any codec, at least; a third remained of 1,000 x 100,000
WARNING_FRACTION: Final = 0.7  # a rollout doubles the members for a while


def estimate_group_record(members: Mapping[str, MemberMetadata], partitions: int) -> int:
    """Return the bytes of the group's record; brokers hide the metadata during a rebalance."""
    reported = sum(MEMBER_ID_BYTES + len(m.subscription) + len(m.assignment) for m in members.values())
    return max(reported, MEMBER_BYTES * len(members) + PARTITION_BYTES * partitions)


def check_group_size(
    members: Mapping[str, MemberMetadata], partitions: int, limit: str | None, codec: str | None
) -> Finding:
    """Check the group's record against max.message.bytes; None if that, or the codec, is not readable."""
    size = estimate_group_record(members, partitions)
    max_bytes = int(limit or DEFAULT_MESSAGE_LIMIT_BYTES)
    is_compressed = codec not in (None, "0")
    shown = f"the group's record has about {format_bytes(size)}{' uncompressed' if is_compressed else ''}"
    message = f"{shown}, {OFFSETS_TOPIC} takes {format_bytes(max_bytes)}"
    if size <= WARNING_FRACTION * max_bytes * (COMPRESSION_RATIO if is_compressed else 1):
        return passed(GROUP_SIZE_CHECK, message)
    remedy = (
        f"kafka-configs --alter --topic {OFFSETS_TOPIC} --add-config max.message.bytes={4 * max_bytes}, or "
        "offsets.topic.compression.codec=4 (zstd) on the brokers; a group beyond it rebalances for ever"
    )
    return Finding(GROUP_SIZE_CHECK, FindingLevel.WARNING, message, remedy)


def check_record_limit(topic: str, limit: str | None) -> Iterable[Finding]:
    """Check a control topic's max.message.bytes; None if it is not readable."""
    if limit is not None and int(limit) < MIN_MESSAGE_LIMIT_BYTES:
        yield Finding(
            f"record size of {topic}",
            FindingLevel.WARNING,
            f"max.message.bytes is {limit}; the sidecar writes records of up to {MAX_RECORD_BYTES} bytes",
            f"kafka-configs --alter --topic {topic} --add-config max.message.bytes={MIN_MESSAGE_LIMIT_BYTES}",
        )
