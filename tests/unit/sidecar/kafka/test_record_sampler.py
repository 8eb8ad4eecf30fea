"""Order in which partitions are sampled."""

import struct
from collections.abc import Iterable, Iterator, Mapping
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.kafka_protocol.errors import MalformedMessageError, RequestTimeoutError, TopicDeniedError
from trimtab.sidecar.kafka import record_sampler
from trimtab.sidecar.kafka.cluster_client import ClusterClient
from trimtab.sidecar.kafka.partition_logs import FetchedBatches, RecordBatch, parse_batches
from trimtab.sidecar.kafka.record_sampler import (
    LEARNING_SAMPLES,
    MAX_SAMPLED_PARTITIONS,
    REPORTED_ATTEMPTS,
    RESAMPLE_INTERVAL_S,
    RecordSampler,
    measure_batches,
)
from trimtab.sidecar.settings.settings import load_settings

T = (TopicPartition("t", 0),)


class Errors(dict[str, Exception]):
    """What the broker answers instead of batches, by topic; that of "" is raised."""


@pytest.fixture
def errors() -> Errors:
    return Errors()


@pytest.fixture
def sampler(monkeypatch: pytest.MonkeyPatch, errors: Errors) -> Iterator[RecordSampler]:
    """Return a sampler whose partitions hold one batch, the ones of topic "silent" none."""
    settings = load_settings(None, {"bootstrap": "localhost:1", "group": "g", "capacity": "1 MB/s"})
    sampler = RecordSampler(settings, SystemClock())
    batch = RecordBatch(0, 1, 100, 1, is_control=False, is_transactional=False)

    def fetch(starts: Mapping[TopicPartition, int], _: object) -> FetchedBatches:
        if "" in errors:
            raise errors[""]
        failed = {p: errors[p.topic] for p in starts if p.topic in errors}
        answered = (p for p in starts if p.topic != "silent" and p not in failed)
        return FetchedBatches(dict.fromkeys(answered, (batch,)), errors=failed)

    def read(batches: Mapping[TopicPartition, object]) -> list[Mock]:
        told = {"error.return_value": None, "headers.return_value": None, "offset.return_value": 0}
        texts = {"key.return_value": b"k", "value.return_value": b"vv"}
        return [
            Mock(**told, **texts, **{"topic.return_value": p.topic, "partition.return_value": p.partition})
            for p in batches
        ]

    monkeypatch.setattr(sampler._logs, "fetch_batches", fetch)
    monkeypatch.setattr(sampler, "_read_records", read)
    yield sampler
    sampler.close()


def sample(
    sampler: RecordSampler, partitions: Iterable[TopicPartition], now: float, end: int = 100
) -> set[str]:
    ends = dict.fromkeys(partitions, end)
    return {
        p.topic for p in sampler.sample_batches(ends, dict.fromkeys(ends, 0), dict.fromkeys(ends, 1), now)
    }


def test_unresponsive_partitions_do_not_starve_others(sampler: RecordSampler) -> None:
    """An unresponsive partition is sampled again after all others."""
    silent = [TopicPartition("silent", n) for n in range(MAX_SAMPLED_PARTITIONS)]
    responsive = TopicPartition("z", 0)
    assert sample(sampler, [*silent, responsive], 0.0) == set()
    assert sample(sampler, [*silent, responsive], 1.0) == {"z"}


def test_of_many_partitions_few_iterations_sample_some(sampler: RecordSampler) -> None:
    """A topic is known by its first partitions; then every sixth iteration of 10 s asks for 64 others."""
    many = [TopicPartition("t", n) for n in range(1_000)]
    sampler._resample_interval = RESAMPLE_INTERVAL_S
    sampled = [bool(sample(sampler, many, 10.0 * n, 100 + n)) for n in range(31)]
    assert sampled == [n % 6 == 0 for n in range(31)]
    assert len(sampler._sampled_at) == 6 * MAX_SAMPLED_PARTITIONS


def test_a_topic_is_sampled_often_until_it_is_known(sampler: RecordSampler) -> None:
    """In an hour fewer samples are taken than one every 30 s; without new records none."""
    one, turns = [TopicPartition("t", 0)], range(360)
    sampler._resample_interval = RESAMPLE_INTERVAL_S
    sampled = [n for n in turns if sample(sampler, one, 10.0 * n, 100 + n)]
    assert sampled[:LEARNING_SAMPLES] == list(range(LEARNING_SAMPLES))
    assert len(sampled) < 3600 / 30
    later = [sample(sampler, one, 4000.0 + 10 * n, 500) for n in range(300)]
    assert later == [{"t"}] + 299 * [set()]


def test_a_recreated_or_truncated_topic_is_sampled_as_a_new_one(sampler: RecordSampler) -> None:
    """Its end is before that of the last sample; its sizes are learned anew."""
    one = [TopicPartition("t", 0)]
    sampler._resample_interval = RESAMPLE_INTERVAL_S
    for n in range(LEARNING_SAMPLES):
        assert sample(sampler, one, float(n), 1_000 + n)
    assert [sample(sampler, one, 24.0 + n, 50 + n) for n in range(3)] == 3 * [{"t"}]


