"""Transactions of one record each, of which every fifth is aborted; then one that stays open."""

from threading import Event
from time import monotonic

from confluent_kafka import Producer

from dirty.run import DirtyRun, Figures
from dirty.topics import SMALL, Transactional
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.sidecar.measurement.open_transactions import OPEN_AFTER_S
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

WINDOW_S = 30.0
RATE = 30.0  # transactions/s


def measure_transactions(run: DirtyRun) -> Figures:
    """Return the told records/s / those that a reader gets, and whether the open transaction is reported."""
    topic = run.create_topic(1)
    given = {"bootstrap": run.bootstrap, "group": f"group-of-{topic}", "topics": topic, "capacity": "1 MB/s"}
    monitor = GroupMonitor(load_settings(None, given), SystemClock())
    producer = Transactional(run.bootstrap, topic, RATE, aborted_every=5)
    ratios: list[float] = []
    try:
        begun = monotonic()
        while (elapsed := monotonic() - begun) < run.seconds:
            Event().wait(5.0)
            (load,), now = monitor.measure().load.write_rates.values(), monotonic()
            if elapsed > 2 * WINDOW_S:
                ratios.append((load.records_per_s or 0.0) / producer.get_committed_rate(now - WINDOW_S, now))
        is_told = _open_transaction(run, topic, monitor)
    finally:
        producer.stop()
        monitor.close()
    worst = max(ratios, key=lambda ratio: abs(ratio - 1))
    return {"transactional_ratio": round(worst, 4), "conditions": int(is_told), "silent": int(not is_told)}


def _open_transaction(run: DirtyRun, topic: str, monitor: GroupMonitor) -> bool:
    """Return whether a transaction that stays open is reported with its producer."""
    settings = {"transactional.id": f"hung-{topic}", "transaction.timeout.ms": 300_000}
    hung = Producer({"bootstrap.servers": run.bootstrap, **settings})
    hung.init_transactions()
    hung.begin_transaction()
    hung.produce(topic, b"x" * SMALL, partition=0)
    hung.flush(10)
    begun, told = monotonic(), dict[TopicPartition, str]()
    while not told and monotonic() - begun < 2 * OPEN_AFTER_S:
        Event().wait(5.0)
        told = dict(monitor.measure().open_transactions)
    hung.abort_transaction()
    return any(f"hung-{topic}" in text for text in told.values())
