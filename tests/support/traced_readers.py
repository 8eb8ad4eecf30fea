"""Programs that read a topic with telemetry, and a producer of records with trace contexts."""

import os
import subprocess
import sys
from collections.abc import Mapping

from confluent_kafka import Producer

TRACE, SPAN = 0xABC1, 0xDEF2
PRIVATE = "private-text-of-a-record"
READER = """
import sys
from trimtab.consumer_sdk import Consumer

bootstrap, group, topic = sys.argv[1:]
config = {
    "bootstrap.servers": bootstrap,
    "group.id": group,
    "client.id": "reader",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "trimtab.telemetry": True,
}
with Consumer(config) as consumer:
    consumer.subscribe([topic])
    while (message := consumer.poll(1.0)) is None:
        pass
    with consumer.trace_processing(message):
        consumer.commit(message, asynchronous=False)
    messages = consumer.consume(10, 5.0)
    try:
        with consumer.trace_processing(messages):
            raise ValueError(messages[0].value())
    except ValueError:
        pass
    consumer.commit(messages[-1])
"""
QUEUE_READER = """
import sys
from threading import Event
from trimtab.consumer_sdk.queues import QueueMessage, Retry, open_queue, queue_worker

kind, bootstrap, group, topic = sys.argv[1:]
config = {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "worker", "trimtab.telemetry": True}
config |= {"trimtab.queue.timeout": "30 s"} if kind == "kmq" else {}
config |= {"auto.offset.reset": "earliest"} if kind == "share" else {}
stop, handled = Event(), []

@queue_worker()
def handle(message: QueueMessage) -> None:
    handled.append(message.offset)
    if len(handled) == 3:
        stop.set()
        raise Retry(0)

with open_queue(kind, topic, config) as queue:
    handle.run(queue, stop)
"""
ASYNC_READER = """
import asyncio, sys
from trimtab.consumer_sdk import AsyncConsumer

async def main(bootstrap, group, topic):
    settings = {"auto_offset_reset": "earliest", "enable_auto_commit": False, "client_id": "reader"}
    async with AsyncConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, trimtab_telemetry=True, **settings
    ) as consumer:
        record = await consumer.getone()
        with consumer.trace_processing(record):
            await consumer.commit()
        with consumer.trace_processing(await consumer.getmany(timeout_ms=5000)):
            pass

asyncio.run(main(*sys.argv[1:]))
"""


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(count):
        parent = f"00-{TRACE + number:032x}-{SPAN + number:016x}-01"
        headers = {"traceparent": parent.encode(), "authorization": PRIVATE.encode()}
        producer.produce(topic, PRIVATE.encode(), PRIVATE.encode(), 0, headers=headers)
    producer.flush(30)


def run_reader(program: str, environment: Mapping[str, str], *arguments: str) -> None:
    """Run a program until it ends, with further variables of the environment."""
    command = [sys.executable, "-c", program, *arguments]
    subprocess.run(command, env={**os.environ, **environment}, check=True, timeout=120)