def test_a_slow_topic_does_not_starve_learned_ones(sampler: RecordSampler) -> None:
    """One that is still learning gets a record in each minute."""
    known, slow = TopicPartition("known", 0), TopicPartition("slow", 0)
    sampler._resample_interval = RESAMPLE_INTERVAL_S
    for n in range(LEARNING_SAMPLES):
        assert sample(sampler, [known], float(n), 100 + n)
    sampled = [sample(sampler, [known, slow], 30.0 + 40 * n, 200 + n) for n in range(10)]
    assert sum("known" in topics for topics in sampled) == 4


DENIED = "topic t may not be read, so record sizes are unknown: grant Read on topic t, or use source=log-dirs"


def test_a_denied_topic_is_reported_until_it_is_sampled_or_deleted(
    sampler: RecordSampler, errors: Errors
) -> None:
    """The right is granted, or nothing is asked for any more."""
    for end in (lambda: sample(sampler, T, 1.0), lambda: sample(sampler, [], 1.0)):
        errors["t"] = TopicDeniedError()
        sample(sampler, T, 0.0, 1_000)
        assert sampler.errors == {"t": DENIED}
        del errors["t"]
        end()
        assert sampler.errors == {}


@pytest.mark.parametrize("topic", ["t", ""])
@pytest.mark.parametrize("error", [RequestTimeoutError("slow"), ValueError("bad"), struct.error("cut off")])
def test_a_topic_without_a_size_is_reported_after_some_attempts(
    sampler: RecordSampler, errors: Errors, topic: str, error: Exception
) -> None:
    """No error ends a measurement, or is silent for ever; one of a topic whose size is known is."""
    errors[topic] = error
    found = []
    for n in range(REPORTED_ATTEMPTS):
        assert sample(sampler, T, float(n)) == set()
        found.append(dict(sampler.errors))
    text = (
        f"topic t: record sizes are unknown, since it could not be sampled: {type(error).__name__}: {error}"
    )
    assert found == [*(REPORTED_ATTEMPTS - 1) * [{}], {"t": text}]
    del errors[topic]
    assert sample(sampler, T, 9.0, 100) == {"t"}
    errors[topic] = error
    for n in range(9):
        sample(sampler, T, 10.0 + n, 200)
        assert sampler.errors == {}


def test_a_corrupt_batch_is_an_error() -> None:
    """Its length would not lead to the next one."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000)  # type: ignore[no-untyped-call]
    builder.append(0, 1, None, b"x", [])
    built = bytearray(builder.build())
    built[8:12] = struct.pack(">i", -12)
    with pytest.raises(MalformedMessageError):
        next(parse_batches(bytes(built)))


def batch(base: int, count: int, **more: bool) -> RecordBatch:
    kind = {"is_control": False, "is_transactional": False, **more}
    return RecordBatch(base, base + count, 61 + 10 * count, count, **kind)


def test_markers_and_aborted_records_are_bytes_on_disk_that_nobody_reads() -> None:
    """Offsets 0 and 1 are read, 2 is a marker, 3 and 4 are aborted, 5 is their marker, 6 is not read yet."""
    batches = [
        batch(0, 2),
        batch(2, 1, is_control=True),
        batch(3, 2),
        batch(5, 1, is_control=True),
        batch(6, 1),
    ]
    read = measure_batches(batches[:2], {0: 7, 1: 7})
    assert [(b.offsets, b.records, b.bytes) for b in read] == [(2, 2, 14), (1, 0, 0)]
    assert len(measure_batches(batches, {0: 7, 1: 7})) == 2  # of the others nothing is known yet
    whole = measure_batches(batches, {0: 7, 1: 7, 6: 7})
    assert [b.records for b in whole] == [2, 0, 0, 0, 1]


def test_batches_are_parsed_by_their_headers() -> None:
    """The last batch counts by its header, though its records are cut off."""
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000)  # type: ignore[no-untyped-call]
    for offset in range(3):
        builder.append(offset, 1, None, b"x" * 100, [])
    built = bytes(builder.build())
    found = list(parse_batches(built + built[:70]))
    assert [(b.base_offset, b.next_offset, b.log_bytes, b.records) for b in found] == [
        (0, 3, len(built), 3)
    ] * 2


def test_a_record_with_unreadable_headers_counts_without_them() -> None:
    """A header name that is not UTF-8 must not end the measurement."""
    message = Mock(
        **{"headers.side_effect": SystemError, "key.return_value": b"k", "value.return_value": b"vv"}
    )
    assert record_sampler._compute_size(message) == 3


def test_partitions_of_deleted_topics_are_forgotten(sampler: RecordSampler) -> None:
    """A group-pattern sees short-lived topics come and go for months."""
    for hour in range(5):
        assert sample(sampler, [TopicPartition(f"t{hour}", 0)], 3600.0 * hour)
    kept = (sampler._attempted_at, sampler._sampled_at, sampler._ends)
    assert [{p.topic for p in of_partition} for of_partition in kept] == [{"t4"}] * 3
    assert set(sampler._counts) == {"t4"}


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
