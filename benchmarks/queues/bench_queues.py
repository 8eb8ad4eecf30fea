"""Throughput, latency and redelivery time of the three queue kinds and of a plain group.

Throughput: worker processes empty a filled topic in batches, measured from the 10th to the 90th
percentile of the handled messages. Every kind calls the same function for each message, which
parses a JSON document; in `idle` runs it only records the time, which shows the bare cost of a
kind. Latency: messages arrive at a steady rate, each timed from its write to its final handling;
1 % of them fail once (not of a plain group, which cannot retry). Redelivery: the time from a
SIGKILL of a worker with a message to another worker having it. Its cause is kmq's timeout (3 s),
ordered's session (3 s), and for share the closed connection or the lock (15 s, the shortest).

For kmq a tracker runs beside the workers, on the same cores, started before them. `plain` is
Trimtab's own consumer, whose group and fetching kmq and ordered use.
"""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time
from typing import Any, TypeAlias

import numpy as np
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.queues import queue_host, queue_plot

HOST = "benchmarks.queues.queue_host"
KINDS = ("plain", "kmq", "ordered", "share")
PARTITIONS = 16
FAILING = 1
"""Messages in a hundred that fail once in the latency run."""
TIMEOUT = 3.0
"""Seconds of kmq's timeout in the redelivery run, and of the session."""
LOG = 600_000_000
"""Maximum of bytes of messages in a topic."""
READY = 60.0
"""Seconds for workers to start, or to end."""

Cell: TypeAlias = tuple[int, int, bool, str]
"""Workers, bytes of a message, whether the handler is idle, kind."""

