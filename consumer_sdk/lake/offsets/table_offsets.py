"""Offset marks: how far a table holds each partition, and who may add to it.

A mark is the offset of the next record that a table does not hold yet, per (group, topic,
partition). It is written in the very commit that adds the rows (DESIGN.md section 6), so a table
can never hold a row without the mark above it. The rules of marks stand here and nowhere else:

1. A span of records [expected, next) may be committed only while the table's mark *is* `expected`
   (the fence). A writer whose partition has moved on finds another mark there and is refused; so is
   a second copy of itself.
2. Marks only go forward, and a commit carries the marks of *all* groups and partitions forward, so
   that expiring old snapshots cannot lose an idle partition.
3. Of several tables fed by one topic, the topic's own table is committed last: its mark is the
   least. A crash in between makes the next owner begin at the least mark, and each other table
   trims the records that lie below its own mark. So every table gets every record once, whatever
   the order of crashes.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets import offset_codec
from trimtab.consumer_sdk.lake.offsets.offset_gaps import OffsetGap, clip_gaps

OFFSETS_PROPERTY: Final = "trimtab.offsets"
"""Key of the marks in a snapshot's summary.

Set by hand among a table's properties, it is the value to begin with.
"""

ATTEMPT_PROPERTY: Final = "trimtab.attempt"
"""Key of the attempt's id in a snapshot's summary; tells whether a commit went through."""


@dataclass(frozen=True, slots=True)
class OffsetSpan:
    """The records of one partition in a batch: from `first` to before `next`.

    `expected` is the mark that the table must have for the span to be added; None: the table does
    not know the partition. `gaps` are the offsets below `next` that could not be read any more.
    """

    expected: int | None
    first: int
    next: int
    gaps: tuple[OffsetGap, ...] = ()


@dataclass(frozen=True, slots=True)
class OffsetConflict:
    """A partition whose mark is not the expected one: somebody else has gone on with it."""

    partition: TopicPartition
    expected: int | None
    actual: int | None

    def __str__(self) -> str:
        expected, found = _format_offset(self.expected), _format_offset(self.actual)
        return f"{self.partition}: expected {expected}, the table has {found}"


@dataclass(frozen=True, slots=True)
class CommittedOffsets:
    """All marks of one table; immutable."""

    groups: Mapping[str, Mapping[TopicPartition, int]] = field(
        default_factory=dict[str, Mapping[TopicPartition, int]]
    )

    def next_offset(self, group: str, partition: TopicPartition) -> int | None:
        """Return the next offset that the table lacks.

        None where it does not know the partition.
        """
        return self.groups.get(group, {}).get(partition)

    def topics_of(self, group: str) -> frozenset[str]:
        """Return the topics that a group has written into the table."""
        return frozenset(partition.topic for partition in self.groups.get(group, {}))

    def find_conflicts(
        self, group: str, spans: Mapping[TopicPartition, OffsetSpan]
    ) -> tuple[OffsetConflict, ...]:
        """Return every partition that may not be added (rule 1); empty: go ahead."""
        found = (
            (p, span.expected, self.next_offset(group, p)) for p, span in sorted(spans.items())
        )
        return tuple(
            OffsetConflict(p, expected, mark) for p, expected, mark in found if expected != mark
        )

    def advanced_by(
        self, group: str, spans: Mapping[TopicPartition, OffsetSpan]
    ) -> "CommittedOffsets":
        """Return the marks after these spans; none goes back, none is dropped (rule 2)."""
        mine = dict(self.groups.get(group, {}))
        for partition, span in spans.items():
            mine[partition] = max(span.next, mine.get(partition, span.next))
        return CommittedOffsets({**self.groups, group: mine})

    def encode(self) -> str:
        """Return JSON; equal marks give equal text."""
        return offset_codec.encode_groups(self.groups, int)

    @classmethod
    def decode(cls, text: str, where: str) -> "CommittedOffsets":
        """Read JSON.

        Raises CommittedOffsetsLostError, naming the table, for text that is not marks of this version.
        """
        try:
            return cls(offset_codec.decode_groups(text, int))
        except offset_codec.OFFSET_DECODE_ERRORS as error:
            raise CommittedOffsetsLostError(
                f"table {where}: {OFFSETS_PROPERTY} is not legible ({error}): {text[:120]!r}; it "
                "was written by a newer "
                "Trimtab (upgrade this one) or changed by hand (put it right)"
            ) from error


def trim_spans(
    group: str, offsets: CommittedOffsets, spans: Mapping[TopicPartition, OffsetSpan]
) -> dict[TopicPartition, OffsetSpan]:
    """Return what of these spans another table still lacks (rule 3).

    With its own marks as the expected ones.
    """
    left: dict[TopicPartition, OffsetSpan] = {}
    for partition, span in spans.items():
        mark = offsets.next_offset(group, partition)
        first = span.first if mark is None else max(mark, span.first)
        if first < span.next:
            left[partition] = OffsetSpan(mark, first, span.next, clip_gaps(span.gaps, mark))
    return left


def gaps_before(
    spans: Mapping[TopicPartition, OffsetSpan],
) -> dict[TopicPartition, tuple[OffsetGap, ...]]:
    """Return the gaps in front of these spans, of the partitions that have some."""
    return {partition: span.gaps for partition, span in spans.items() if span.gaps}


def next_offsets(spans: Mapping[TopicPartition, OffsetSpan]) -> dict[TopicPartition, int]:
    """Return the marks that a table has once these spans are in."""
    return {partition: span.next for partition, span in spans.items()}


def describe_conflicts(conflicts: Iterable[OffsetConflict]) -> str:
    """Return what was found, for a log line."""
    return "; ".join(map(str, conflicts))


def _format_offset(offset: int | None) -> str:
    return "nothing" if offset is None else str(offset)
