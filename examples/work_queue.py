"""A queue on Kafka: each message acknowledged, delivered again or given up by itself.

python examples/work_queue.py localhost:9092 orders kmq

The kind is kmq, ordered or share (docs/queues.md). For kmq the redelivery tracker runs in here;
usually it is a process of its own, `trimtab redeliver`.
"""

import sys
from threading import Event, Thread

from trimtab.consumer_sdk.queues import Received, Reject, Retry, Tracker, open_queue, worker
from trimtab.consumer_sdk.queues.settings import settings


def main(bootstrap: str, topic: str, kind: str = "kmq", orders: int = 10) -> None:
    """Handle so many orders: the open ones fail once, and one is refused."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"example-{kind}",
        "auto.offset.reset": "earliest",
        "trimtab.queue.timeout": "20 s",
    }
    stop, over = Event(), set[bytes]()

    @worker(concurrency=4)
    def handle(message: Received) -> None:
        value = message.value or b""
        if value.startswith(b"open") and message.delivery == 1:
            raise Retry
        over.add(value)
        if len(over) == orders:
            stop.set()
        if value == b"paid order 3":
            raise Reject("no such customer")
        sys.stdout.write(f"handled {value.decode()} at delivery {message.delivery}\n")

    tracker = None
    if kind == "kmq":
        tracker = Thread(target=Tracker(settings(topic, config)).run, args=(stop,))
        tracker.start()
    with open_queue(kind, topic, config) as queue:
        handle.run(queue, stop)
    if tracker is not None:
        tracker.join()


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4}:
        sys.exit("usage: work_queue.py BOOTSTRAP TOPIC [kmq|ordered|share]")
    main(*sys.argv[1:])
