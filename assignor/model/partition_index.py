"""Partitions as dense integers, sorted by topic and number, so that arrays over them need no names."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, repeat
from typing import Final

import numpy as np

from trimtab.assignor.model import UNASSIGNED, IntArray, LongArray, TopicPartition

NOT_INDEXED: Final = -1  # index of a topic or partition outside the `PartitionIndex`


@dataclass(frozen=True, slots=True, eq=False)
class OwnedPartitions:
    """Partitions that a member claims: E topics, the k-th with `counts[k]` of the N numbers."""

    topics: tuple[str, ...] = ()  # (E,) in any order, with repeats
    counts: tuple[int, ...] = ()  # (E,)
    number: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int32))  # (N,)

    @classmethod
    def from_grouped(cls, grouped: Iterable[tuple[str, Sequence[int]]]) -> "OwnedPartitions":
        """Build from partitions grouped by topic. Raises OverflowError for a number above int32."""
        entries = tuple(grouped)
        numbers = chain.from_iterable(numbers for _, numbers in entries)
        return cls(
            tuple(topic for topic, _ in entries),
            tuple(len(numbers) for _, numbers in entries),
            np.array(list(numbers), dtype=np.int32),
        )

    def list_partitions(self) -> list[TopicPartition]:
        """Return the partitions by name, in the member's order; slow for many partitions."""
        names = chain.from_iterable(map(repeat, self.topics, self.counts))
        return list(map(TopicPartition, names, self.number.tolist()))

    def numbers_of_topic(self, topic: str) -> IntArray:
        """Return the partition numbers of one topic, in the member's order."""
        of_topic = np.repeat([t == topic for t in self.topics], self.counts).astype(np.bool_)
        return self.number[of_topic]


@dataclass(frozen=True, eq=False)  # without slots, for the cached names
class PartitionIndex:
    """P partitions of T topics; partition `index` is `number[index]` of `topics[topic[index]]`."""

    topics: tuple[str, ...]  # (T,) sorted, each with a partition
    start: IntArray  # (T + 1,) index of each topic's first partition, and P
    topic: IntArray  # (P,)
    number: IntArray  # (P,) ascending within a topic

    @classmethod
    def from_numbers(cls, numbers: Mapping[str, IntArray]) -> "PartitionIndex":
        """Build from each topic's partition numbers, in any order."""
        topics = tuple(sorted(topic for topic, found in numbers.items() if len(found)))
        columns = [_sort_unique(numbers[topic]) for topic in topics]
        sizes = np.array([0, *map(len, columns)], dtype=np.int32)
        topic = np.repeat(np.arange(len(topics), dtype=np.int32), sizes[1:])
        return cls(topics, np.cumsum(sizes, dtype=np.int32), topic, _concatenate(columns))

    @classmethod
    def from_partitions(cls, partitions: Iterable[TopicPartition]) -> "PartitionIndex":
        """Build from partitions by name, in any order."""
        numbers: dict[str, list[int]] = {}
        for topic, number in partitions:
            numbers.setdefault(topic, []).append(number)
        return cls.from_numbers({topic: np.array(found, dtype=np.int32) for topic, found in numbers.items()})

    def __len__(self) -> int:
        return len(self.number)

    def partition_at(self, index: int) -> TopicPartition:
        """Return a partition by name."""
        return TopicPartition(self.topics[self.topic[index]], int(self.number[index]))

    def find_partition(self, partition: TopicPartition) -> int:
        """Return the index of a partition by name, NOT_INDEXED if absent."""
        if partition.topic not in self.topics:
            return NOT_INDEXED
        topic = np.array([self.topics.index(partition.topic)], dtype=np.int32)
        return int(self.find_indexes(topic, np.array([partition.partition], dtype=np.int32))[0])

    def list_partitions(self) -> tuple[TopicPartition, ...]:
        """Return all partitions by name; slow for many partitions, once."""
        return self._names

    @cached_property
    def _names(self) -> tuple[TopicPartition, ...]:
        topics = map(self.topics.__getitem__, self.topic.tolist())
        return tuple(map(TopicPartition._make, zip(topics, self.number.tolist(), strict=True)))

    def find_indexes(self, topic: IntArray, number: IntArray) -> IntArray:
        """Return the index of each partition, NOT_INDEXED if absent; a topic may be NOT_INDEXED."""
        if not len(self):
            return np.full(len(number), NOT_INDEXED, dtype=np.int32)
        # Partition numbers rarely have gaps, so an addition finds nearly all without a search.
        guess = self.start[topic] + number.astype(np.int64)
        inside = (topic != NOT_INDEXED) & (number >= 0) & (guess < self.start[topic + 1])
        found = np.where(inside, guess, 0)
        right = inside & (self.number[found] == number)
        if not right.all():
            found[~right] = self._search_sparse(topic[~right], number[~right])
        return found.astype(np.int32)

    def locate_owned(self, owned_by_member: Sequence[OwnedPartitions]) -> tuple[IntArray, IntArray]:
        """Return (member, index) of every owned partition in the index, as two arrays."""
        index = {topic: i for i, topic in enumerate(self.topics)}
        topic = [index.get(t, NOT_INDEXED) for owned in owned_by_member for t in owned.topics]
        counts = [count for owned in owned_by_member for count in owned.counts]
        sizes = [len(owned.number) for owned in owned_by_member]
        number = _concatenate([owned.number for owned in owned_by_member])
        found = self.find_indexes(np.repeat(np.array(topic, dtype=np.int32), counts), number)
        here = found != NOT_INDEXED
        return np.repeat(np.arange(len(owned_by_member), dtype=np.int32), sizes)[here], found[here]

    def _search_sparse(self, topic: IntArray, number: IntArray) -> IntArray:
        """Find partitions that follow a gap, or are absent, by binary search."""
        keys = _sort_key(self.topic, self.number)
        sought = _sort_key(topic, number)
        place = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
        return np.where(keys[place] == sought, place, NOT_INDEXED).astype(np.int32)


def index_owners(member: IntArray, partition: IntArray, size: int) -> IntArray:
    """Return the last listed owner of each of `size` partitions; UNASSIGNED without one."""
    owner = np.full(size, UNASSIGNED, dtype=np.int32)
    owner[partition] = member
    return owner


def _sort_unique(numbers: IntArray) -> IntArray:
    # Clients list partitions in order: a check is cheaper than a sort.
    return numbers if (np.diff(numbers) > 0).all() else np.unique(numbers)


def _concatenate(columns: Sequence[IntArray]) -> IntArray:
    return np.concatenate([np.empty(0, dtype=np.int32), *columns])  # numpy refuses an empty list


def _sort_key(topic: IntArray, number: IntArray) -> LongArray:
    return (topic.astype(np.int64) << 32) + number
