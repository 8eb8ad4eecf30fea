"""A process under test: `trimtab ingest` or `trimtab sidecar`, with a socket for faults.

`python -m faults.worker FOLDER NAME CONFIG` runs the product's command: the sidecar if NAME is
"sidecar", else a consumer of that name behind the link of its number. It adds:

- a *clock* that a suspended machine's may be (`suspended_clock`), and, on an object store, one of the JVM
  that may be wrong (`wall_clock`);

- an *order socket*, the datagram socket `orders/NAME`, for the orders "crash STEP" (SIGKILL at the next such
  step; "crash" alone disarms), "fail TABLE STEP" (flushes of the table fail there; "fail" alone ends it),
  "clock SECONDS" (the wall clock jumps) and "drain" (drain the consumer);
- a *log* of where it began to read and of the records handed out, `handed/NAME.PID` (`handed_log`). The
  time is taken just before the last check of the lease: a process frozen after that check was still
  entitled to hand out its records.

The jump of the wall clock changes `time.time` for all Python code of the process: SDK, sidecar,
kafka-python, the log; not librdkafka and not the JVM.
"""

import json
import os
import signal
import socket
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from threading import Event, Thread, local
from typing import Any

from faults import suspended_clock, wall_clock
from faults.check import record_number
from faults.handed_log import format_poll, format_start
from faults.schedule import HANGING, UNREACHABLE
from history.events import Poll, Start
from trimtab.assignor.model import TopicPartition
from trimtab.cli import main as command
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import LakeUnavailableError, TableSchemaMismatchError
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchFlusher, FlushBatch, FlushOutcome
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

SIDECAR = "sidecar"


class OrderListener:
    """Receives orders."""

    def __init__(self, path: Path) -> None:
        self.crash_at = ""
        self.fail_at: tuple[str, ...] = ()  # a table and a step
        self.flushed = local()  # the table of a thread's flush
        self.ahead = 0.0  # seconds by which the wall clock is wrong
        self.consumer: Watched | None = None
        self._true_time = time.time
        self._pause = Event()
        path.unlink(missing_ok=True)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        Thread(target=self._listen, name="orders", daemon=True).start()

    def wall(self) -> float:
        return self._true_time() + self.ahead

    def pass_by(self, step: str) -> None:
        """Kill this process if it is armed for this step.

        Raises TableSchemaMismatchError or, if it is unreachable, LakeUnavailableError where a flush fails.
        """
        if step == self.crash_at:
            sys.stderr.write(f"crashing at {step}\n")
            os.kill(os.getpid(), signal.SIGKILL)
        if (table := getattr(self.flushed, "table", "")) and self.fail_at == (table, step):
            error = LakeUnavailableError if step == UNREACHABLE else TableSchemaMismatchError
            raise error(f"a fault: {table} takes no rows at {step}")

    def hang(self, table: str) -> None:
        """Return when the table's calls do not hang any more."""
        while self.fail_at == (table, HANGING):
            self._pause.wait(0.05)

    def _listen(self) -> None:
        while True:
            order, _, detail = self._socket.recv(200).decode().partition(" ")
            if order == "crash":
                self.crash_at = detail
            elif order == "fail":
                self.fail_at = tuple(detail.split())
            elif order == "clock":
                self.ahead += float(detail)
            elif order == "drain" and self.consumer is not None:
                self.consumer.drain()


class Watched(Consumer):
    """The product's consumer with a log of the records handed out."""

    def __init__(self, orders: OrderListener, log: Path, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._log = log.open("a", buffering=1)
        self._tenures: Counter[tuple[str, int]] = Counter()
        self._looked = 0.0
        orders.consumer = self

    def subscribe(self, topics: Any, on_assign: Any = None, *callbacks: Any) -> None:
        def assign(consumer: Any, partitions: Any) -> None:
            self._tenures.update((p.topic, p.partition) for p in partitions)
            on_assign(consumer, partitions)

        super().subscribe(topics, assign, *callbacks)

    def consume(self, num_messages: int = 1, timeout: float = -1) -> Any:
        messages = super().consume(num_messages, timeout)
        records: defaultdict[tuple[str, int], list[tuple[int, int]]] = defaultdict(list)
        for m in messages:
            if m.error() is None:
                records[m.topic(), m.partition()].append((m.offset(), record_number(m.key())))
        for where, found in sorted(records.items()):
            poll = Poll("", self._tenures[where], str(where[1]), self._looked, tuple(found))
            self._log.write(format_poll(where[0], poll))
        return messages

    def log_start(self, topic: str, partition: int, committed: int | None, offset: int | None) -> None:
        """Log that reading begins."""
        now = suspended_clock.TRUE_MONOTONIC()
        start = Start("", self._tenures[topic, partition], str(partition), now, committed, offset)
        self._log.write(format_start(topic, start))

    def _recheck_lease(self) -> bool:
        self._looked = suspended_clock.TRUE_MONOTONIC()
        return super()._recheck_lease()


class Stepped(LakeWriter):
    """The product's writer, which dies at armed steps and logs where its consumer begins to read."""

    orders: OrderListener

    def __init__(self, *arguments: Any, lake: Any, **named: Any) -> None:
        open_table = lake.open_table

        def reach_table(name: str) -> Any:
            self.orders.pass_by(UNREACHABLE)
            self.orders.hang(name)
            return open_table(name)

        lake.open_table = reach_table
        super().__init__(*arguments, lake=lake, **named)

    def on_assign(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        super().on_assign(_consumer, partitions)
        for raw in partitions:
            self._log_start(TopicPartition(raw.topic, raw.partition), None)

    def _restart_partition(self, partition: TopicPartition, offset: int) -> None:
        super()._restart_partition(partition, offset)
        self._log_start(partition, offset)

    def _log_start(self, partition: TopicPartition, offset: int | None) -> None:
        committed = self._positions.committed_offsets([partition]).get(partition)
        watched = self.orders.consumer
        assert watched is not None
        watched.log_start(partition.topic, partition.partition, committed, offset)

    def _reach_step(self, step: str) -> None:
        self.orders.pass_by(step)


def name_flushes(orders: OrderListener) -> None:
    """Let each flush thread say which table it flushes."""
    flush_batch = BatchFlusher.flush_batch

    def flush(flusher: BatchFlusher, batch: FlushBatch, backoff: RetryBackoff) -> FlushOutcome:
        orders.flushed.table = batch.table
        return flush_batch(flusher, batch, backoff)

    BatchFlusher.flush_batch = flush  # type: ignore[method-assign]


def arguments(folder: Path, name: str, config: str) -> list[str]:
    """Return the product's command line."""
    if name == SIDECAR:
        return ["sidecar", "--config", config]
    links = json.loads((folder / "links.json").read_text())
    address = links[int(name.rpartition("-")[2]) % len(links)]
    return ["ingest", "--config", config, "--instance", name, "--set", f"bootstrap.servers={address}"]


def main(folder: Path, name: str, config: str) -> None:
    suspended_clock.install(folder / "suspended" / name)
    if name != SIDECAR and (library := folder / "wall_clock.so").exists():
        wall_clock.install(library, folder / "wall-clock" / name)
    orders = OrderListener(folder / "orders" / name)
    time.time = orders.wall
    log = folder / "handed" / f"{name}.{os.getpid()}"
    Stepped.orders = orders
    name_flushes(orders)
    ingest.LakeWriter = Stepped  # type: ignore[misc]
    ingest.Consumer = partial(Watched, orders, log)  # type: ignore[assignment, misc]
    sys.exit(command.main(arguments(folder, name, config)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
