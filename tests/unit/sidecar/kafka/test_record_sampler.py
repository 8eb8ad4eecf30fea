"""Order in which partitions are sampled."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.kafka import record_sampler
from trimtab.sidecar.kafka.cluster_client import ClusterClient
from trimtab.sidecar.kafka.record_sampler import MAX_SAMPLED_PARTITIONS, RecordSampler


def test_unresponsive_partitions_do_not_starve_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unresponsive partition is sampled again after all others."""
    silent = [TopicPartition("a", n) for n in range(MAX_SAMPLED_PARTITIONS)]
    responsive = TopicPartition("b", 0)
    sampled: list[TopicPartition] = []
    sampler = RecordSampler({"bootstrap.servers": "localhost:1"})
    monkeypatch.setattr(sampler, "_read_newest_records", lambda starts, _: sampled.extend(starts) or [])
    monkeypatch.setattr(record_sampler, "_group_sizes_by_partition", lambda _: {})
    ends = dict.fromkeys([*silent, responsive], 100)
    begins = dict.fromkeys(ends, 0)
    sampler.sample_record_sizes(ends, begins, 0.0)
    assert responsive not in sampled
    sampler.sample_record_sizes(ends, begins, 1.0)
    sampler.close()
    assert responsive in sampled


def test_a_record_with_unreadable_headers_counts_without_them() -> None:
    """A header name that is not UTF-8 must not end the measurement."""
    message = Mock(
        **{"headers.side_effect": SystemError, "key.return_value": b"k", "value.return_value": b"vv"}
    )
    assert record_sampler._compute_size(message) == 3


def test_partitions_of_deleted_topics_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group-pattern sees short-lived topics come and go for months."""
    sampler = RecordSampler({"bootstrap.servers": "localhost:1"})
    monkeypatch.setattr(sampler, "_read_newest_records", lambda *_: [])
    monkeypatch.setattr(record_sampler, "_group_sizes_by_partition", lambda _: {p: [1] for p in ends})
    for hour in range(5):
        ends = {TopicPartition(f"t{hour}", 0): 1}
        sampler.sample_record_sizes(ends, dict.fromkeys(ends, 0), 3600.0 * hour)
    sampler.close()
    assert (set(sampler._attempted_at), set(sampler._sampled_at)) == (set(ends), set(ends))


def test_a_cluster_client_keeps_the_partitions_that_exist() -> None:
    """The objects of the others are those of the groups that still name them."""
    client = object.__new__(ClusterClient)
    client._interned, client._timeout, client._replica_brokers = {}, 1.0, {}
    partition = SimpleNamespace(leader=1, replicas=[1])
    for number in range(5):
        topics = {f"t{number}": SimpleNamespace(error=None, partitions={0: partition})}
        found = SimpleNamespace(topics=topics)
        client._admin = Mock(**{"list_topics.return_value": found})
        client.fetch_cluster_metadata()
        client.intern("deleted", number)
    assert {p.topic for p in client._interned} == {"t4", "deleted"}
    assert len(client._interned) == 2
