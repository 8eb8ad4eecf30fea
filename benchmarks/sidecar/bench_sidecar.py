"""Cost of a sidecar with many partitions: memory, and requests, bytes and CPU of an iteration.

A broker with --partitions partitions (100 per topic), 500 records/s in total, and a group of ten
members that has committed on every partition and fetches nothing. `trimtab sidecar --dry-run` runs as
a separate process; once its windows are full, resident memory and CPU are read from /proc, and the
durations of decisions and iterations from its metrics, once per iteration. In a second, short run
librdkafka logs each request, which gives their number and bytes.

    python -m benchmarks.sidecar.bench_sidecar [--partitions 10000] [--turns 8]
"""

import re
import subprocess
import sys
import tempfile
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Semaphore, Thread
from time import monotonic
from typing import Any
from urllib.request import urlopen

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.harness import broker, parser, result
from benchmarks.ingest_meter import cpu_seconds

A_TOPIC = 100  # partitions
AT_ONCE = 10  # topics created by one request
MEMBERS = 10
RECORDS = 500  # a second, over all partitions
INTERVAL = 5.0
PATIENCE = 600.0
SENT = re.compile(rb"Sent (\w+)Request \(v\d+, (\d+) bytes")
RECEIVED = re.compile(rb"Received (\w+)Response \(v\d+, (\d+) bytes")


def make_topics(bootstrap: str, partitions: int) -> list[str]:
    """Create topics of 100 partitions, with a small index to limit the broker's files."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    names = [f"many-{n:03}" for n in range(-(-partitions // A_TOPIC))]
    few = {"segment.index.bytes": "4096"}
    for first in range(0, len(names), AT_ONCE):
        new = [NewTopic(n, min(A_TOPIC, partitions), 1, config=few) for n in names[first : first + AT_ONCE]]
        for made in admin.create_topics(new, operation_timeout=60, request_timeout=90).values():
            made.result()
    return names


def write_once(bootstrap: str, topics: Sequence[str], each: int) -> None:
    """Write a record to every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, "acks": 1})
    for topic in topics:
        for partition in range(each):
            producer.produce(topic, b"x" * 200, partition=partition)
        producer.flush()


@contextmanager
def write_steadily(bootstrap: str, topics: Sequence[str], each: int) -> Iterator[None]:
    """Write to all partitions in turn within the context."""
    stop = Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 100, "acks": 1})
        number, count = 0, len(topics) * each
        while not stop.wait(0.1):
            for number in range(number, number + RECORDS // 10):  # noqa: B020 - goes on
                topic, partition = divmod(number % count, each)
                with suppress(BufferError):  # write less if the broker is slow
                    producer.produce(topics[topic], b"x" * 200, partition=partition)
            number += 1
            producer.poll(0)
        producer.flush(5)

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def run_members(bootstrap: str, group: str, topics: Sequence[str], each: int) -> Iterator[None]:
    """Run a group of ten members that own all partitions, commit once and fetch nothing."""
    stop, settled = Event(), Semaphore(0)

    def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.assign(partitions)
        consumer.pause(partitions)
        at = [TopicPartition(p.topic, p.partition, 1) for p in partitions]
        consumer.commit(offsets=at, asynchronous=False)
        settled.release(len(at))

    def stay() -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "partition.assignment.strategy": "roundrobin",
                "enable.auto.commit": False,
                "session.timeout.ms": 45_000,
            }
        )
        consumer.subscribe(list(topics), on_assign=assigned)
        while not stop.is_set():
            consumer.poll(0.5)
        consumer.close()

    threads = [Thread(target=stay) for _ in range(MEMBERS)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(len(topics) * each):
            if not settled.acquire(timeout=PATIENCE):
                raise SystemExit("the group did not commit everywhere")
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@contextmanager
def run_sidecar(bootstrap: str, group: str, folder: Path, *more: str) -> Generator[tuple[int, Path]]:
    """Run a sidecar within the context; yield its pid and its log."""
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "--dry-run", "--port", "0"]
    command += ["--bootstrap", bootstrap, "--group", group, "--capacity", "2.3 MB/s"]
    command += ["--interval", f"{INTERVAL} s", "--window", f"{2 * INTERVAL} s"]
    command += ["--set", "timeout=60 s", *more]  # allows for a busy machine
    log = folder / f"sidecar-{len(more)}.log"
    with log.open("wb") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            yield process.pid, log
        finally:
            process.terminate()
            process.wait(60)


