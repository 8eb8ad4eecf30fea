"""A work queue on Kafka: each message is acknowledged, retried or rejected on its own.

python examples/produce.py localhost:9092 orders
python examples/work_queue.py localhost:9092 orders kmq

The kind is kmq, ordered or share (docs/queues.md). For kmq this process runs the redelivery tracker
too, which is usually a separate one (`trimtab redeliver`).
"""

import sys
from threading import Event, Thread

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.queues import (
    QUEUE_KINDS,
    QueueMessage,
    RedeliveryTracker,
    Reject,
    Retry,
    open_queue,
    queue_worker,
)
from trimtab.consumer_sdk.queues.settings import parse_queue_settings


def main(bootstrap: str, topic: str, kind: str = "kmq", orders: int = 100) -> None:
    """Handle `orders` messages: open ones fail once, one is rejected."""
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"example-{kind}",
        "auto.offset.reset": "earliest",
        "trimtab.queue.timeout": "20 s",
    }
    stop, finished = Event(), set[bytes]()

    @queue_worker(concurrency=4)
    def handle(message: QueueMessage) -> None:
        value = message.value or b""
        if value.startswith(b"open") and message.delivery == 1:
            raise Retry
        finished.add(value)
        if len(finished) == orders:
            stop.set()
        if value == b"paid order 3":
            raise Reject("no such customer")
        sys.stdout.write(f"handled {value.decode()} at delivery {message.delivery}\n")

    sys.stderr.write(f"handling {orders} orders; Ctrl-C stops it\n")
    tracker = None
    if kind == "kmq":
        tracker = Thread(target=RedeliveryTracker(parse_queue_settings(topic, config)).run, args=(stop,))
        tracker.start()
    try:
        with open_queue(kind, topic, config) as queue:
            handle.run(queue, stop)
    finally:
        stop.set()
        if tracker is not None:
            tracker.join()


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4, 5} or not all(n.isdecimal() for n in sys.argv[4:]):
        sys.exit(f"usage: work_queue.py BOOTSTRAP TOPIC [{'|'.join(QUEUE_KINDS)} [ORDERS]]")
    try:
        main(*sys.argv[1:4], *map(int, sys.argv[4:]))
    except KeyboardInterrupt:
        pass  # Ctrl-C is the normal way to stop it
    except TrimtabError as error:
        sys.exit(str(error))
