"""Transactional producer: a process that can be killed, and what became of its writes.

`python -m faults.transactions BOOTSTRAP TOPIC PARTITIONS SEED LOG WRITE` writes transactions until SIGTERM,
aborts every fifth, and logs each step before it takes it: a killed process has committed no
transaction without the line "commit". Its successor, with the same transactional.id, aborts what was
left open. Lines: "record PARTITION NUMBER", "acked PARTITION NUMBER OFFSET TIME", and TIME after "commit",
"abort" and "done"; "begin".
"""

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final, TextIO

from confluent_kafka import KafkaException, Producer

from faults.changes import FIRST_NUMBER, RECORDS
from history.events import Outcome, Write

ABORTED_SHARE: Final = 0.2
TRANSACTION_TIMEOUT_MS: Final = 15_000
END_SECONDS: Final = 120.0
TICK: Final = 0.2


class Transactions:
    """Keeps the process running until `end`."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, seed: str, log: Path, write: str = "append"
    ) -> None:
        self._command = [sys.executable, "-m", "faults.transactions"]
        self._command += [bootstrap, topic, str(partitions), seed, str(log), write]
        self._log = log
        self._log.touch()
        self._stop = Event()
        self._process = subprocess.Popen(self._command)
        self._thread = Thread(target=self._keep, name="transactions")
        self._thread.start()

    def kill(self) -> bool:
        """Kill the producer (SIGKILL); it is replaced at once. Return whether it was alive."""
        alive = self._process.poll() is None
        self._process.kill()
        return alive

    def end(self) -> None:
        """Stop after the current transaction; nothing stays open."""
        self._stop.set()
        self._thread.join()
        self._process.send_signal(signal.SIGTERM)
        while self._process.wait(END_SECONDS):
            self._process = subprocess.Popen([*self._command, "end"])

    def writes(self) -> list[Write]:
        """Return every write so far with its outcome."""
        return list(parse_log(self._log.read_text().splitlines()))

    def _keep(self) -> None:
        while not self._stop.wait(TICK):
            if self._process.poll() is not None:
                self._process = subprocess.Popen(self._command)


def parse_log(lines: Iterable[str]) -> Iterator[Write]:
    """Return the writes of a log; a transaction that ended between commit and done is indeterminate."""
    pending: dict[tuple[str, int], tuple[int | None, float]] = {}
    outcome = Outcome.ABORTED
    for line in lines:
        word, *fields = line.split()
        if word == "record":
            pending[fields[0], int(fields[1])] = (None, 0.0)
        elif word == "acked":
            offset = None if fields[2] == "None" else int(fields[2])  # librdkafka may not know it
            pending[fields[0], int(fields[1])] = (offset, float(fields[3]))
        elif word == "commit":
            outcome = Outcome.INDETERMINATE
        elif word == "abort":
            outcome = Outcome.ABORTED
        else:  # done, or another process begins
            settled = Outcome.COMMITTED if (word, outcome) == ("done", Outcome.INDETERMINATE) else outcome
            yield from _settle(pending, settled)
            pending, outcome = {}, Outcome.ABORTED
    yield from _settle(pending, outcome)


def _settle(pending: dict[tuple[str, int], tuple[int | None, float]], outcome: Outcome) -> Iterator[Write]:
    for (partition, number), (offset, at) in pending.items():
        yield Write(partition, number, offset, outcome, at)


class _Program:
    """The process."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, seed: str, log: TextIO, write: str
    ) -> None:
        self._topic, self._partitions, self._log = topic, partitions, log
        self._record = RECORDS[write]
        self._chance = random.Random(f"{seed}/{log.tell()}")  # noqa: S311 - it must replay
        self._next: Counter[int] = Counter()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": topic,
                "transaction.timeout.ms": TRANSACTION_TIMEOUT_MS,
                "linger.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self.stop = Event()

    def run(self, first: int) -> None:
        """Write transactions until the stop."""
        self._first = first
        self._producer.init_transactions(60)
        self._say("begin")
        while not self.stop.is_set():
            self._producer.begin_transaction()
            for _ in range(self._chance.randint(5, 30)):
                self._write(self._chance.randrange(self._partitions))
                self.stop.wait(0.02)
            self._producer.flush(60)
            self._finish()

    def _finish(self) -> None:
        if self._chance.random() >= ABORTED_SHARE:
            self._say_when("commit")
            try:
                self._producer.commit_transaction(60)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
            else:
                self._say_when("done")
                return
        # a commit that requires an abort did not happen
        self._say_when("abort")
        self._producer.abort_transaction(60)
        self._say_when("done")

    def _write(self, partition: int) -> None:
        number = self._first + self._next[partition]
        self._next[partition] += 1
        key, value = self._record(self._topic, partition, number)

        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self._say(f"acked {partition} {number} {message.offset()} {time.monotonic():.6f}")

        self._say(f"record {partition} {number}")
        self._producer.produce(self._topic, value, key, partition=partition, on_delivery=delivered)
        self._producer.poll(0)

    def _say_when(self, step: str) -> None:
        self._say(f"{step} {time.monotonic():.6f}")

    def _say(self, line: str) -> None:
        self._log.write(line + "\n")
        self._log.flush()


def main(bootstrap: str, topic: str, partitions: str, seed: str, log: str, write: str, *end: str) -> None:
    lives = Path(log).read_text().splitlines().count("begin") if Path(log).exists() else 0
    with Path(log).open("a") as file:
        program = _Program(bootstrap, topic, int(partitions), f"{seed}/{lives}", file, write)
        signal.signal(signal.SIGTERM, lambda *_: program.stop.set())
        if end:
            program.stop.set()
        try:
            program.run(FIRST_NUMBER * (lives + 1))
        except KafkaException as error:  # a fatal one, or no answer in time: a successor takes over
            sys.exit(f"transactional producer: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
