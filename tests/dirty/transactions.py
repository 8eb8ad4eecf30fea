"""Transactions of one record each, of which every fifth is aborted; and one that stays open."""

from threading import Event
from time import monotonic

from confluent_kafka import Producer

from dirty.run import DirtyRun, Figures
from dirty.topics import SMALL, Transactional
from support.advised_group import advise_group
from trimtab.common.clock import SystemClock
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

WINDOW_S = 30.0
RATE = 30.0  # transactions/s


def measure_transactions(run: DirtyRun) -> Figures:
    """Return the told records/s / those that a reader gets."""
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
    finally:
        producer.stop()
        monitor.close()
    return {"transactional_ratio": round(max(ratios, key=lambda ratio: abs(ratio - 1)), 4)}


def measure_open_transaction(run: DirtyRun) -> Figures:
    """One that stays open in a topic that is read: its end is hidden, and all surfaces tell it."""
    topic = run.create_topic()
    settings = {"transactional.id": f"hung-{topic}", "transaction.timeout.ms": 300_000}
    hung = Producer({"bootstrap.servers": run.bootstrap, **settings})
    hung.init_transactions()
    hung.begin_transaction()
    hung.produce(topic, b"x" * SMALL, partition=0)
    hung.flush(10)
    with advise_group(run.bootstrap, topic, run.folder) as group:
        run.drive(group.surfaces, "TransactionOpen")
        is_named = f"hung-{topic}" in group.surfaces.ask("/groups")
    hung.abort_transaction()
    return {"unnamed_producers": int(not is_named)}
