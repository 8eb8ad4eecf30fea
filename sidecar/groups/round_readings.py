"""Readings of one round: the cluster's metadata, and offsets asked once for each topic of all groups."""

from collections.abc import Callable, Collection, Iterable, Mapping
from threading import Lock
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.kafka.cluster_client import (
    ClusterClient,
    ClusterMetadata,
    OffsetRequest,
    PartitionOffsets,
)
from trimtab.sidecar.kafka.group_batches import GroupReading
from trimtab.sidecar.readings.group_monitor import match_topics

_ENDS: Final = 0
_BEGINNINGS: Final = 1


class RoundReadings:
    """Filled by the thread of the rounds and by those of the groups, which read it; `_asking` is its lock."""

    def __init__(self, cluster: ClusterClient, metadata: ClusterMetadata) -> None:
        self.metadata = metadata
        self.readings: dict[str, GroupReading] = {}
        self._cluster = cluster
        self._requests: dict[str, tuple[OffsetRequest, OffsetRequest]] = {}  # by topic: ends, beginnings
        self._asking = Lock()

    def add_readings(
        self, readings: Mapping[str, GroupReading], topics_of: Mapping[str, Collection[str]]
    ) -> None:
        """Add groups, and ask for the offsets of those of their topics that were not asked for yet.

        `topics_of` are the topics that the groups' settings name, or patterns.
        """
        self.readings.update(readings)
        topics: set[str] = set()
        for group, reading in readings.items():
            topics |= self._list_topics(reading, topics_of.get(group, ()))
        self.request_topics(topics)

    def request_topics(self, topics: Iterable[str]) -> None:
        """Ask for the offsets of these topics, unless that was done in this round."""
        with self._asking:
            wanted = [t for t in topics if t not in self._requests and t in self.metadata.leaders_by_topic]
            if partitions := list(self.metadata.select_leaders(wanted)):
                ends = self._cluster.request_end_offsets(partitions)
                begins = self._cluster.request_beginning_offsets(partitions)
                self._requests.update(dict.fromkeys(wanted, (ends, begins)))

    def collect_ends(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Wait for the end offsets of these partitions."""
        return self._collect(_ENDS, partitions)

    def collect_beginnings(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Wait for the beginning offsets of these partitions."""
        return self._collect(_BEGINNINGS, partitions)

    def list_requested_topics(self) -> tuple[str, ...]:
        """Return the topics asked for in this round."""
        return tuple(self._requests)

    def peek_offsets(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Return end and beginning offsets that have arrived, without waiting."""
        wanted = tuple(partitions)
        return self._peek(_ENDS, wanted), self._peek(_BEGINNINGS, wanted)

    def _list_topics(self, reading: GroupReading, named: Collection[str]) -> set[str]:
        if named:
            return set(match_topics(tuple(named), self.metadata.leaders_by_topic)[0])
        group, _ = reading.describe()
        owned = {p.topic for member in group.members for p in member.owned_partitions}
        return owned | {p.topic for p in reading.commits.offsets}

    def _collect(self, kind: int, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        by_request: dict[OffsetRequest, list[TopicPartition]] = {}
        wanted = tuple(partitions)
        self.request_topics({p.topic for p in wanted})
        for partition in wanted:
            if partition.topic in self._requests:
                by_request.setdefault(self._requests[partition.topic][kind], []).append(partition)
        answers = [request.collect(chosen) for request, chosen in by_request.items()]
        values = {p: offset for answer in answers for p, offset in answer.values.items()}
        errors = tuple(error for answer in answers for error in answer.errors)
        read_at = max((a.read_at for a in answers if a.read_at is not None), default=None)
        return PartitionOffsets(values, errors, read_at)

    def _peek(self, kind: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        requests = ((p, self._requests[p.topic][kind]) for p in partitions if p.topic in self._requests)
        return {p: offset for p, request in requests if (offset := request.peek(p)) is not None}


ReadyCallback = Callable[[RoundReadings, Collection[str]], None]
