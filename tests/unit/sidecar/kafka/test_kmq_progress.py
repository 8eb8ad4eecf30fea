"""In-flight messages of a `kmq` queue, from what any client may have committed in the trackers' group."""

from typing import Any
from unittest.mock import Mock

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.sidecar.kafka.broker_client import GroupCommits
from trimtab.sidecar.kafka.cluster_client import PartitionOffsets
from trimtab.sidecar.kafka.kmq_progress import KmqProgressReader
from trimtab.sidecar.model.queue_backlog import NO_IN_FLIGHT_MESSAGES

OLD, NEW = TopicPartition("t", 0), TopicPartition("t", 1)
MARKERS = TopicPartition("t.g.markers", 0)


def build_reader(metadata: str) -> KmqProgressReader:
    """Return a reader of one tracker's commit."""
    client = Mock()
    client.fetch_group_commits.return_value = GroupCommits(metadata={MARKERS: metadata})
    return KmqProgressReader("t.g.markers", client, SystemClock())


def fetch_end_offsets(partitions: Any) -> PartitionOffsets:
    """Return offset 4 of the markers' partition; the broker knows no other."""
    failed = tuple(f"{p}: no leader" for p in partitions if p != MARKERS)
    return PartitionOffsets({MARKERS: 4}, failed)


def test_a_partition_without_markers_has_nothing_in_flight() -> None:
    """After partitions were added to the messages, the count stays known, and the last worker can stop."""
    reader = build_reader('{"read":4,"working":0,"returned":0}')
    progress = reader.read_progress([OLD, NEW], {OLD, NEW, MARKERS}, fetch_end_offsets)
    assert progress.errors == ()
    assert progress.in_flight[NEW] == NO_IN_FLIGHT_MESSAGES
    assert progress.in_flight[OLD].is_exact


@pytest.mark.parametrize("metadata", ["[" * 100_000, '{"read":4,"working":' + "9" * 400 + ',"returned":0}'])
def test_commit_metadata_of_another_program_is_unknown(metadata: str) -> None:
    """Without a tracker's metadata the number in flight is unknown."""
    progress = build_reader(metadata).read_progress([OLD], {OLD, MARKERS}, fetch_end_offsets)
    assert progress.in_flight[OLD].open_messages is None
