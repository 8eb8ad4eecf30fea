"""Order in which partitions are sampled."""

from unittest.mock import Mock

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.kafka import record_sampler
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
