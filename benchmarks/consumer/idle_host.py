"""A consumer of bench_idle in a process of its own.

idle_host.py CLIENT CONFIG - CLIENT is `confluent`, `trimtab_async`, or else a consumer of Trimtab;
CONFIG is its configuration in JSON, with the topic under "topic". Prints `reading` once it has partitions.
Each line on standard input is answered with a JSON object of its Python threads: native id to name. Ends when
standard input ends.
"""

import asyncio
import json
import sys
from collections.abc import Callable
from threading import Event, Thread
from threading import enumerate as list_threads
from typing import Any

POLL_TIMEOUT_S = 1.0


def main(client: str, config: str) -> None:
    settings = json.loads(config)
    topic, stop = settings.pop("topic"), Event()
    Thread(target=answer_lines, args=(stop,), name="bench-answers", daemon=True).start()
    if client == "trimtab_async":
        asyncio.run(read_async(settings, topic, stop))
    else:
        read_topic(open_consumer(client)(settings), topic, stop)


def answer_lines(stop: Event) -> None:
    for _ in sys.stdin:
        print(json.dumps({thread.native_id: thread.name for thread in list_threads()}), flush=True)
    stop.set()


def open_consumer(client: str) -> Callable[[dict[str, Any]], Any]:
    """Return the class; imported here, since memory is measured."""
    if client == "confluent":
        from confluent_kafka import Consumer as PlainConsumer  # noqa: PLC0415 - as above

        return PlainConsumer
    from trimtab.consumer_sdk import Consumer  # noqa: PLC0415 - as above

    return Consumer


def read_topic(consumer: Any, topic: str, stop: Event) -> None:
    consumer.subscribe([topic], on_assign=lambda *_: print("reading", flush=True))
    while not stop.is_set():
        consumer.poll(POLL_TIMEOUT_S)
    consumer.close()


async def read_async(settings: dict[str, Any], topic: str, stop: Event) -> None:
    from trimtab.consumer_sdk import AsyncConsumer  # noqa: PLC0415 - as above

    async with AsyncConsumer(topic, **settings) as consumer:
        print("reading", flush=True)
        while not stop.is_set():
            await consumer.getmany(timeout_ms=int(POLL_TIMEOUT_S * 1000), max_records=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
