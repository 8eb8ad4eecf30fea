"""`trimtab demo --queue`: a queue under load, a worker that is killed, and the count at the end.

Messages are written at a steady rate; three worker processes handle them. Half way one of them is
killed (SIGKILL) with whatever it has in work, and another one takes its place. At the end every
message must have been handled, or given up on purpose.
"""

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any, Final

import typer
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.errors import DemoFailed
from trimtab.common.clock import Clock, SystemClock
from trimtab.common.kafka_security import connection
from trimtab.common.kafka_security.preflight import knock
from trimtab.common.kafka_security.secrets import resolved
from trimtab.consumer_sdk.errors import BrokerUnreachable
from trimtab.consumer_sdk.queues.durable_producer import QUIET
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import Tracker
from trimtab.consumer_sdk.queues.settings import settings

PARTITIONS: Final = 4
WORKERS: Final = 3
RATE: Final = 200
"""Messages/s."""

SECONDS: Final = 12
"""How long they are written."""

TIMEOUT: Final[Mapping[str, str]] = {"kmq": "5 s", "share": "15 s"}
"""Until a message of a dead worker comes back; a broker's locks take 15 s at least."""

SESSION: Final = 6
"""Seconds for which the partitions of a dead worker wait; brokers allow no fewer."""

WAITS: Final[Mapping[str, str]] = {
    "kmq": f"its partitions wait {SESSION} s for its session, its messages {TIMEOUT['kmq']} more",
    "share": f"its messages wait for the broker to see it gone, or {TIMEOUT['share']} for locks",
}

READY: Final = 90.0
"""Seconds in which the first message must have been handled."""

SETTLED: Final = 90.0
"""Seconds after the last message in which all must have been handled."""

ANSWER: Final = 10.0
"""Seconds in which the brokers must answer at first."""

TICK: Final = 0.1
LINE: Final = 2.0
"""Seconds between two lines."""


class Crew:
    """The worker processes; they end with this one, since their standard input does."""

    def __init__(self, kind: str, topic: str, config: Mapping[str, Any], folder: Path) -> None:
        self._words = (kind, topic)
        self._config = json.dumps(dict(config)).encode() + b"\n"
        self._folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0

    def start(self) -> None:
        """Start one more worker."""
        file = str(self._folder / f"worker-{self._started}")
        command = [sys.executable, "-m", "trimtab.cli.demo.queue_worker", *self._words, file]
        started = subprocess.Popen(  # noqa: S603 - our own program
            command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert started.stdin is not None
        started.stdin.write(self._config)  # not a word of the command, which anybody can list
        started.stdin.flush()
        self._running.append(started)
        self._started += 1

    def kill(self) -> None:
        """Kill the worker that was started first."""
        victim = self._running.pop(0)
        victim.kill()
        victim.communicate()

    def stop(self) -> None:
        """Let all end."""
        for worker in self._running:
            worker.communicate()

    def handled(self) -> dict[int, int]:
        """Return the messages that are over, each with the delivery at which it was."""
        found: dict[int, int] = {}
        for file in self._folder.iterdir():
            for line in file.read_text().split("\n")[:-1]:
                number, delivery = line.split()
                found[int(number)] = max(int(delivery), found.get(int(number), 0))
        return found


def play_queue(kind: str, given: Mapping[str, Any]) -> bool:
    """Play it; tell whether every message was handled. Raises DemoFailed, BrokerUnreachable.

    `given` is how the brokers are reached; empty: an embedded one is started.
    """
    clock, topic = SystemClock(), f"demo-queue-{secrets.token_hex(3)}"
    typer.echo(f"{kind}: {'the broker is asked' if given else 'a broker is started'}")
    with ExitStack() as stack:
        written = given or {"bootstrap.servers": stack.enter_context(EmbeddedBroker()).bootstrap}
        client = connection.for_librdkafka(resolved(written, os.environ))
        connection.check(client)
        knock(client)
        config = {
            **written,
            "group.id": topic,
            "auto.offset.reset": "earliest",
            "trimtab.queue.timeout": TIMEOUT[kind],
        }
        if kind == "kmq":
            config["session.timeout.ms"] = SESSION * 1000
        _make_topic(client, topic)
        if kind == "kmq":
            _track(topic, config, stack)
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="trimtab-queue-")))
        crew = Crew(kind, topic, config, folder)
        stack.callback(crew.stop)
        for _ in range(WORKERS):
            crew.start()
        typer.echo(f"{kind}: {WORKERS} workers start; then {RATE} messages/s for {SECONDS} s")
        return _settle(crew, _write(client, topic, crew, clock), kind, clock)


def _make_topic(client: Mapping[str, Any], topic: str) -> None:
    admin = AdminClient({**client, "log_level": QUIET})
    try:
        made = admin.create_topics([NewTopic(topic, PARTITIONS)], request_timeout=ANSWER)
        made[topic].result()
    except KafkaException as error:
        if error.args[0].code() in (-195, -185):
            raise BrokerUnreachable(str(client["bootstrap.servers"])) from error
        raise DemoFailed(f"the topic cannot be made: {error.args[0].str()}") from error


def _track(topic: str, config: Mapping[str, Any], stack: ExitStack) -> None:
    """Run the tracker that kmq needs, until the stack unwinds."""
    stop, tracker = Event(), Tracker(settings(topic, config))
    thread = Thread(target=tracker.run, args=(stop,), name="trimtab-redeliver")
    thread.start()
    stack.callback(thread.join)
    stack.callback(stop.set)


def _write(client: Mapping[str, Any], topic: str, crew: Crew, clock: Clock) -> int:
    """Write the messages, kill a worker on the way; return how many were written."""
    producer = Producer({**client, "log_level": QUIET})
    producer.produce(topic, b"0", partition=0)
    producer.flush(READY)
    _until(crew, 1, READY, clock)
    written, killed, begin = 1, False, clock.monotonic()
    line = LINE
    while (at := clock.monotonic() - begin) < SECONDS:
        while written < at * RATE:
            producer.produce(topic, str(written), partition=written % PARTITIONS)
            written += 1
        producer.poll(0)
        if at > SECONDS / 2 and not killed:
            killed = True
            crew.kill()
            crew.start()
            typer.echo(f"[{at:4.0f} s] a worker is killed (SIGKILL), another takes its place")
        if at > line:
            line += LINE
            typer.echo(f"[{at:4.0f} s] {written} written, {len(crew.handled())} handled")
        clock.sleep(TICK)
    if producer.flush(30):
        raise DemoFailed("the broker does not take the messages")
    return written


def _settle(crew: Crew, written: int, kind: str, clock: Clock) -> bool:
    """Wait until all is handled, say what came of it, and whether it is all."""
    typer.echo(f"all {written} are written; what the killed worker had: {WAITS[kind]}")
    _until(crew, written, SETTLED, clock)
    handled = crew.handled()
    again = sum(delivery > 1 for delivery in handled.values())
    lost = written - len(handled)
    word = "proved" if not lost else "FAILED"
    typer.echo(
        f"{word}: {written} messages, {len(handled)} handled, {again} of them after more than one "
        f"delivery, {lost} lost"
    )
    return not lost


def _until(crew: Crew, count: int, seconds: float, clock: Clock) -> None:
    """Wait until so many messages are handled, or the time is over."""
    begin = clock.monotonic()
    line = LINE
    while (done := len(crew.handled())) < count and (at := clock.monotonic() - begin) < seconds:
        if at > line:
            line += LINE
            typer.echo(f"[{at:4.0f} s] {done} of {count} handled")
        clock.sleep(TICK)
