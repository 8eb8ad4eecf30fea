"""The three kinds of queue beside a plain group: throughput, latency, time to redelivery.

Throughput: a topic is filled, then so many worker processes empty it in batches; counted is from
the 10th to the 90th percentile of the handled messages. Latency: messages come at a steady rate,
and each is timed from being written to being handled, 1 % of them failing once. A message that is
delivered again counts with its whole age. Redelivery: a worker that holds a message is killed
(SIGKILL); timed is until another worker has it. What brings it back is kmq's timeout (3 s),
ordered's session (3 s), and for share the shortest lock that a broker allows (15 s).

For kmq a tracker runs beside the workers. `plain` is Trimtab's own consumer, whose group and
fetching kmq and ordered use.
"""

import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep, time
from typing import Any, TypeAlias

import harness
import numpy as np
from rich.console import Console
from rich.table import Table

HOST = Path(__file__).parent / "queue_host.py"
KINDS = ("plain", "kmq", "ordered", "share")
PARTITIONS = 16
TIMEOUT = 3.0
"""Seconds of kmq's timeout where a worker is killed, and of the session."""
READY = 60.0
"""Seconds in which workers must have begun, or ended."""

Rows: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
"""When handled, when written (s since the epoch), which delivery."""


class Workers:
    """Worker processes of one kind on one topic, and what they have handled."""

    def __init__(self, kind: str, topic: str, bootstrap: str, folder: Path) -> None:
        self._kind, self._topic, self._bootstrap, self._folder = kind, topic, bootstrap, folder
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, count: int, batch: int, fail: float = 0.0) -> None:
        config = {**settings(self._bootstrap, self._topic), "batch": batch, "fail": fail}
        if self._kind == "share":  # the broker's shortest lock
            config["trimtab.queue.timeout"] = "15 s"
        if self._kind == "plain":
            config = {n: v for n, v in config.items() if not n.startswith("trimtab.queue.")}
        for _ in range(count):
            file = self._folder / f"{self._topic}-{len(self._running)}"
            words = (self._kind, self._topic, json.dumps(config), str(file))
            command = [sys.executable, str(HOST), *words]
            self._running.append(subprocess.Popen(command, stdin=subprocess.PIPE))

    def rows(self) -> Rows:
        """Return what has been handled, in the order of time."""
        found = [np.fromfile(f) for f in self._folder.glob(f"{self._topic}-*")]
        whole = [f[: len(f) - len(f) % 3].reshape(-1, 3) for f in found]
        rows = np.concatenate([*whole, np.empty((0, 3))])
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
    with harness.broker(given.bootstrap) as bootstrap, TemporaryDirectory() as folder:
        for size in given.sizes:
            for workers in given.workers:
                for kind in given.kinds:
                    found.append(_measure(bootstrap, Path(folder), kind, workers, size, given))
                    print(found[-1], file=sys.stderr)
        again = {k: _redelivery(bootstrap, Path(folder), k) for k in given.kinds}
    _show(found, again)
    harness.result({"runs": found, "redelivery_s": again, "kmq_of_plain": _share(found)})


def _arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    arguments.add_argument("--workers", nargs="+", type=int, default=[1])
    arguments.add_argument("--sizes", nargs="+", type=int, default=[100])
    arguments.add_argument("--messages", type=int, default=200_000, help="to empty a topic of")
    arguments.add_argument("--batch", type=int, default=5000, help="messages of one receive")
    arguments.add_argument("--rate", type=float, default=500, help="messages/s, for the latency")
    arguments.add_argument("--seconds", type=float, default=10, help="of the steady rate")
    return arguments.parse_args()


def _measure(
    bootstrap: str, folder: Path, kind: str, workers: int, size: int, given: Namespace
) -> dict[str, Any]:
    flood = _flood(bootstrap, folder, kind, workers, size, given)
    ages = _steady(bootstrap, folder, kind, workers, size, given)
    return {
        "kind": kind,
        "workers": workers,
        "size": size,
        "messages_s": round(flood),
        "p50_ms": round(float(np.percentile(ages, 50)) * 1000, 1),
        "p99_ms": round(float(np.percentile(ages, 99)) * 1000, 1),
    }


