"""Control topics at size: time and memory of writing and reading the write rates of one topic.

The sidecar's store writes rates with all figures at full precision, which compress worst; then a
consumer's reader, and nothing else, reads them in a process of its own.

    python -m benchmarks.sidecar.bench_control_topics --partitions 100000
"""

import json
import random
import resource
import subprocess
import sys
import uuid
from pathlib import Path
from time import monotonic, time
from typing import Any

from confluent_kafka.admin import AdminClient

from benchmarks.harness import broker, parser, result
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.record_parts import split_value
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.sidecar.kafka.control_topic_store import ControlTopicStore
from trimtab.sidecar.settings.settings import load_settings


def write_rates(group: str, partitions: int) -> TopicWriteRates:
    figure = random.Random(7).random  # noqa: S311 - repeatable
    loads = {n: PartitionLoad(figure(), figure(), figure(), n, figure(), figure()) for n in range(partitions)}
    return TopicWriteRates(group, "orders", time(), 300.0, "offsets", loads)


def write_control_topics(bootstrap: str, group: str, topic: str, partitions: int) -> dict[str, Any]:
    """Publish the rates; return times and sizes."""
    flags = {"bootstrap": bootstrap, "group": group, "capacity": 1e6, "target": "none", "timeout": 60}
    settings = load_settings(None, {**flags, "write_rate_topic": topic})
    store = ControlTopicStore(settings, AdminClient(settings.client_config))
    rates = write_rates(group, partitions)
    store.publish([])  # creates the topics
    began = cpu_seconds()
    value = rates.encode()
    encoded = cpu_seconds()
    records = list(split_value(group, rates.key, value))
    split, sent = cpu_seconds(), monotonic()
    store.publish([rates])
    return {
        "partitions": partitions,
        "value_mb": len(value) / 1e6,
        "records": len(records),
        "record_mb": sum(len(record) for _, record in records) / 1e6,
        "encode_cpu_s": encoded - began,
        "compress_cpu_s": split - encoded,
        "publish_s": monotonic() - sent,
    }


def read_control_topics(bootstrap: str, group: str, topic: str) -> dict[str, Any]:
    """Read the topic with a consumer's reader; return time and memory."""
    config = {"bootstrap.servers": bootstrap, "group.id": group, "trimtab.write.rate.topic": topic}
    reader = ControlTopicReader(parse_consumer_settings(config), SystemClock())
    before, cpu, began = peak_mb(), cpu_seconds(), monotonic()
    reader.start()
    reader.wait_until_read(120)
    seconds = monotonic() - began
    count = len(reader.build_leader_view().load.write_rates)
    figures = {"read_partitions": count, "read_s": seconds, "read_cpu_s": cpu_seconds() - cpu}
    reader.stop()
    return figures | {"rss_before_mb": before, "rss_peak_mb": peak_mb()}


def peak_mb() -> float:
    """Return this program's peak; that of getrusage includes its parent's."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1e3


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main() -> None:
    arguments = parser("Time and memory of large write rates.")
    arguments.add_argument("--partitions", type=int, default=100_000)
    arguments.add_argument("--read", nargs=2, metavar=("GROUP", "TOPIC"), help="only read")
    options = arguments.parse_args()
    if options.read:
        print(json.dumps(read_control_topics(options.bootstrap, *options.read)))
        return
    group, topic = f"bench-{uuid.uuid4().hex[:8]}", f"bench-{uuid.uuid4().hex[:8]}"
    with broker(options.bootstrap) as bootstrap:
        figures = write_control_topics(bootstrap, group, topic, options.partitions)
        command = [
            sys.executable,
            "-m",
            "benchmarks.sidecar.bench_control_topics",
            "--bootstrap",
            bootstrap,
            "--read",
            group,
            topic,
        ]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures |= json.loads(done.stdout.splitlines()[-1])
    result({name: round(figure, 2) for name, figure in figures.items()})


if __name__ == "__main__":
    main()
