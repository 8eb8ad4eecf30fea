"""The three kinds of queue beside a plain group: throughput, latency, time to redelivery.

Throughput: a topic is filled, then so many worker processes empty it in batches; counted is from
the 10th to the 90th percentile of the handled messages. Every kind calls the same function for each
message, which reads a JSON document; `idle` runs call one that does nothing but note the time, and
show the bare cost of a kind. Latency: then messages come at a steady rate to the same workers, and
each is timed from being written to being handled for good, 1 % of them failing once (not of a plain
group, which has no way to say so). Redelivery: a worker that holds a message is killed (SIGKILL);
timed is until another worker has it. What brings it back is kmq's timeout (3 s), ordered's session
(3 s), and for share the broker's seeing the connection end, or the lock (15 s, the shortest).

For kmq a tracker runs beside the workers, on the same cores; it has begun before they do. `plain`
is Trimtab's own consumer, whose group and fetching kmq and ordered use.
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

import harness
import numpy as np
import queue_host
import queue_plot
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

HOST = Path(__file__).parent / "queue_host.py"
KINDS = ("plain", "kmq", "ordered", "share")
PARTITIONS = 16
FAILING = 1
"""Messages in a hundred that fail once, at the steady rate."""
TIMEOUT = 3.0
"""Seconds of kmq's timeout where a worker is killed, and of the session."""
LOG = 600_000_000
"""Bytes of messages that a topic is filled with at most."""
READY = 60.0
"""Seconds in which workers must have begun, or ended."""

Cell: TypeAlias = tuple[int, int, bool, str]
"""Workers, bytes of a message, whether the handler does nothing, kind."""

Rows: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""When handled, when written (s since the epoch), which delivery."""


class Workers:
    """Worker processes of one kind on one topic, and what they have handled."""

    def __init__(self, kind: str, topic: str, bootstrap: str, folder: Path) -> None:
        self._kind, self._topic, self._bootstrap, self._folder = kind, topic, bootstrap, folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, count: int, batch: int, *, idle: bool = False) -> None:
        config = {**settings(self._bootstrap, self._topic), "batch": batch, "idle": idle}
        if self._kind == "share":  # the broker's shortest lock
            config["trimtab.queue.timeout"] = "15 s"
        if self._kind == "plain":
            config = {n: v for n, v in config.items() if not n.startswith("trimtab.queue.")}
        begin = len(list(self._folder.iterdir()))
        files = [str(self._folder / f"{begin + number}") for number in range(count)]
        words = (self._kind, self._topic, json.dumps(config), *files)
        for file in files:
            Path(file).touch()
        command = [sys.executable, str(HOST), *words]
        self._running.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    def handled(self) -> int:
        """Return how many messages have been handled."""
        return sum(file.stat().st_size for file in self._folder.iterdir()) // (3 * 8)

    def rows(self) -> Rows:
        """Return what has been handled, in the order of time."""
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


def settings(bootstrap: str, topic: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": topic,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": round(TIMEOUT * 1000),
        "trimtab.queue.timeout": f"{TIMEOUT if topic.endswith('-held') else 30} s",
    }


def main() -> None:
    given = _arguments()
    found: list[dict[str, Any]] = []
    with harness.broker(given.bootstrap) as bootstrap:
        for workers, size, idle, kind in _cells(given):
            found.append(_measure(bootstrap, kind, (workers, size, idle), given))
            print(found[-1], file=sys.stderr)
        again = {k: _redelivery(bootstrap, k) for k in given.kinds}
    shares, load = _shares(found), [round(x, 1) for x in os.getloadavg()]
    medians = _medians(found)
    _show(medians, again)
    if given.plot is not None:
        queue_plot.draw([f for f in medians if not f["idle"]], given.plot)
    harness.result({"runs": medians, "redelivery_s": again, "kmq_of_plain": shares, "load": load})


def _cells(given: Namespace) -> list[Cell]:
    """Return what is measured: the first cell of plain and kmq in turn several times, and idle."""
    first = (given.workers[0], given.sizes[0])
    pair = [kind for kind in ("plain", "kmq") if kind in given.kinds]
    rounds = [
        (*first, idle, k) for _ in range(given.rounds) for idle in (True, False) for k in pair
    ]
    whole = product(given.workers, given.sizes, [False], given.kinds)
    return [*rounds, *(cell for cell in whole if cell not in rounds)]


def _arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments.add_argument("--workers", nargs="+", type=int, default=[1])
    arguments.add_argument("--sizes", nargs="+", type=int, default=[100])
    arguments.add_argument(
        "--messages",
        type=int,
        default=1_500_000,
        help="to empty a topic of, as far as 600 MB hold them",
    )
    arguments.add_argument("--rounds", type=int, default=3, help="of the first cell, in turn")
    arguments.add_argument("--batch", type=int, default=20_000, help="messages of one receive")
    arguments.add_argument("--rate", type=float, default=200, help="messages/s, for the latency")
    arguments.add_argument("--seconds", type=float, default=5, help="of the steady rate")
    arguments.add_argument("--plot", type=Path, help="write the picture to this file")
    return arguments.parse_args()


def _measure(
    bootstrap: str, kind: str, what: tuple[int, int, bool], given: Namespace
) -> dict[str, Any]:
    workers, size, idle = what
    topic, count = harness.new_topic(bootstrap, PARTITIONS), min(given.messages, LOG // size)
    harness.fill(bootstrap, topic, PARTITIONS, count, [_document(size)])
    with _crew(bootstrap, kind, topic) as crew:
        crew.start(workers, given.batch, idle=idle)
        _until(lambda: crew.handled() >= count, 5 * READY)
        handled = crew.rows()[:, 0]
        sleep(1)  # what was said of the last ones is kept
        began = time()
        steady = _produce(bootstrap, topic, given, size, 0 if kind == "plain" else FAILING)
        _until(lambda: crew.handled() >= count + steady, READY)
        rows = crew.rows()
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


def _document(size: int) -> bytes:
    """Return a JSON document of so many bytes."""
    empty = json.dumps({"order": 1, "customer": "c-17", "amount": 12.5, "note": ""})
    return empty.replace('""', f'"{"x" * (size - len(empty))}"').encode()


def _produce(bootstrap: str, topic: str, given: Namespace, size: int, failing: int) -> int:
    """Write messages at the steady rate, `failing` in a hundred of them; return how many."""
    producer = harness.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    turn, burst = monotonic(), max(1, round(given.rate * harness.BURST))
    whole = _document(size)
    count = round(given.rate * given.seconds / burst) * burst
    for number in range(count):
        value = queue_host.FAILING + whole if number % 100 < failing else whole
        producer.produce(topic, value, partition=number % PARTITIONS)
        if number % burst == burst - 1:
            producer.poll(0)
            turn += burst / given.rate
            sleep(max(0.0, turn - monotonic()))
    producer.flush()
    return count


def _redelivery(bootstrap: str, kind: str) -> float | None:
    """Return seconds from a worker's death to another one having its message; None for plain."""
    if kind == "plain":
        return None
    topic = harness.new_topic(bootstrap, 1, "-held")
    with _crew(bootstrap, kind, topic) as crew:
        crew.start(1, 0)
        harness.fill(bootstrap, topic, 1, 1, [_document(100)])
        _until(lambda: crew.handled() == 1, READY)
        crew.start(1, 100)
        sleep(2)  # the group is at rest
        died = time()
        crew.kill_first()
        _until(lambda: crew.handled() == 2, READY)
        return round(float(crew.rows()[1, 0] - died), 2)


