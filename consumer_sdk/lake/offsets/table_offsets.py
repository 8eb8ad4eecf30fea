"""Committed offsets of a table, and the fence built on them.

A table stores the next offset it lacks per (group, topic, partition), in the commit that adds the
rows: no row is without its offset. Rules:

1. A span of records [expected, next) may be committed only while the table's offset *is* `expected`
   (the fence). A stale owner and a second copy of a writer find another offset and are refused.
2. Offsets only advance, and each commit carries the offsets of *all* groups and partitions forward,
   so that expiring old snapshots loses no idle partition.
3. Of several tables fed by one topic, the topic table is committed last: its offset is the least.
   After a crash in between, the next owner starts there, and each side table trims the records
   below its own offset. So every table gets every record once.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.units import format_bytes, format_count
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets import offset_codec
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, clip_gaps

# in a snapshot's summary; as a table property, set by hand, the start value
OFFSETS_PROPERTY: Final = "trimtab.offsets"
# the attempt's id in a snapshot's summary, to look up a commit of unknown outcome
ATTEMPT_PROPERTY: Final = "trimtab.attempt"
OFFSET_COST_BYTES: Final = 64_000_000  # in one metadata file
OffsetByPartition: TypeAlias = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """Records of one partition in a batch: from `first` to before `next`."""

    expected: int | None  # offset that the table must have (rule 1); None: no offset of the partition
    first: int
    next: int
    gaps: tuple[OffsetGap, ...] = ()  # expired offsets below `next`


SpanByPartition: TypeAlias = Mapping[TopicPartition, OffsetSpan]


@dataclass(frozen=True, slots=True)
class OffsetConflict:
    """A partition that another writer has continued: its offset is not the expected one."""

    partition: TopicPartition
    expected: int | None
    actual: int | None

    def __str__(self) -> str:
        expected, actual = _format_offset(self.expected), _format_offset(self.actual)
        return f"{self.partition}: expected {expected}, the table has {actual}"


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """Offsets of one table: group → partition → next offset."""

    groups: Mapping[str, OffsetByPartition] = field(default_factory=dict[str, OffsetByPartition])

    def next_offset(self, group: str, partition: TopicPartition) -> int | None:
        """Return the next offset, None if the table has none of the partition."""
        return self.groups.get(group, {}).get(partition)

    def topics_of(self, group: str) -> frozenset[str]:
        """Return the topics that a group has written into the table."""
        return frozenset(partition.topic for partition in self.groups.get(group, {}))

    def find_conflicts(self, group: str, spans: SpanByPartition) -> tuple[OffsetConflict, ...]:
        """Return the partitions whose spans must not be committed (rule 1)."""
        return tuple(
            OffsetConflict(p, span.expected, actual)
            for p, span in sorted(spans.items())
            if (actual := self.next_offset(group, p)) != span.expected
        )

    def advanced_by(self, group: str, spans: SpanByPartition) -> "CommittedOffsets":
        """Return the offsets after these spans (rule 2)."""
        mine = dict(self.groups.get(group, {}))
        for partition, span in spans.items():
            mine[partition] = max(span.next, mine.get(partition, span.next))
        return CommittedOffsets({**self.groups, group: mine})

    def encode(self) -> str:
        """Return JSON; equal offsets give equal text."""
        return offset_codec.encode_groups(self.groups, int)

    @classmethod
    def decode(cls, text: str, where: str) -> "CommittedOffsets":
        """Parse JSON of table `where`. Raises CommittedOffsetsLostError."""
        try:
            return cls(offset_codec.decode_groups(text, offset_codec.read_offset))
        except offset_codec.OFFSET_DECODE_ERRORS as error:
            raise CommittedOffsetsLostError(
                f"table {where}: {OFFSETS_PROPERTY} cannot be read ({error}): {text[:120]!r}; "
                "a newer Trimtab wrote it (upgrade this one) or it was changed by hand (correct it)"
            ) from error


def find_newest_offsets(
    table: str, history: Iterable[tuple[str | None, bool]], given: str | None
) -> str | None:
    """Return the newest encoded offsets of a table; None if it never had any.

    `history` has the offsets of each kept snapshot, newest first, and whether the snapshot has a parent;
    `given` are offsets set by hand. Raises CommittedOffsetsLostError.
    """
    oldest_has_parent = False
    for offsets, has_parent in history:  # snapshots of compactions and deletions have no offsets
        if offsets is not None:
            return offsets
        oldest_has_parent = has_parent
    # A parent that is not kept may have had offsets: starting without them would write rows twice.
    if given is None and oldest_has_parent:
        raise CommittedOffsetsLostError(
            f"table {table}: the snapshots with {OFFSETS_PROPERTY} have expired, so its offsets are "
            f"unknown; set them by hand as table property {OFFSETS_PROPERTY} (docs/lake.md), or write "
            "into a new table"
        )
    return given


def trim_spans(
    group: str, offsets: CommittedOffsets, spans: SpanByPartition
) -> dict[TopicPartition, OffsetSpan]:
    """Return the parts of spans that a side table with these offsets lacks (rule 3)."""
    trimmed: dict[TopicPartition, OffsetSpan] = {}
    for partition, span in spans.items():
        offset = offsets.next_offset(group, partition)
        first = span.first if offset is None else max(offset, span.first)
        if first < span.next:
            trimmed[partition] = OffsetSpan(offset, first, span.next, clip_gaps(span.gaps, offset))
    return trimmed


def gaps_before(spans: SpanByPartition) -> dict[TopicPartition, tuple[OffsetGap, ...]]:
    """Return the gaps of these spans by partition, without empty ones."""
    return {partition: span.gaps for partition, span in spans.items() if span.gaps}


def warn_of_offset_cost(table: str, text_bytes: int, snapshots: int) -> str | None:
    """Return a warning each time when the snapshots hold another OFFSET_COST_BYTES of offsets."""
    total = text_bytes * snapshots
    if total // OFFSET_COST_BYTES == (total - text_bytes) // OFFSET_COST_BYTES:
        return None
    holders = format_count(snapshots, "snapshot holds", "snapshots hold")
    return (
        f"table {table}: its {holders} {format_bytes(total)} of offsets, which each commit "
        "writes into a new metadata file. Run trimtab tables expire more often, raise batch.max.age, or "
        "give topics tables of their own (docs/lake.md)"
    )


def describe_conflicts(conflicts: Iterable[OffsetConflict]) -> str:
    """Return conflicts as text for a log line."""
    return "; ".join(map(str, conflicts))


def _format_offset(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)