Rows: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""Times of handling and writing (s since the epoch), delivery number."""


class Workers:
    """Worker processes of one kind on one topic, and their handled messages."""

    def __init__(self, kind: str, topic: str, bootstrap: str, folder: Path) -> None:
        self._kind, self._topic, self._bootstrap, self._folder = kind, topic, bootstrap, folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, count: int, batch: int, *, idle: bool = False) -> None:
        config = {**write_settings(self._bootstrap, self._topic), "batch": batch, "idle": idle}
        if self._kind == "share":  # the broker's shortest lock
            config["trimtab.queue.timeout"] = "15 s"
        if self._kind == "plain":
            config = {n: v for n, v in config.items() if not n.startswith("trimtab.queue.")}
        begin = len(list(self._folder.iterdir()))
        files = [str(self._folder / f"{begin + number}") for number in range(count)]
        words = (self._kind, self._topic, json.dumps(config), *files)
        for file in files:
            Path(file).touch()
        command = [sys.executable, "-m", HOST, *words]
        self._running.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    def handled(self) -> int:
        """Return the number of handled messages."""
        return sum(file.stat().st_size for file in self._folder.iterdir()) // (3 * 8)

    def rows(self) -> Rows:
        """Return the rows of handled messages, by time."""
        rows = np.concatenate([np.fromfile(f).reshape(-1, 3) for f in self._folder.iterdir()])
        return rows[np.argsort(rows[:, 0], kind="stable")]

    def kill_first(self) -> None:
        self._running[0].kill()
        self._running[0].wait()

    def stop(self) -> None:
        for worker in self._running:
            if worker.poll() is None:
                assert worker.stdin is not None
                worker.stdin.close()
        for worker in self._running:
            worker.wait(READY)


def write_settings(bootstrap: str, topic: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": round(TIMEOUT * 1000),
        "trimtab.queue.timeout": f"{TIMEOUT if topic.endswith('-held') else 30} s",
    }


def main() -> None:
    options = _parse_arguments()
    results: list[dict[str, Any]] = []
    with harness.broker(options.bootstrap) as bootstrap:
        for workers, size, idle, kind in _list_cells(options):
            results.append(_measure_cell(bootstrap, kind, (workers, size, idle), options))
            print(results[-1], file=sys.stderr)
        again = {k: _measure_redelivery(bootstrap, k) for k in options.kinds}
    shares, load = _find_shares(results), [round(x, 1) for x in os.getloadavg()]
    medians = _find_medians(results)
    _print_table(medians, again)
    if options.plot is not None:
        queue_plot.draw_results([f for f in medians if not f["idle"]], options.plot)
    harness.result({"runs": medians, "redelivery_s": again, "kmq_of_plain": shares, "load": load})


def _list_cells(options: Namespace) -> list[Cell]:
    """Return the cells: alternating rounds of plain and kmq, idle and not, then the others."""
    first = (options.workers[0], options.sizes[0])
    pair = [kind for kind in ("plain", "kmq") if kind in options.kinds]
    rounds = [(*first, idle, k) for _ in range(options.rounds) for idle in (True, False) for k in pair]
    whole = product(options.workers, options.sizes, [False], options.kinds)
    return [*rounds, *(cell for cell in whole if cell not in rounds)]


def _parse_arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments.add_argument("--workers", nargs="+", type=int, default=[1])
    arguments.add_argument("--sizes", nargs="+", type=int, default=[100])
    arguments.add_argument(
        "--messages", type=int, default=1_500_000, help="messages in a topic, up to 600 MB"
    )
    arguments.add_argument("--rounds", type=int, default=3, help="rounds of the first cell")
    arguments.add_argument("--batch", type=int, default=20_000, help="messages per receive")
    arguments.add_argument("--rate", type=float, default=200, help="messages/s of the latency run")
    arguments.add_argument("--seconds", type=float, default=5, help="duration of the latency run")
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    return arguments.parse_args()


def _measure_cell(
    bootstrap: str, kind: str, what: tuple[int, int, bool], options: Namespace
) -> dict[str, Any]:
    workers, size, idle = what
    topic, count = harness.new_topic(bootstrap, PARTITIONS), min(options.messages, LOG // size)
    harness.fill(bootstrap, topic, PARTITIONS, count, [_encode_document(size)])
    with _running_workers(bootstrap, kind, topic) as pool:
        pool.start(workers, options.batch, idle=idle)
        _wait_until(lambda: pool.handled() >= count, 5 * READY)
        handled = pool.rows()[:, 0]
        sleep(1)  # until the last settlements are stored
        began = time()
        steady = _produce_messages(bootstrap, topic, options, size, 0 if kind == "plain" else FAILING)
        _wait_until(lambda: pool.handled() >= count + steady, READY)
        rows = pool.rows()
        late = rows[rows[:, 1] >= began - 0.001]
        ages = late[:, 0] - late[:, 1]
    harness.delete_topic(bootstrap, topic)
    begin, end = np.percentile(handled, (10, 90))
    return {
        "kind": kind,
        "workers": workers,
        "size": size,
        "idle": idle,
        "messages_s": round(0.8 * len(handled) / max(end - begin, 1e-9)),
        "p50_ms": round(float(np.percentile(ages, 50)) * 1000, 1),
        "p99_ms": round(float(np.percentile(ages, 99)) * 1000, 1),
    }


def _encode_document(size: int) -> bytes:
    """Return a JSON document of `size` bytes."""
    empty = json.dumps({"order": 1, "customer": "c-17", "amount": 12.5, "note": ""})
    return empty.replace('""', f'"{"x" * (size - len(empty))}"').encode()


def _produce_messages(bootstrap: str, topic: str, options: Namespace, size: int, failing: int) -> int:
    """Write messages at the given rate, of which `failing` % fail once; return their number."""
    producer = harness.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    turn, burst = monotonic(), max(1, round(options.rate * harness.BURST))
    whole = _encode_document(size)
    count = round(options.rate * options.seconds / burst) * burst
    for number in range(count):
        value = queue_host.FAILING + whole if number % 100 < failing else whole
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % burst == burst - 1:
            producer.poll(0)
            turn += burst / options.rate
            sleep(max(0.0, turn - monotonic()))
    producer.flush()
    return count


def _measure_redelivery(bootstrap: str, kind: str) -> float | None:
    """Return the seconds from a worker's death to the redelivery; None for plain."""
    if kind == "plain":
        return None
    topic = harness.new_topic(bootstrap, 1, "-held")
    with _running_workers(bootstrap, kind, topic) as pool:
        pool.start(1, 0)
        harness.fill(bootstrap, topic, 1, 1, [_encode_document(100)])
        _wait_until(lambda: pool.handled() == 1, READY)
        pool.start(1, 100)
        sleep(2)  # until the group is stable
        died = time()
        pool.kill_first()
        _wait_until(lambda: pool.handled() == 2, READY)
        return round(float(pool.rows()[1, 0] - died), 2)


