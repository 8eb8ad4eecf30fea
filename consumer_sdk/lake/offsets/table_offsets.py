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
from trimtab.consumer_sdk.errors import MarksLost
from trimtab.consumer_sdk.lake.offsets import offset_codec
from trimtab.consumer_sdk.lake.offsets.offset_gaps import Gap, above

PROPERTY: Final = "trimtab.offsets"
"""Key of the marks in a snapshot's summary.

Set by hand among a table's properties, it is the value to begin with.
"""

ATTEMPT: Final = "trimtab.attempt"
"""Key of the attempt's id in a snapshot's summary; tells whether a commit went through."""


@dataclass(frozen=True, slots=True)
class Span:
    """The records of one partition in a batch: from `first` to before `next`.

    `expected` is the mark that the table must have for the span to be added; None: the table does
    not know the partition. `gaps` are the offsets below `next` that could not be read any more.
    """

    expected: int | None
    first: int
    next: int
    gaps: tuple[Gap, ...] = ()


@dataclass(frozen=True, slots=True)
class Clash:
    """A partition whose mark is not the expected one: somebody else has gone on with it."""

    partition: TopicPartition
    expected: int | None
    found: int | None

    def __str__(self) -> str:
        expected, found = _offset(self.expected), _offset(self.found)
        return f"{self.partition}: expected {expected}, the table has {found}"


@dataclass(frozen=True, slots=True)
class Marks:
    """All marks of one table; immutable."""

    groups: Mapping[str, Mapping[TopicPartition, int]] = field(
        default_factory=dict[str, Mapping[TopicPartition, int]]
    )

    def of(self, group: str, partition: TopicPartition) -> int | None:
        """Return the next offset that the table lacks.

        None where it does not know the partition.
        """
        return self.groups.get(group, {}).get(partition)

    def topics(self, group: str) -> frozenset[str]:
        """Return the topics that a group has written into the table."""
        return frozenset(partition.topic for partition in self.groups.get(group, {}))

    def clashes(self, group: str, spans: Mapping[TopicPartition, Span]) -> tuple[Clash, ...]:
        """Return every partition that may not be added (rule 1); empty: go ahead."""
        found = ((p, span.expected, self.of(group, p)) for p, span in sorted(spans.items()))
        return tuple(Clash(p, expected, mark) for p, expected, mark in found if expected != mark)

    def advanced(self, group: str, spans: Mapping[TopicPartition, Span]) -> "Marks":
        """Return the marks after these spans; none goes back, none is dropped (rule 2)."""
        mine = dict(self.groups.get(group, {}))
        for partition, span in spans.items():
            mine[partition] = max(span.next, mine.get(partition, span.next))
        return Marks({**self.groups, group: mine})

    def encode(self) -> str:
        """Return JSON; equal marks give equal text."""
        return offset_codec.encode(self.groups, int)

    @classmethod
    def decode(cls, text: str, where: str) -> "Marks":
        """Read JSON.

        Raises MarksLost, naming the table, for text that is not marks of this version.
        """
        try:
            return cls(offset_codec.decode(text, int))
        except offset_codec.ILLEGIBLE as error:
            raise MarksLost(
                f"table {where}: {PROPERTY} is not legible ({error}): {text[:120]!r}; it "
                "was written by a newer "
                "Trimtab (upgrade this one) or changed by hand (put it right)"
            ) from error


def trimmed(
    group: str, marks: Marks, spans: Mapping[TopicPartition, Span]
) -> dict[TopicPartition, Span]:
    """Return what of these spans another table still lacks (rule 3).

    With its own marks as the expected ones.
    """
    left: dict[TopicPartition, Span] = {}
    for partition, span in spans.items():
        mark = marks.of(group, partition)
        first = span.first if mark is None else max(mark, span.first)
        if first < span.next:
            left[partition] = Span(mark, first, span.next, above(span.gaps, mark))
    return left


def lost(spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, tuple[Gap, ...]]:
    """Return the gaps in front of these spans, of the partitions that have some."""
    return {partition: span.gaps for partition, span in spans.items() if span.gaps}


def ends(spans: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
    """Return the marks that a table has once these spans are in."""
    return {partition: span.next for partition, span in spans.items()}


def story(clashes: Iterable[Clash]) -> str:
    """Return what was found, for a log line."""
    return "; ".join(map(str, clashes))


def _offset(mark: int | None) -> str:
    return "nothing" if mark is None else str(mark)
