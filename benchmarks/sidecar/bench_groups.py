"""Cost of one sidecar with many groups: memory, and the duration and CPU of a round.

An embedded broker, --topics topics of --partitions partitions, and --groups groups with one member each,
which owns all partitions of its topic and has committed on them. Groups share topics if there are fewer
topics. The sidecar runs as a separate process on one core, with target none. Once its windows are full, a
round's duration is that from its start to the end of the last group's iteration, the longest of --rounds.

    python -m benchmarks.sidecar.bench_groups [--groups 500] [--topics 100] [--partitions 20] [--rounds 5]
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any, Final
from urllib.request import urlopen

import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPartition
from kafka.errors import KafkaError
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import OffsetAndMetadata

from benchmarks.harness import broker, parser, result
from benchmarks.ingest_meter import cpu_seconds, measure_resident_bytes
from trimtab.common.clock import SystemClock
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.brokers import Brokers

INTERVAL: Final = 10.0
PATIENCE: Final = 420.0
SESSION_MS: Final = 1_800_000  # Kafka's longest: the members send no heartbeats
RECORDS: Final = 1000  # a second, over all partitions
MB: Final = 1e6


def main() -> None:
    """Measure, and print the figures."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("--groups", type=int, default=500)
    arguments.add_argument("--topics", type=int, default=100)
    arguments.add_argument("--partitions", type=int, default=20)
    arguments.add_argument("--rounds", type=int, default=5)
    given = arguments.parse_args()
    with broker(given.bootstrap) as bootstrap, tempfile.TemporaryDirectory() as folder:
        topics = make_topics(bootstrap, given.topics, given.partitions)
        groups = {f"bench-{n:04}": topics[n % len(topics)] for n in range(given.groups)}
        print(
            f"{len(topics)} topics of {given.partitions} partitions; joining {len(groups)} groups", flush=True
        )
        join_groups(bootstrap, groups, given.partitions)
        with write_steadily(bootstrap, topics, given.partitions):
            result({"groups": given.groups, **measure_groups(bootstrap, groups, Path(folder), given.rounds)})


