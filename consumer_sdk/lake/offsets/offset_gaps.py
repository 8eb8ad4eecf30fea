"""Gaps: offsets that a table lacks permanently, because they expired before they were read.

The table property `trimtab.gaps` records them per (group, topic, partition), in the commit that
adds the first records behind a gap. Rules:

1. A hole of the log (compaction, transaction markers) is no gap; offsets that the consumer had to
   skip are (`offset_reset`).
2. Adjacent gaps are merged. A table keeps the `MAX_TRACKED_RANGES` newest ranges of a partition and
   the offset count of older ones, so the sum stays exact and the property small.
3. Each table of a topic has its own gaps: those at or above its own offset.

Gaps are counted in offsets; some of them may have had no record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.offsets import offset_codec

GAPS_PROPERTY: Final = "trimtab.gaps"
MAX_TRACKED_RANGES: Final = 50  # per partition


class OffsetGap(NamedTuple):
    """Offsets from `first` to before `next`."""

    first: int
    next: int

    @property
    def offset_count(self) -> int:
        """Number of offsets in the gap."""
        return self.next - self.first


@dataclass(frozen=True, slots=True)
class MissingOffsets:
    """Missing offsets of one partition."""

    ranges: tuple[OffsetGap, ...] = ()  # disjoint, ascending
    untracked_count: int = 0  # in older ranges, which are no longer kept

    @property
    def offset_count(self) -> int:
        """Number of missing offsets, untracked ones included."""
        return self.untracked_count + sum(gap.offset_count for gap in self.ranges)

    def with_gaps(self, gaps: Iterable[OffsetGap]) -> "MissingOffsets":
        """Return this with more gaps (rule 2)."""
        merged = merge_gaps((*self.ranges, *gaps))
        dropped = merged[:-MAX_TRACKED_RANGES]
        untracked = self.untracked_count + sum(gap.offset_count for gap in dropped)
        return MissingOffsets(merged[-MAX_TRACKED_RANGES:], untracked)


MissingByPartition: TypeAlias = Mapping[TopicPartition, MissingOffsets]


@dataclass(frozen=True, slots=True)
class TableGaps:
    """All gaps of one table; immutable."""

    groups: Mapping[str, MissingByPartition] = field(default_factory=dict[str, MissingByPartition])

    def missing_offsets(self, group: str, partition: TopicPartition) -> MissingOffsets:
        """Return the missing offsets of a partition; empty if no gap is recorded."""
        return self.groups.get(group, {}).get(partition, MissingOffsets())

    def with_group_gaps(self, group: str, new: Mapping[TopicPartition, Iterable[OffsetGap]]) -> "TableGaps":
        """Return this with a group's new gaps."""
        mine = {p: self.missing_offsets(group, p).with_gaps(gaps) for p, gaps in new.items()}
        return TableGaps({**self.groups, group: {**self.groups.get(group, {}), **mine}})

    def encode(self) -> str:
        """Return JSON; equal gaps give equal text."""
        return offset_codec.encode_groups(self.groups, _encode_missing)

    @classmethod
    def decode(cls, text: str | None, where: str) -> "TableGaps":
        """Parse JSON of table `where`; empty text is no gaps. Raises CommittedOffsetsLostError."""
        if not text:
            return cls()
        try:
            return cls(offset_codec.decode_groups(text, _decode_missing))
        except offset_codec.OFFSET_DECODE_ERRORS as error:
            raise CommittedOffsetsLostError(
                f"table {where}: its property {GAPS_PROPERTY} cannot be read ({error}): "
                f"{text[:120]!r}; a newer Trimtab wrote it (upgrade this one) or it was changed by "
                f"hand (correct it, or drop the gaps: ALTER TABLE {where} UNSET TBLPROPERTIES "
                f"('{GAPS_PROPERTY}'))"
            ) from error


def merge_gaps(gaps: Iterable[OffsetGap]) -> tuple[OffsetGap, ...]:
    """Return gaps in ascending order, with overlapping and adjacent ones merged."""
    merged: list[OffsetGap] = []
    for gap in sorted(gaps):
        if merged and gap.first <= merged[-1].next:
            merged[-1] = OffsetGap(merged[-1].first, max(merged[-1].next, gap.next))
        else:
            merged.append(gap)
    return tuple(merged)


def clip_gaps(gaps: Iterable[OffsetGap], committed: int | None) -> tuple[OffsetGap, ...]:
    """Return the parts of gaps at or above an offset (rule 3); all of them for None."""
    if committed is None:
        return tuple(gaps)
    return tuple(OffsetGap(max(gap.first, committed), gap.next) for gap in gaps if gap.next > committed)


def skip_gaps(gaps: Iterable[OffsetGap], offset: int | None) -> int | None:
    """Return the first offset at or after this one that is not in a gap."""
    for gap in gaps:
        if offset is not None and gap.first <= offset < gap.next:
            offset = gap.next
    return offset


def _encode_missing(missing: MissingOffsets) -> dict[str, Any]:
    return {"ranges": missing.ranges, "older": missing.untracked_count}


def _decode_missing(body: Mapping[str, Any]) -> MissingOffsets:
    ranges = tuple(_decode_gap(*gap) for gap in body["ranges"])
    if ranges != merge_gaps(ranges):
        raise ValueError("its ranges are not disjoint and ascending")
    return MissingOffsets(ranges, offset_codec.read_offset(body["older"]))


def _decode_gap(first: object, following: object) -> OffsetGap:
    gap = OffsetGap(offset_codec.read_offset(first), offset_codec.read_offset(following))
    if gap.first >= gap.next:
        raise ValueError(f"the range {list(gap)} is empty")
    return gap
