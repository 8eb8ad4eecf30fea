"""What the sidecar learns of a record's cost, from consumers of which it is known.

Three consumers of the SDK read a topic of small and one of large records, whose rates change every two
seconds. Their handlers wait as long as a consumer works that sustains `CAPACITY`, and a record costs it
`RECORD_COST` bytes beyond its own. The sidecar's monitor measures the group once a second, with
`learn-record-cost` and a window of two seconds.

    python -m benchmarks.consumer.bench_record_cost    # 90 seconds
"""

from collections.abc import Sequence
from contextlib import ExitStack
from threading import Event
from time import monotonic

import numpy as np
from confluent_kafka import Producer

from benchmarks.harness import broker, new_topic, parser, result, run_thread
from trimtab.common.clock import SystemClock
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.sidecar.measurement.record_cost import RecordCostStatus
from trimtab.sidecar.readings.group_monitor import GroupMonitor
from trimtab.sidecar.settings.settings import load_settings

CAPACITY = 1_000_000.0  # bytes/s
RECORD_COST = 200.0  # bytes
SIZES = {"small": 100, "large": 10_000}  # bytes
SHARES = (0.02, 0.15)  # of a consumer's capacity that a partition takes, least and most
PARTITIONS, CONSUMERS = 6, 3
CHANGE_S, BURST_S = 2.0, 0.05
GROUP = "record-cost"


def main() -> None:
    """Measure until the time is over; print what was learned beside the truth."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=90.0)
    given = arguments.parse_args()
    with broker(given.bootstrap) as bootstrap, ExitStack() as stack:
        topics = {kind: new_topic(bootstrap, PARTITIONS, f"-{kind}") for kind in SIZES}
        for seed, (kind, topic) in enumerate(topics.items()):
            stack.enter_context(run_thread(produce_records, bootstrap, topic, SIZES[kind], seed))
        for number in range(CONSUMERS):
            stack.enter_context(run_thread(run_consumer, bootstrap, f"consumer-{number}", [*topics.values()]))
        status = measure_topics(bootstrap, ",".join(topics.values()), given.seconds)
    print(status.format_line())
    result(
        {
            "predictions": status.predictions,
            "record_cost_bytes": {"learned": status.cost, "true": RECORD_COST},
            "error_ratio": status.error_ratio,
            "is_used": status.is_used,
        }
    )


def produce_records(bootstrap: str, topic: str, size: int, seed: int, stop: Event) -> None:
    """Write records of a size, each partition at a rate of its own that changes."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    chance = np.random.default_rng(seed)
    owed, changed_at, turn = [0.0] * PARTITIONS, 0.0, monotonic()
    while not stop.is_set():
        if monotonic() - changed_at >= CHANGE_S:
            changed_at = monotonic()
            shares = [chance.uniform(*SHARES) for _ in range(PARTITIONS)]
        for partition, share in enumerate(shares):
            owed[partition] += share * CAPACITY / (size + RECORD_COST) * BURST_S
            while owed[partition] >= 1:
                producer.produce(topic, b"x" * size, partition=partition)
                owed[partition] -= 1
        producer.poll(0)
        turn += BURST_S
        stop.wait(max(0.0, turn - monotonic()))
    producer.flush()


def run_consumer(bootstrap: str, name: str, topics: Sequence[str], stop: Event) -> None:
    """Read with a handler of known cost."""
    config = {"bootstrap.servers": bootstrap, "group.id": GROUP, "client.id": name}
    reset = {"auto.offset.reset": "earliest", "auto.commit.interval.ms": 500}
    with Consumer({**config, **reset}) as consumer:
        consumer.subscribe(topics)
        while not stop.is_set():
            messages = consumer.consume(100, timeout=0.2)
            weight = sum(len(m.value() or b"") + RECORD_COST for m in messages)
            stop.wait(weight / CAPACITY)


def measure_topics(bootstrap: str, topics: str, seconds: float) -> RecordCostStatus:
    """Return what the sidecar's monitor has learned."""
    given = {"bootstrap": bootstrap, "group": GROUP, "topics": topics, "capacity": CAPACITY}
    settings = load_settings(None, {**given, "window": 2, "interval": 1, "learn-record-cost": True})
    monitor, pause = GroupMonitor(settings, SystemClock()), Event()
    try:
        end = monotonic() + seconds
        while monotonic() < end:
            status = monitor.measure().load.learned.record_cost
            pause.wait(1.0)
    finally:
        monitor.close()
    assert status is not None
    return status


if __name__ == "__main__":
    main()