@contextmanager
def _running_workers(bootstrap: str, kind: str, topic: str) -> Iterator[Workers]:
    """Yield workers, with a tracker for kmq; stop all of them at the end."""
    command = list[str]()
    if kind == "kmq":
        words = {n: v for n, v in write_settings(bootstrap, topic).items() if n != "bootstrap.servers"}
        arguments = [word for n, v in words.items() for word in ("--set", f"{n}={v}")]
        command = [sys.executable, "-m", "trimtab.cli", "redeliver", "--topic", topic, *arguments]
        command += ["--bootstrap", bootstrap]
    tracker = subprocess.Popen(command, stderr=subprocess.DEVNULL) if command else None
    try:
        if tracker is not None:  # workers start after it
            _wait_until(lambda: _count_members(bootstrap, f"{topic}-redeliver") == 1, READY)
        with TemporaryDirectory() as folder:
            pool = Workers(kind, topic, bootstrap, Path(folder))
            try:
                yield pool
            finally:
                pool.stop()
    finally:
        if tracker is not None:
            tracker.terminate()
            tracker.wait(READY)


def _count_members(bootstrap: str, group: str) -> int:
    """Return the number of a group's members with partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        description = admin.describe_consumer_groups([group])[group].result(READY)
    except KafkaException:  # the broker has just started
        return 0
    return sum(bool(member.assignment.topic_partitions) for member in description.members)


def _wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            sys.exit(f"the workers did not finish within {seconds:.0f} s")
        sleep(0.1)


def _find_medians(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the medians of each cell's runs."""
    what, figures = ("kind", "workers", "size", "idle"), ("messages_s", "p50_ms", "p99_ms")
    cells: dict[Any, list[dict[str, Any]]] = {}
    for one in results:
        cells.setdefault(tuple(one[w] for w in what), []).append(one)
    return [
        {**runs[0], **{f: median(run[f] for run in runs) for f in figures}, "runs": len(runs)}
        for runs in cells.values()
    ]


def _find_shares(results: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return kmq's throughput as a share of the plain group's, by pair of runs."""
    rates: defaultdict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(dict)
    for one in results:
        cell = rates[one["workers"], one["size"], one["idle"]]
        cell.setdefault(one["kind"], []).append(one["messages_s"])
    return {
        f"{workers} workers, {size} B{', idle' if idle else ''}": [
            round(kmq / plain, 2)
            for kmq, plain in zip(cell.get("kmq", []), cell.get("plain", []), strict=False)
        ]
        for (workers, size, idle), cell in rates.items()
    }


def _print_table(results: Sequence[dict[str, Any]], again: dict[str, float | None]) -> None:
    table = Table(title="queues")
    for column in results[0]:
        table.add_column(column, justify="left" if column == "kind" else "right")
    for one in results:
        table.add_row(*map(str, one.values()))
    console = Console(width=120)
    console.print(table)
    for kind, seconds in again.items():
        if seconds is not None:
            console.print(f"{kind}: redelivered {seconds} s after a worker was killed")


if __name__ == "__main__":
    main()
