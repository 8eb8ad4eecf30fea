"""`trimtab demo --queue`: a queue under load, a killed worker, and a final count.

Messages are produced at a constant rate and handled by three worker processes. Half way one worker
is killed (SIGKILL) with messages in flight, and another one replaces it. At the end every message
must have been handled or rejected.
"""

import json
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import Producer

from trimtab.cli.demo.broker_setup import connect_broker, create_topics
from trimtab.cli.errors import DemoFailedError
from trimtab.cli.terminal import print_line
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.units import format_count
from trimtab.consumer_sdk.log_rate_limit import QUIET_LOG_LEVEL
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.settings import parse_queue_settings

QUEUE_PARTITIONS: Final = 4
WORKER_COUNT: Final = 3
MESSAGES_PER_S: Final = 200
WRITE_DURATION_S: Final = 12
# time until a dead worker's message is redelivered; a broker's locks last at least 15 s
DEMO_QUEUE_TIMEOUTS: Final[Mapping[str, str]] = {"kmq": "5 s", "share": "15 s"}
SESSION_TIMEOUT_S: Final = 6  # the shortest that brokers allow by default
RECOVERY_NOTES: Final[Mapping[str, str]] = {
    "kmq": f"its partitions wait {SESSION_TIMEOUT_S} s for its session, its messages "
    f"{DEMO_QUEUE_TIMEOUTS['kmq']} more",
    "share": f"its messages wait until the broker notices, or {DEMO_QUEUE_TIMEOUTS['share']} for locks",
}
FIRST_MESSAGE_TIMEOUT_S: Final = 90.0
ALL_HANDLED_TIMEOUT_S: Final = 90.0  # from the last message produced
DEMO_POLL_INTERVAL_S: Final = 0.1
PROGRESS_LINE_INTERVAL_S: Final = 2.0


class QueueWorkers:
    """Worker processes; they end with this one, as their standard input does."""

    def __init__(self, kind: str, topic: str, config: Mapping[str, Any], folder: Path) -> None:
        self._arguments = (kind, topic)
        self._config = json.dumps(dict(config)).encode() + b"\n"
        self._folder = folder
        self._processes: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start_worker(self) -> None:
        """Start another worker."""
        # a file of its own for each worker: a killed one leaves at most a last line without its end
        file = str(self._folder / f"worker-{self._started}")
        command = [sys.executable, "-m", "trimtab.cli.demo.queue_worker", *self._arguments, file]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603 - our own
        assert worker.stdin is not None
        worker.stdin.write(self._config)  # not an argument: any user can list those
        worker.stdin.flush()
        self._processes.append(worker)
        self._started += 1

    def kill_worker(self) -> None:
        """Kill the oldest worker."""
        victim = self._processes.pop(0)
        victim.kill()
        victim.communicate()

    def stop(self) -> None:
        """Stop all workers."""
        for worker in self._processes:
            worker.communicate()

    def read_handled(self) -> dict[int, int]:
        """Return handled messages with their delivery counts."""
        handled: dict[int, int] = {}
        for file in self._folder.iterdir():
            for line in file.read_text().split("\n")[:-1]:
                number, delivery = line.split()
                handled[int(number)] = max(int(delivery), handled.get(int(number), 0))
        return handled


def run_queue_demo(kind: str, broker_settings: Mapping[str, Any]) -> bool:
    """Run the demo; return whether every message was handled.

    `broker_settings` are connection settings; if empty, an embedded broker is started. Raises
    DemoFailedError, BrokerUnreachableError.
    """
    clock = SystemClock()
    topic = f"demo-queue-{secrets.token_hex(3)}"
    print_line(f"{kind}: {'checking' if broker_settings else 'starting'} the broker")
    with ExitStack() as stack:
        written, client = connect_broker(broker_settings, stack)
        config = {
            **written,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "trimtab.queue.timeout": DEMO_QUEUE_TIMEOUTS[kind],
        }
        create_topics(client, [topic], QUEUE_PARTITIONS)
        if kind == "kmq":  # the brokers themselves redeliver messages of a share group
            config["session.timeout.ms"] = SESSION_TIMEOUT_S * 1000
            _run_tracker(topic, config, stack)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="trimtab-queue-")))
        workers = QueueWorkers(kind, topic, config, folder)
        stack.callback(workers.stop)
        for _ in range(WORKER_COUNT):
            workers.start_worker()
        load = f"{MESSAGES_PER_S} messages/s for {WRITE_DURATION_S} s"
        print_line(f"{kind}: {WORKER_COUNT} workers start; then {load}")
        return _report_handled(workers, _write_messages(client, topic, workers, clock), kind, clock)


def _run_tracker(topic: str, config: Mapping[str, Any], stack: ExitStack) -> None:
    stop = Event()
    tracker = RedeliveryTracker(parse_queue_settings(topic, config))
    thread = Thread(target=tracker.run, args=(stop,), name="trimtab-redeliver")
    thread.start()
    stack.callback(thread.join)
    stack.callback(stop.set)  # callbacks run in reverse: set, then join


def _write_messages(client: Mapping[str, Any], topic: str, workers: QueueWorkers, clock: Clock) -> int:
    """Produce messages and kill a worker meanwhile; return the number produced."""
    # the rate starts with the first handled message: joining the group takes seconds
    producer = Producer({**client, "log_level": QUIET_LOG_LEVEL})
    producer.produce(topic, b"0", partition=0)
    producer.flush(FIRST_MESSAGE_TIMEOUT_S)
    _wait_until_handled(workers, 1, FIRST_MESSAGE_TIMEOUT_S, clock)
    written = 1
    killed = False
    begin = clock.monotonic()
    line = PROGRESS_LINE_INTERVAL_S
    while (at := clock.monotonic() - begin) < WRITE_DURATION_S:
        while written < at * MESSAGES_PER_S:
            producer.produce(topic, str(written), partition=written % QUEUE_PARTITIONS)
            written += 1
        producer.poll(0)
        if at > WRITE_DURATION_S / 2 and not killed:
            killed = True
            workers.kill_worker()
            workers.start_worker()
            print_line(f"[{at:4.0f} s] a worker is killed (SIGKILL) and replaced")
        if at > line:
            line += PROGRESS_LINE_INTERVAL_S
            print_line(f"[{at:4.0f} s] {written} produced, {len(workers.read_handled())} handled")
        clock.sleep(DEMO_POLL_INTERVAL_S)
    if producer.flush(30):
        raise DemoFailedError("the broker did not acknowledge all messages")
    return written


def _report_handled(workers: QueueWorkers, written: int, kind: str, clock: Clock) -> bool:
    print_line(f"all {written} produced; after a kill {RECOVERY_NOTES[kind]}")
    _wait_until_handled(workers, written, ALL_HANDLED_TIMEOUT_S, clock)
    handled = workers.read_handled()
    again = sum(delivery > 1 for delivery in handled.values())
    lost = written - len(handled)
    counts = f"{len(handled)} handled, {again} of them after more than one delivery, {lost} lost"
    print_line(f"{'FAILED' if lost else 'proved'}: {format_count(written, 'message')}, {counts}")
    return not lost


def _wait_until_handled(workers: QueueWorkers, count: int, seconds: float, clock: Clock) -> None:
    begin = clock.monotonic()
    line = PROGRESS_LINE_INTERVAL_S
    while (done := len(workers.read_handled())) < count and (at := clock.monotonic() - begin) < seconds:
        if at > line:
            line += PROGRESS_LINE_INTERVAL_S
            print_line(f"[{at:4.0f} s] {done} of {count} handled")
        clock.sleep(DEMO_POLL_INTERVAL_S)