def read_metrics(log: Path) -> dict[str, float]:
    """Return the sidecar's metrics without labels; empty before its page is available."""
    found = re.search(r"http://[\d.:]+", log.read_text(errors="replace"))
    if found is None:
        return {}
    with urlopen(f"{found.group()}/metrics", timeout=30) as page:  # noqa: S310 - loopback
        lines = page.read().decode().splitlines()
    named = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.partition("{")[0]: float(value) for name, value in named}


def wait_for_turns(log: Path, count: int) -> dict[str, float]:
    """Wait for the given number of iterations; return the metrics."""
    deadline, pause = monotonic() + PATIENCE, Event()
    while (found := read_metrics(log)).get("trimtab_iteration_seconds_count", 0) < count:
        if monotonic() > deadline:
            raise SystemExit(f"no {count} turns; see\n{log.read_text(errors='replace')[-2000:]}")
        pause.wait(INTERVAL)
    return found


def read_memory(pid: int) -> dict[str, float]:
    """Return the current and the peak resident memory in MB (10^6)."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    kib = {
        n: float(v.split()[0])
        for n, _, v in (x.partition(":") for x in lines)
        if "VmRSS" in n or "VmHWM" in n
    }
    return {"resident_mb": round(kib["VmRSS"] * 1.024e-3, 1), "peak_mb": round(kib["VmHWM"] * 1.024e-3, 1)}


def measure_cost(bootstrap: str, group: str, folder: Path, count: int) -> dict[str, Any]:
    """Return memory and the seconds of an iteration."""
    with run_sidecar(bootstrap, group, folder) as (pid, log):
        first = wait_for_turns(log, 4)
        began = cpu_seconds(pid)
        last = wait_for_turns(log, 4 + count)
        spent = cpu_seconds(pid) - began
        held = read_memory(pid)

    def mean(name: str) -> float:
        passed = last["trimtab_iteration_seconds_count"] - first["trimtab_iteration_seconds_count"]
        return round((last[f"{name}_sum"] - first[f"{name}_sum"]) / passed, 3)

    passed = last["trimtab_iteration_seconds_count"] - first["trimtab_iteration_seconds_count"]
    return {
        **held,
        "cpu_s_per_turn": round(spent / passed, 3),
        "turn_s": mean("trimtab_iteration_seconds"),
        "decision_s": mean("trimtab_decision_seconds"),
        "partitions": int(last.get("trimtab_partitions", 0)),
    }


def count_requests(bootstrap: str, group: str, folder: Path) -> dict[str, Any]:
    """Return the requests of an iteration by name, and their bytes."""
    with run_sidecar(bootstrap, group, folder, "--kafka", "debug=protocol", "--kafka", "log_level=7") as (
        _,
        log,
    ):
        wait_for_turns(log, 4)
        begin = log.stat().st_size
        wait_for_turns(log, 8)
        output = log.read_bytes()[begin:]
    sent, received = SENT.findall(output), RECEIVED.findall(output)
    by_name: dict[str, int] = {}
    for name, _ in sent:
        by_name[name.decode()] = by_name.get(name.decode(), 0) + 1
    return {
        "requests_per_turn": round(len(sent) / 4, 1),
        "sent_kb_per_turn": round(sum(int(n) for _, n in sent) / 4e3, 1),
        "received_kb_per_turn": round(sum(int(n) for _, n in received) / 4e3, 1),
        "by_request": {name: round(n / 4, 1) for name, n in sorted(by_name.items())},
    }


def main() -> None:
    arguments = parser(__doc__.splitlines()[0] if __doc__ else "")
    arguments.add_argument("--partitions", type=int, default=1_000)
    arguments.add_argument("--turns", type=int, default=4)
    options = arguments.parse_args()
    each, group = min(A_TOPIC, options.partitions), "many"
    with ExitStack() as stack:
        bootstrap = stack.enter_context(broker(options.bootstrap))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        topics = make_topics(bootstrap, options.partitions)
        print(f"{len(topics)} topics created", file=sys.stderr)
        write_once(bootstrap, topics, each)
        stack.enter_context(run_members(bootstrap, group, topics, each))
        print("the group has committed on every partition", file=sys.stderr)
        stack.enter_context(write_steadily(bootstrap, topics, each))
        figures = measure_cost(bootstrap, group, folder, options.turns)
        result({"sidecar": figures | count_requests(bootstrap, group, folder)})


if __name__ == "__main__":
    main()