def make_topics(bootstrap: str, count: int, partitions: int) -> list[str]:
    """Create topics with a small index, which limits the broker's files."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"topic-{n:04}" for n in range(count)]
    for first in range(0, count, 20):
        few = {"segment.index.bytes": "4096"}
        new = [NewTopic(name, partitions, 1, config=few) for name in names[first : first + 20]]
        for made in admin.create_topics(new, operation_timeout=60, request_timeout=90).values():
            made.result()
    return names


def join_groups(bootstrap: str, groups: dict[str, str], partitions: int) -> None:
    """Give each group commits, and a member that owns its topic."""
    untyped: Any = KafkaAdminClient
    admin = untyped(bootstrap_servers=bootstrap)
    brokers = Brokers({"bootstrap.servers": bootstrap}, SystemClock(), client_id="bench", timeout=30.0)
    wait_for_coordinator(admin, next(iter(groups)))
    for group, topic in groups.items():
        commits = {KafkaPartition(topic, n): OffsetAndMetadata(0, "", -1) for n in range(partitions)}
        admin.alter_group_offsets(group, commits)
        join_group(brokers, group, topic, partitions)
    brokers.close()
    admin.close()


def wait_for_coordinator(admin: Any, group: str) -> None:
    """Wait until the broker has made the topic of the commits."""
    while True:
        try:
            admin.list_group_offsets(group)
        except KafkaError as error:
            if not error.retriable:
                raise
            Event().wait(0.2)
        else:
            return


def join_group(brokers: Brokers, group: str, topic: str, partitions: int) -> None:
    """Make a connection a static member of a group, which joins in one request."""
    untyped: Any = ConsumerProtocolSubscription
    subscription = untyped(topics=[topic], user_data=b"", owned_partitions=[], version=1).encode(version=1)
    named = {"group_id": group, "group_instance_id": "bench"}
    times = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": SESSION_MS}
    protocols = [{"name": "range", "metadata": subscription}]
    fields = {**named, **times, "member_id": "", "protocol_type": "consumer", "protocols": protocols}
    joined = brokers.ask_coordinator(group, apis.JOIN_GROUP, fields)
    untyped = ConsumerProtocolAssignment
    assigned = untyped.TopicPartition(topic=topic, partitions=list(range(partitions)))
    assignment = untyped(assigned_partitions=[assigned], user_data=b"").encode(version=1)
    placed = [{"member_id": joined.member_id, "assignment": assignment}]
    member = {"generation_id": joined.generation_id, "member_id": joined.member_id, "assignments": placed}
    protocol = {"protocol_type": "consumer", "protocol_name": "range"}
    brokers.ask_coordinator(group, apis.SYNC_GROUP, {**named, **member, **protocol})


@contextmanager
def write_steadily(bootstrap: str, topics: Sequence[str], partitions: int) -> Iterator[None]:
    """Write to all partitions in turn meanwhile."""
    stop = Event()
    thread = Thread(target=write_records, args=(bootstrap, topics, partitions, stop))
    thread.start()
    yield
    stop.set()
    thread.join()


def write_records(bootstrap: str, topics: Sequence[str], partitions: int, stop: Event) -> None:
    """Write `RECORDS` a second until stopped."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100})
    number = 0
    while not stop.wait(0.1):
        for _ in range(RECORDS // 10):
            topic, partition = topics[number % len(topics)], number // len(topics) % partitions
            producer.produce(topic, b"x" * 200, partition=partition)
            number += 1
        producer.poll(0)
    producer.flush()


def measure_groups(bootstrap: str, groups: dict[str, str], folder: Path, rounds: int) -> dict[str, Any]:
    """Run the sidecar until its windows are full, then for so many rounds."""
    common = {"bootstrap": bootstrap, "capacity": "1 MB/s", "interval": INTERVAL, "state-dir": str(folder)}
    config = folder / "sidecar.yaml"
    config.write_text(yaml.safe_dump({**common, "groups": [{"group": group} for group in groups]}))
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(config)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_for_round(
            folder, process, len(groups), 6
        )  # rates need half of a window of 30 s, and sampled sizes
        begun, at = cpu_seconds(process.pid), monotonic()
        seconds = [wait_for_round(folder, process, len(groups), 7 + n) for n in range(rounds)]
        cpu = (cpu_seconds(process.pid) - begun) / (monotonic() - at)
        listed = read_groups(folder)["groups"]
        managed = [one for one in listed if one["state"] == "managed"]
        known = [one for one in managed if one["required_bytes_per_s"]]
        return {
            "mb": round(measure_resident_bytes(process.pid) / MB),
            "round_s": round(max(seconds), 2),
            "cpu_share": round(cpu, 2),
            "managed": len(managed),
            "with_known_rates": len(known),
        }
    finally:
        process.terminate()
        process.wait(60)
        tail = (folder / "log").read_text().splitlines()[-3:]
        print("\n".join(line[:200] for line in tail), flush=True)


def wait_for_round(folder: Path, process: "subprocess.Popen[bytes]", groups: int, number: int) -> float:
    """Wait for the end of a round with this many groups; return its duration in seconds."""
    deadline = monotonic() + PATIENCE
    while monotonic() < deadline:
        assert process.poll() is None, (folder / "log").read_text()[-2000:]
        ended = read_groups(folder).get("round", {})
        if ended.get("ended", 0) >= number and ended.get("groups") == groups:
            return float(ended["seconds"])
        Event().wait(0.2)
    raise TimeoutError(f"round {number} has not ended in {PATIENCE:g} s")


def read_groups(folder: Path) -> dict[str, Any]:
    """Return `/groups`; {} before the web server has started."""
    file = folder / "web"
    if not file.exists() or not file.read_text().strip():
        return {}
    with urlopen(f"{file.read_text().strip()}/groups", timeout=60) as response:  # noqa: S310 - its own page
        return dict(json.loads(response.read()))


if __name__ == "__main__":
    main()
