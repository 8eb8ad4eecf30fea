"""Gaps: the offsets that a table lacks for good, because they were gone before they were read.

A gap is noted in the table's property `trimtab.gaps`, in the very commit that adds the first
records behind it, per (group, topic, partition). The rules:

1. A hole in the log is no gap: what compaction has removed and the markers of transactions were
   never to be read. Only what the consumer was refused and had to skip counts (`resets`).
2. Gaps that touch are one. A table remembers the `MAX_TRACKED_RANGES` newest of each partition; of older ones it
   keeps how many offsets they had, so that the sum stays right and the property small.
3. Of several tables fed by one topic each has its own: what lies at or above its own mark.

A gap is counted in offsets: some of them may have had no record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets import offset_codec

GAPS_PROPERTY: Final = "trimtab.gaps"
"""Key of the gaps among a table's properties."""

MAX_TRACKED_RANGES: Final = 50
"""Ranges that are remembered of each partition."""


class OffsetGap(NamedTuple):
    """Offsets from `first` to before `next`."""

    first: int
    next: int

    @property
    def offset_count(self) -> int:
        """How many offsets are gone."""
        return self.next - self.first


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """What a table lacks of one partition: ranges, rising and apart.

    `untracked_count` is how many offsets lay in ranges that are no longer remembered.
    """

    ranges: tuple[OffsetGap, ...] = ()
    untracked_count: int = 0

    @property
    def offset_count(self) -> int:
        """How many offsets are missing in all."""
        return self.untracked_count + sum(gap.offset_count for gap in self.ranges)

    def with_gaps(self, gaps: Iterable[OffsetGap]) -> "MissingOffsets":
        """Return this with more gaps (rule 2)."""
        every = merge_gaps((*self.ranges, *gaps))
        forgotten = every[:-MAX_TRACKED_RANGES]
        return MissingOffsets(
            every[-MAX_TRACKED_RANGES:],
            self.untracked_count + sum(gap.offset_count for gap in forgotten),
        )


@dataclass(frozen=True, slots=True)
class TableGaps:
    """All gaps of one table; immutable."""

    groups: Mapping[str, Mapping[TopicPartition, MissingOffsets]] = field(
        default_factory=dict[str, Mapping[TopicPartition, MissingOffsets]]
    )

    def missing_offsets(self, group: str, partition: TopicPartition) -> MissingOffsets:
        """Return what is missing of a partition; nothing where no gap was noted."""
        return self.groups.get(group, {}).get(partition, MissingOffsets())

    def with_group_gaps(
        self, group: str, found: Mapping[TopicPartition, Iterable[OffsetGap]]
    ) -> "TableGaps":
        """Return this with a group's new gaps."""
        mine = {p: self.missing_offsets(group, p).with_gaps(gaps) for p, gaps in found.items()}
        return TableGaps({**self.groups, group: {**self.groups.get(group, {}), **mine}})

    def encode(self) -> str:
        """Return JSON; equal gaps give equal text."""
        return offset_codec.encode_groups(self.groups, _encode_missing)

    @classmethod
    def decode(cls, text: str | None, where: str) -> "TableGaps":
        """Read JSON; no text is no gaps. Raises CommittedOffsetsLostError, naming the table, for another text."""
        if not text:
            return cls()
        try:
            return cls(offset_codec.decode_groups(text, _decode_missing))
        except offset_codec.OFFSET_DECODE_ERRORS as error:
            raise CommittedOffsetsLostError(
                f"table {where}: its property {GAPS_PROPERTY} is not legible ({error}): {text[:120]!r}; "
                "it was written by a newer Trimtab (upgrade this one) or changed by hand (put it "
                f"right, or forget the gaps: ALTER TABLE {where} UNSET TBLPROPERTIES "
                f"('{GAPS_PROPERTY}'))"
            ) from error


def merge_gaps(gaps: Iterable[OffsetGap]) -> tuple[OffsetGap, ...]:
    """Return gaps in rising order; those that overlap or touch become one."""
    apart: list[OffsetGap] = []
    for gap in sorted(gaps):
        if apart and gap.first <= apart[-1].next:
            apart[-1] = OffsetGap(apart[-1].first, max(apart[-1].next, gap.next))
        else:
            apart.append(gap)
    return tuple(apart)


def clip_gaps(gaps: Iterable[OffsetGap], committed: int | None) -> tuple[OffsetGap, ...]:
    """Return what of these gaps lies at or above a mark (rule 3); all of it where there is none."""
    if committed is None:
        return tuple(gaps)
    return tuple(
        OffsetGap(max(gap.first, committed), gap.next) for gap in gaps if gap.next > committed
    )


def skip_gaps(gaps: Iterable[OffsetGap], offset: int | None) -> int | None:
    """Return the first offset at or after this one that is not in a gap."""
    for gap in gaps:
        if offset is not None and gap.first <= offset < gap.next:
            offset = gap.next
    return offset


def _encode_missing(missing: MissingOffsets) -> dict[str, Any]:
    return {"ranges": missing.ranges, "older": missing.untracked_count}


def _decode_missing(body: Mapping[str, Any]) -> MissingOffsets:
    ranges = tuple(OffsetGap(int(first), int(following)) for first, following in body["ranges"])
    return MissingOffsets(ranges, int(body["older"]))
