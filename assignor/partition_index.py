"""Partitions as dense integers: the topics of a decision sorted, each one's numbers ascending.

`Universe` numbers them 0 to P-1 in that order, so an array over partitions needs no names, and what
is written in order of index is sorted as the Kafka protocol's readers expect. `Holding` is what one
member says it reads, by topic, before a universe is known.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

import numpy as np

from trimtab.assignor.model import NOBODY, IntArray, TopicPartition

NOWHERE: Final = -1
"""Index of a partition that is not in the universe."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """Partitions by name in arrays: E topics, the k-th with `counts[k]` of the N numbers."""

    topics: tuple[str, ...] = ()  # (E,) need be neither sorted nor distinct
    counts: tuple[int, ...] = ()  # (E,)
    number: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int32))  # (N,)

    @classmethod
    def of(cls, grouped: Iterable[tuple[str, Sequence[int]]]) -> "Holding":
        """Take partitions grouped by topic. Raises OverflowError for a number that is no int32."""
        entries = tuple(grouped)
        numbers = chain.from_iterable(numbers for _, numbers in entries)
        return cls(
            tuple(topic for topic, _ in entries),
            tuple(len(numbers) for _, numbers in entries),
            np.array(list(numbers), dtype=np.int32),
        )

    def numbers(self, topic: str) -> IntArray:
        """Return the numbers of one topic."""
        of_topic = np.repeat([t == topic for t in self.topics], self.counts).astype(np.bool_)
        return self.number[of_topic]


@dataclass(frozen=True, slots=True, eq=False)
class Universe:
    """P partitions of T topics; partition `index` is `number[index]` of `topics[topic[index]]`."""

    topics: tuple[str, ...]  # (T,) sorted; each has a partition
    start: IntArray  # (T + 1,) index of each topic's first partition, and P
    topic: IntArray  # (P,)
    number: IntArray  # (P,) ascending within a topic

    @classmethod
    def of(cls, numbers: Mapping[str, IntArray]) -> "Universe":
        """Take each topic's partition numbers, in any order."""
        topics = tuple(sorted(topic for topic, found in numbers.items() if len(found)))
        columns = [_ascending(numbers[topic]) for topic in topics]
        sizes = np.array([0, *map(len, columns)], dtype=np.int32)
        nothing = np.empty(0, dtype=np.int32)
        return cls(
            topics,
            np.cumsum(sizes, dtype=np.int32),
            np.repeat(np.arange(len(topics), dtype=np.int32), sizes[1:]),
            np.concatenate([nothing, *columns]),
        )

    @classmethod
    def named(cls, partitions: Iterable[TopicPartition]) -> "Universe":
        """Take partitions by name, in any order."""
        numbers: dict[str, list[int]] = {}
        for topic, number in partitions:
            numbers.setdefault(topic, []).append(number)
        return cls.of({topic: np.array(found, dtype=np.int32) for topic, found in numbers.items()})

    def __len__(self) -> int:
        return len(self.number)

    def name(self, index: int) -> TopicPartition:
        """Return a partition by name."""
        return TopicPartition(self.topics[self.topic[index]], int(self.number[index]))

    def names(self) -> list[TopicPartition]:
        """Return all by name; what is to be fast does without."""
        pairs = zip(self.topic.tolist(), self.number.tolist(), strict=True)
        return [TopicPartition(self.topics[topic], number) for topic, number in pairs]

    def find(self, topic: IntArray, number: IntArray) -> IntArray:
        """Return the index of each, NOWHERE for what is not here; a topic may be NOWHERE too."""
        if not len(self):
            return np.full(len(number), NOWHERE, dtype=np.int32)
        guess = self.start[topic] + number.astype(np.int64)  # right where no number is missing
        inside = (topic != NOWHERE) & (number >= 0) & (guess < self.start[topic + 1])
        found = np.where(inside, guess, 0)
        right = inside & (self.number[found] == number)
        if not right.all():
            found[~right] = self._search(topic[~right], number[~right])
        return found.astype(np.int32)

    def locate(self, holdings: Sequence[Holding]) -> tuple[IntArray, IntArray]:
        """Return (holding, partition) of everything held that is here, as two arrays."""
        index = {topic: i for i, topic in enumerate(self.topics)}
        topic = [index.get(t, NOWHERE) for holding in holdings for t in holding.topics]
        counts = [count for holding in holdings for count in holding.counts]
        sizes = [len(holding.number) for holding in holdings]
        number = np.concatenate([np.empty(0, dtype=np.int32), *(h.number for h in holdings)])
        found = self.find(np.repeat(np.array(topic, dtype=np.int32), counts), number)
        here = found != NOWHERE
        return np.repeat(np.arange(len(holdings), dtype=np.int32), sizes)[here], found[here]

    def _search(self, topic: IntArray, number: IntArray) -> IntArray:
        """Find what has gaps before it, or is not here at all."""
        keys = _key(self.topic, self.number)
        wanted = _key(topic, number)
        place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[place] == wanted, place, NOWHERE).astype(np.int32)


def owners_of(member: IntArray, partition: IntArray, size: int) -> IntArray:
    """Return who holds each of `size` partitions, the last of the holders; NOBODY if none."""
    owner = np.full(size, NOBODY, dtype=np.int32)
    owner[partition] = member
    return owner


def _ascending(numbers: IntArray) -> IntArray:
    """Return the numbers sorted and each once; nearly always they are already."""
    return numbers if (np.diff(numbers) > 0).all() else np.unique(numbers)


def _key(topic: IntArray, number: IntArray) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return (topic.astype(np.int64) << 32) + number
