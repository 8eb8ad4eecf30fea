"""Duration of a handover: the time without reads when a partition moves between two live consumers.

Two consumer processes, 12 partitions at 100 records/s each. Plans drain the two in turn, so that
every epoch moves all partitions; a handover lasts from the last record of the old owner to the first
of the new one, by the machine's monotonic clock.
"""

import signal
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from threading import Event
from time import sleep, time
from typing import NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks import harness
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk import Consumer

PARTITIONS = 12
RATE = 100
PERCENTILES = (("median", 50), ("p99", 99))


def main() -> None:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--moves", type=int, default=20, help="epochs, each moving 12 partitions")
    arguments.add_argument("--heartbeat-ms", type=int, default=250)
    arguments.add_argument("--second-round", action="store_true", help="consumers wait for it")
    arguments.add_argument("--consumer", nargs=6, help="(internal: run as a consumer process)")
    options = arguments.parse_args()
    if options.consumer:
        run_consumer(*options.consumer)
        return
    with harness.broker(options.bootstrap) as bootstrap, tempfile.TemporaryDirectory() as folder:
        run_handovers(bootstrap, options, Path(folder))
        report_handovers(Path(folder), options.heartbeat_ms)


def run_handovers(bootstrap: str, options: Namespace, folder: Path) -> None:
    topic = harness.new_topic(bootstrap, PARTITIONS)
    plans = f"{topic}-plan"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(plans, 1, 1)])[plans].result()
    names = ("a", "b")
    itself = [sys.executable, "-m", "benchmarks.consumer.bench_handover", "--consumer", bootstrap, topic]
    settings = str(options.heartbeat_ms), str(not options.second_round)
    processes = [subprocess.Popen([*itself, n, *settings, str(folder)]) for n in names]
    publisher = Producer({"bootstrap.servers": bootstrap})
    with harness.produced(bootstrap, topic, PARTITIONS, RATE):
        sleep(5)
        for epoch in range(1, options.moves + 1):
            draining = (names[epoch % 2],)
            plan = GroupPlan(topic, epoch, time(), 1, "mbf", 1e9, draining=draining)
            publisher.produce(plans, plan.encode(), plan.key)
            publisher.flush()
            sleep(2)
    for process in processes:
        process.terminate()
        process.wait(timeout=30)


def run_consumer(bootstrap: str, topic: str, name: str, heartbeat: str, early: str, folder: str) -> None:
    stop = Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "trimtab.instance": name,
        "trimtab.plan.topic": f"{topic}-plan",
        "trimtab.write.rate.topic": "",
        "heartbeat.interval.ms": int(heartbeat),
        "trimtab.start.at.release": early,
        "session.timeout.ms": 10_000,
    }
    with (Path(folder) / name).open("w") as log, Consumer(config) as consumer:
        consumer.subscribe([topic])
        while not stop.is_set():
            if m := consumer.poll(0.05):  # `consume` would wait for more records
                log.write(f"{m.partition()} {m.offset()} {m.timestamp()[1] / 1000} {time()} {name}\n")


class ReadRecord(NamedTuple):
    """A record, in the order of a partition; times in seconds since 1970."""

    offset: int
    written_at: float
    read_at: float
    owner: str


def report_handovers(folder: Path, heartbeat: int) -> None:
    pairs = [pair for records in read_logs(folder) for pair in pairwise(records)]
    handovers = [(old, new) for old, new in pairs if old.owner != new.owner]
    gaps = [(new.read_at - old.read_at) * 1000 for old, new in handovers]
    unread = [measure_unread(*pair) * 1000 for pair in handovers]
    undisturbed = [measure_unread(old, new) * 1000 for old, new in pairs if old.owner == new.owner]
    figures = {
        "heartbeat_ms": heartbeat,
        "count": len(handovers),
        **summarize_values("", gaps),
        **summarize_values("unread_", unread),
        **summarize_values("undisturbed_", undisturbed),
        "lost": sum(max(0, new.offset - old.offset - 1) for old, new in pairs),
        "doubled": sum(new.offset == old.offset for old, new in pairs),
    }
    print(f"{len(handovers)} handovers: median {figures['median_ms']} ms, p99 {figures['p99_ms']} ms")
    harness.result({"handover": figures})


def read_logs(folder: Path) -> list[list[ReadRecord]]:
    """Return the records of each partition, in the order of their offsets."""
    records_by_partition: defaultdict[str, list[ReadRecord]] = defaultdict(list)
    for log in folder.iterdir():
        for line in log.read_text().splitlines():
            partition, offset, written_at, read_at, owner = line.split()
            record = ReadRecord(int(offset), float(written_at), float(read_at), owner)
            records_by_partition[partition].append(record)
    return [sorted(records) for records in records_by_partition.values()]


def measure_unread(old: ReadRecord, new: ReadRecord) -> float:
    """Return the seconds during which `new` was there and nobody read it."""
    return new.read_at - max(old.read_at, new.written_at)


def summarize_values(prefix: str, values_ms: list[float]) -> dict[str, float]:
    return {f"{prefix}{name}_ms": round(harness.percentile(values_ms, p)) for name, p in PERCENTILES}


if __name__ == "__main__":
    main()
