"""Gaps: the offsets that a table lacks for good, because they were gone before they were read.

A gap is noted in the table's property `trimtab.gaps`, in the very commit that adds the first
records behind it, per (group, topic, partition). The rules:

1. A hole in the log is no gap: what compaction has removed and the markers of transactions were
   never to be read. Only what the consumer was refused and had to skip counts (`resets`).
2. Gaps that touch are one. A table remembers the `MOST` newest of each partition; of older ones it
   keeps how many offsets they had, so that the sum stays right and the property small.
3. Of several tables fed by one topic each has its own: what lies at or above its own mark.

A gap is counted in offsets: some of them may have had no record.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import MarksLost
from trimtab.consumer_sdk.lake.offsets import offset_codec

PROPERTY: Final = "trimtab.gaps"
"""Key of the gaps among a table's properties."""

MOST: Final = 50
"""Ranges that are remembered of each partition."""


class Gap(NamedTuple):
    """Offsets from `first` to before `next`."""

    first: int
    next: int

    @property
    def offsets(self) -> int:
        """How many offsets are gone."""
        return self.next - self.first


@dataclass(frozen=True, slots=True)
class Missing:
    """What a table lacks of one partition: ranges, rising and apart.

    `older` is how many offsets lay in ranges that are no longer remembered.
    """

    ranges: tuple[Gap, ...] = ()
    older: int = 0

    @property
    def offsets(self) -> int:
        """How many offsets are missing in all."""
        return self.older + sum(gap.offsets for gap in self.ranges)

    def plus(self, gaps: Iterable[Gap]) -> "Missing":
        """Return this with more gaps (rule 2)."""
        every = merged((*self.ranges, *gaps))
        forgotten = every[:-MOST]
        return Missing(every[-MOST:], self.older + sum(gap.offsets for gap in forgotten))


@dataclass(frozen=True, slots=True)
class Gaps:
    """All gaps of one table; immutable."""

    groups: Mapping[str, Mapping[TopicPartition, Missing]] = field(
        default_factory=dict[str, Mapping[TopicPartition, Missing]]
    )

    def of(self, group: str, partition: TopicPartition) -> Missing:
        """Return what is missing of a partition; nothing where no gap was noted."""
        return self.groups.get(group, {}).get(partition, Missing())

    def plus(self, group: str, found: Mapping[TopicPartition, Iterable[Gap]]) -> "Gaps":
        """Return this with a group's new gaps."""
        mine = {p: self.of(group, p).plus(gaps) for p, gaps in found.items()}
        return Gaps({**self.groups, group: {**self.groups.get(group, {}), **mine}})

    def encode(self) -> str:
        """Return JSON; equal gaps give equal text."""
        return offset_codec.encode(self.groups, _told)

    @classmethod
    def decode(cls, text: str | None, where: str) -> "Gaps":
        """Read JSON; no text is no gaps. Raises MarksLost, naming the table, for another text."""
        if not text:
            return cls()
        try:
            return cls(offset_codec.decode(text, _read))
        except offset_codec.ILLEGIBLE as error:
            raise MarksLost(
                f"table {where}: its property {PROPERTY} is not legible ({error}): {text[:120]!r}; "
                "it was written by a newer Trimtab (upgrade this one) or changed by hand (put it "
                f"right, or forget the gaps: ALTER TABLE {where} UNSET TBLPROPERTIES "
                f"('{PROPERTY}'))"
            ) from error


def merged(gaps: Iterable[Gap]) -> tuple[Gap, ...]:
    """Return gaps in rising order; those that overlap or touch become one."""
    apart: list[Gap] = []
    for gap in sorted(gaps):
        if apart and gap.first <= apart[-1].next:
            apart[-1] = Gap(apart[-1].first, max(apart[-1].next, gap.next))
        else:
            apart.append(gap)
    return tuple(apart)


def above(gaps: Iterable[Gap], mark: int | None) -> tuple[Gap, ...]:
    """Return what of these gaps lies at or above a mark (rule 3); all of it where there is none."""
    if mark is None:
        return tuple(gaps)
    return tuple(Gap(max(gap.first, mark), gap.next) for gap in gaps if gap.next > mark)


def beyond(gaps: Iterable[Gap], offset: int | None) -> int | None:
    """Return the first offset at or after this one that is not in a gap."""
    for gap in gaps:
        if offset is not None and gap.first <= offset < gap.next:
            offset = gap.next
    return offset


def _told(missing: Missing) -> dict[str, Any]:
    return {"ranges": missing.ranges, "older": missing.older}


def _read(known: Mapping[str, Any]) -> Missing:
    ranges = tuple(Gap(int(first), int(following)) for first, following in known["ranges"])
    return Missing(ranges, int(known["older"]))