@contextmanager
def _crew(bootstrap: str, kind: str, topic: str) -> Iterator[Workers]:
    """Workers that are stopped in the end, and the tracker that kmq needs."""
    command = list[str]()
    if kind == "kmq":
        words = {n: v for n, v in settings(bootstrap, topic).items() if n != "bootstrap.servers"}
        given = [word for n, v in words.items() for word in ("--set", f"{n}={v}")]
        command = [sys.executable, "-m", "trimtab.cli", "redeliver", "--topic", topic, *given]
        command += ["--bootstrap", bootstrap]
    tracker = subprocess.Popen(command, stderr=subprocess.DEVNULL) if command else None
    try:
        if tracker is not None:  # it is at work already where workers are started
            _until(lambda: _members(bootstrap, f"{topic}-redeliver") == 1, READY)
        with TemporaryDirectory() as folder:
            crew = Workers(kind, topic, bootstrap, Path(folder))
            try:
                yield crew
            finally:
                crew.stop()
    finally:
        if tracker is not None:
            tracker.terminate()
            tracker.wait(READY)


def _members(bootstrap: str, group: str) -> int:
    """Return how many members of a group have been assigned something."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        told = admin.describe_consumer_groups([group])[group].result(READY)
    except KafkaException:  # the broker has just begun
        return 0
    return sum(bool(member.assignment.topic_partitions) for member in told.members)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            sys.exit("the workers do not handle what there is")
        sleep(0.1)


def _medians(found: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one line for each cell."""
    what, figures = ("kind", "workers", "size", "idle"), ("messages_s", "p50_ms", "p99_ms")
    cells: dict[Any, list[dict[str, Any]]] = {}
    for one in found:
        cells.setdefault(tuple(one[w] for w in what), []).append(one)
    return [
        {**runs[0], **{f: median(run[f] for run in runs) for f in figures}, "runs": len(runs)}
        for runs in cells.values()
    ]


def _shares(found: Sequence[dict[str, Any]]) -> dict[str, list[float]]:
    """Return kmq's throughput as shares of the plain group's, of each pair of runs."""
    rates: defaultdict[tuple[Any, ...], dict[str, list[float]]] = defaultdict(dict)
    for one in found:
        cell = rates[one["workers"], one["size"], one["idle"]]
        cell.setdefault(one["kind"], []).append(one["messages_s"])
    return {
        f"{workers} workers, {size} B{', idle' if idle else ''}": [
            round(kmq / plain, 2)
            for kmq, plain in zip(cell.get("kmq", []), cell.get("plain", []), strict=False)
        ]
        for (workers, size, idle), cell in rates.items()
    }


def _show(found: Sequence[dict[str, Any]], again: dict[str, float | None]) -> None:
    table = Table(title="queues")
    for column in found[0]:
        table.add_column(column, justify="left" if column == "kind" else "right")
    for one in found:
        table.add_row(*map(str, one.values()))
    console = Console(width=120)
    console.print(table)
    for kind, seconds in again.items():
        if seconds is not None:
            console.print(f"{kind}: handled by another {seconds} s after a worker was killed")


if __name__ == "__main__":
    main()
