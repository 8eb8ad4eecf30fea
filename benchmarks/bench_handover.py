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
from time import monotonic, sleep, time

import harness
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk import Consumer

PARTITIONS = 12
RATE = 100


def main() -> None:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--moves", type=int, default=20, help="epochs, each moving 12 partitions")
    arguments.add_argument("--heartbeat-ms", type=int, default=250)
    arguments.add_argument("--start-at-release", action="store_true", help="of the consumers")
    arguments.add_argument("--consumer", nargs=6, help="(internal: run as a consumer process)")
    options = arguments.parse_args()
    if options.consumer:
        consume(*options.consumer)
        return
    with harness.broker(options.bootstrap) as bootstrap, tempfile.TemporaryDirectory() as folder:
        run(bootstrap, options, Path(folder))
        report(Path(folder), options.heartbeat_ms)


def run(bootstrap: str, options: Namespace, folder: Path) -> None:
    topic = harness.new_topic(bootstrap, PARTITIONS)
    plans = f"{topic}-plan"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(plans, 1, 1)])[plans].result()
    names = ("a", "b")
    itself = [sys.executable, __file__, "--consumer", bootstrap, topic]
    settings = str(options.heartbeat_ms), str(options.start_at_release)
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


def consume(bootstrap: str, topic: str, name: str, heartbeat: str, early: str, folder: str) -> None:
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
            messages = consumer.consume(500, timeout=0.05)
            now = monotonic()
            log.writelines(f"{m.partition()} {m.offset()} {now} {name}\n" for m in messages)


def report(folder: Path, heartbeat: int) -> None:
    records_by_partition: defaultdict[int, list[tuple[int, float, str]]] = defaultdict(list)
    for log in folder.iterdir():
        for line in log.read_text().splitlines():
            partition, offset, when, name = line.split()
            records_by_partition[int(partition)].append((int(offset), float(when), name))
    handovers: list[float] = []
    doubled = lost = 0
    for records in records_by_partition.values():
        records.sort()
        for one, two in pairwise(records):
            doubled += one[0] == two[0]
            lost += max(0, two[0] - one[0] - 1)
            if one[2] != two[2]:
                handovers.append((two[1] - one[1]) * 1000)
    middle, worst = harness.percentile(handovers, 50), harness.percentile(handovers, 99)
    print(f"{len(handovers)} handovers: median {middle:.0f} ms, p99 {worst:.0f} ms")
    harness.result(
        {
            "handover": {
                "heartbeat_ms": heartbeat,
                "count": len(handovers),
                "median_ms": round(middle),
                "p99_ms": round(worst),
                "lost": lost,
                "doubled": doubled,
            }
        }
    )


if __name__ == "__main__":
    main()