def _flood(
    bootstrap: str, folder: Path, kind: str, workers: int, size: int, given: Namespace
) -> float:
    """Return messages/s."""
    topic = harness.new_topic(bootstrap, PARTITIONS)
    harness.fill(bootstrap, topic, PARTITIONS, given.messages, size)
    with _crew(bootstrap, folder, kind, topic) as crew:
        crew.start(workers, given.batch)
        _until(lambda: len(crew.rows()) >= given.messages, 5 * READY)
        handled = crew.rows()[:, 0]
    begin, end = np.percentile(handled, (10, 90))
    return 0.8 * len(handled) / max(end - begin, 1e-9)


def _steady(
    bootstrap: str, folder: Path, kind: str, workers: int, size: int, given: Namespace
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the age of each message when it was handled for good, in seconds."""
    topic, fail = harness.new_topic(bootstrap, PARTITIONS), 0.0 if kind == "plain" else 0.01
    with _crew(bootstrap, folder, kind, topic) as crew:
        crew.start(workers, 100, fail)
        harness.fill(bootstrap, topic, PARTITIONS, PARTITIONS * 20, size)
        _until(lambda: len(crew.rows()) >= PARTITIONS * 20, READY)
        sleep(2)  # the group is at rest
        began = time()
        _produce(bootstrap, topic, given, size)
        sleep(3)
        rows = crew.rows()
    last = rows[rows[:, 1] >= began - 0.001]
    return last[:, 0] - last[:, 1]


def _produce(bootstrap: str, topic: str, given: Namespace, size: int) -> None:
    producer = harness.Producer({"bootstrap.servers": bootstrap, "linger.ms": 1})
    turn, burst = monotonic(), max(1, round(given.rate * harness.BURST))
    for number in range(round(given.rate * given.seconds / burst)):
        for one in range(burst):
            producer.produce(topic, b"x" * size, partition=(number * burst + one) % PARTITIONS)
        producer.poll(0)
        turn += burst / given.rate
        sleep(max(0.0, turn - monotonic()))
    producer.flush()


def _redelivery(bootstrap: str, folder: Path, kind: str) -> float | None:
    """Return seconds from a worker's death to another one having its message; None for plain."""
    if kind == "plain":
        return None
    topic = harness.new_topic(bootstrap, 1, "-held")
    with _crew(bootstrap, folder, kind, topic) as crew:
        crew.start(1, 0)
        harness.fill(bootstrap, topic, 1, 1, 100)
        _until(lambda: len(crew.rows()) == 1, READY)
        crew.start(1, 100)
        sleep(2)
        died = time()
        crew.kill_first()
        _until(lambda: len(crew.rows()) == 2, READY)
        return round(float(crew.rows()[1, 0] - died), 2)


@contextmanager
def _crew(bootstrap: str, folder: Path, kind: str, topic: str) -> Iterator[Workers]:
    """Workers that are stopped in the end, and the tracker that kmq needs."""
    crew, command = Workers(kind, topic, bootstrap, folder), list[str]()
    if kind == "kmq":
        words = {n: v for n, v in settings(bootstrap, topic).items() if n != "bootstrap.servers"}
        given = [word for n, v in words.items() for word in ("--set", f"{n}={v}")]
        command = [sys.executable, "-m", "trimtab.cli", "redeliver", "--topic", topic, *given]
        command += ["--bootstrap", bootstrap]
    tracker = subprocess.Popen(command, stderr=subprocess.DEVNULL) if command else None
    try:
        yield crew
    finally:
        crew.stop()
        if tracker is not None:
            tracker.terminate()
            tracker.wait(READY)


def _until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            sys.exit("the workers do not handle what there is")
        sleep(0.1)


def _share(found: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return kmq's throughput as a share of the plain group's, by workers and size."""
    by = {(f["kind"], f["workers"], f["size"]): f["messages_s"] for f in found}
    return {
        f"{workers} workers, {size} B": round(by["kmq", workers, size] / rate, 2)
        for (kind, workers, size), rate in by.items()
        if kind == "plain" and ("kmq", workers, size) in by
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
