"""Write rates of topics whose records differ in size, on a real broker."""

import re
from collections.abc import Callable, Iterator
from threading import Event
from time import monotonic
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as RawPartition
from dirty.topics import MEAN_SIZE, SMALL, Sized, Transactional

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.sidecar.kafka import record_sampler
from trimtab.sidecar.measurement import open_transactions
from trimtab.sidecar.readings.group_monitor import GroupMeasurement, GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

WINDOW_S = 4.0
BYTES_PER_S = 2_600_000.0  # as many records in 4 s as 260 kB/s have in 40 s


@pytest.fixture
def open_monitor(bootstrap: str, group: str) -> Iterator[Callable[..., GroupMonitor]]:
    """Open group monitors; they are closed after the test."""
    opened: list[GroupMonitor] = []

    def start(**extra: Any) -> GroupMonitor:
        times = {"window": f"{WINDOW_S:g} s", "interval": "500 ms", "timeout": "5 s"}
        values = {"bootstrap": bootstrap, "group": group, "capacity": "1 MB/s", **times, **extra}
        opened.append(GroupMonitor(load_settings(None, values), SystemClock()))
        return opened[-1]

    yield start
    for monitor in opened:
        monitor.close()


@pytest.mark.broker
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_sizes_with_a_heavy_tail(
    bootstrap: str,
    topic: Callable[..., str],
    open_monitor: Callable[..., GroupMonitor],
    monkeypatch: pytest.MonkeyPatch,
    compression: str,
) -> None:
    """2 % of the records hold three quarters of the bytes: after two windows the rate is right."""
    monkeypatch.setattr(record_sampler, "RESAMPLE_INTERVAL_S", 2 * WINDOW_S)
    name, pause, errors = topic(partitions=4), Event(), list[float]()
    monitor = open_monitor(topics=name)
    producer = Sized(bootstrap, name, 4, BYTES_PER_S / MEAN_SIZE, compression=compression)
    try:
        begun = monotonic()
        while (elapsed := monotonic() - begun) < 8 * WINDOW_S:
            pause.wait(0.5)
            measured, now = monitor.measure().load.write_rates.values(), monotonic()
            if elapsed > 2 * WINDOW_S:
                told = sum(load.bytes_per_s or 0.0 for load in measured)
                errors.append(abs(told / producer.get_written_rate(now - 2 * WINDOW_S, now) - 1))
    finally:
        producer.stop()
    errors.sort()
    assert errors[int(0.95 * len(errors))] < 0.15, errors


@pytest.mark.broker
@pytest.mark.parametrize("aborted_every", [0, 3])
def test_markers_and_aborted_records_are_no_load(
    bootstrap: str, topic: Callable[..., str], open_monitor: Callable[..., GroupMonitor], aborted_every: int
) -> None:
    """One record a transaction, or a third of them aborted: what a reader gets is told, not offsets."""
    name, pause, told = topic(partitions=1), Event(), list[tuple[float, float]]()
    monitor = open_monitor(topics=name)
    producer = Transactional(bootstrap, name, 30.0, aborted_every)
    try:
        begun = monotonic()
        while (elapsed := monotonic() - begun) < 5 * WINDOW_S:
            pause.wait(0.5)
            (load,), now = monitor.measure().load.write_rates.values(), monotonic()
            if elapsed > 3 * WINDOW_S:
                true = producer.get_committed_rate(now - 1.5 * WINDOW_S, now)
                told.append(((load.records_per_s or 0.0) / true, (load.bytes_per_s or 0.0) / true / SMALL))
    finally:
        producer.stop()
    records, size = (sorted(ratios)[len(told) // 2] for ratios in zip(*told, strict=True))
    assert (records, size) == (pytest.approx(1.0, rel=0.15), pytest.approx(1.0, rel=0.15))


def produce(producer: Producer, topic: str, count: int) -> None:
    for _ in range(count):
        producer.produce(topic, b"x" * SMALL, partition=0)
    assert producer.flush(10) == 0


@pytest.mark.broker
def test_an_open_transaction_is_reported_and_no_backlog(
    bootstrap: str,
    topic: Callable[..., str],
    group: str,
    open_monitor: Callable[..., GroupMonitor],
    eventually: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With its producer; the backlog is what can be read, unless the group reads uncommitted records."""
    monkeypatch.setattr(open_transactions, "OPEN_AFTER_S", 1.0)
    name = topic(partitions=1)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    monitor, transactional_id = open_monitor(topics=name, offset_reset="earliest"), f"hung-{name}"
    hung = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    hung.init_transactions()
    plain = Producer({"bootstrap.servers": bootstrap})
    produce(plain, name, 1)
    hung.begin_transaction()
    produce(hung, name, 1)
    produce(plain, name, 50)
    found: list[GroupMeasurement] = []

    def is_reported() -> bool:
        found.append(monitor.measure())
        return bool(found[-1].open_transactions)

    eventually(is_reported)
    line = rf"of producer \d+ \('{transactional_id}'\), open for \d+ s, 51 offsets cannot be read"
    assert re.match(line, found[-1].open_transactions[TopicPartition(name, 0)])
    assert found[-1].load.write_rates[TopicPartition(name, 0)].backlog_records == 1
    consumer.commit(offsets=[RawPartition(name, 0, 10)], asynchronous=False)
    uncommitted = monitor.measure()
    assert uncommitted.open_transactions == {}
    assert uncommitted.load.write_rates[TopicPartition(name, 0)].backlog_records == 42
    consumer.close()
    hung.abort_transaction()
