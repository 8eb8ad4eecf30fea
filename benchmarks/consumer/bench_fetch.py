"""Fetch throughput of the SDK and of a plain confluent-kafka loop: same topic, settings and run.

Both read a filled topic from its start with `consume(1000)`; the clock starts after the first third,
which excludes the join and the prefetched records (64 MB). Runs alternate; medians are compared.
"""

from collections.abc import Callable
from statistics import median
from time import monotonic
from typing import Any

import confluent_kafka

import trimtab.consumer_sdk
from benchmarks import harness

PARTITIONS = 6
ROUNDS = 3


def main() -> None:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--mb", type=float, default=300, help="megabytes per run")
    options = arguments.parse_args()
    figures: dict[str, Any] = {}
    with harness.broker(options.bootstrap) as bootstrap:
        for size in (200, 1000, 10_000):
            figures[f"{size}_byte_records"] = compare_readers(bootstrap, size, int(options.mb * 1e6 / size))
    harness.result({"fetch": figures})


def compare_readers(bootstrap: str, size: int, count: int) -> dict[str, float]:
    topic = harness.new_topic(bootstrap, PARTITIONS)
    harness.fill(bootstrap, topic, PARTITIONS, count, size)
    kinds: dict[str, Callable[..., Any]] = {
        "plain": confluent_kafka.Consumer,
        "trimtab": trimtab.consumer_sdk.Consumer,
    }
    rates: dict[str, list[float]] = {kind: [] for kind in kinds}
    for number in range(ROUNDS):
        for kind, make in kinds.items():
            rates[kind].append(time_reader(make, bootstrap, topic, count, f"{topic}-{kind}-{number}"))
    speed = {kind: median(values) * size / 1e6 for kind, values in rates.items()}
    ratio = speed["trimtab"] / speed["plain"]
    plain, ours = speed["plain"], speed["trimtab"]
    print(f"{size:6d} B: plain {plain:.1f} MB/s, trimtab {ours:.1f} MB/s, ratio {ratio:.2f}")
    return {"plain_mb_per_s": round(plain, 1), "trimtab_mb_per_s": round(ours, 1), "ratio": round(ratio, 2)}


def time_reader(make: Callable[..., Any], bootstrap: str, topic: str, count: int, group: str) -> float:
    """Return records/s over the last two thirds."""
    consumer = make(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 10_000,
            "fetch.queue.backoff.ms": 20,  # as in Trimtab; librdkafka's default of 1 s is slower
        }
    )
    consumer.subscribe([topic])
    got = skipped = 0
    begin = 0.0
    while got < count:
        got += len(consumer.consume(1000, timeout=1))
        if not begin and got >= count / 3:
            begin, skipped = monotonic(), got
    seconds = monotonic() - begin
    consumer.close()
    return (got - skipped) / seconds


if __name__ == "__main__":
    main()
