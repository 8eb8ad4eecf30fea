"""A worker of a queue that the sidecar scales; handles orders until SIGTERM.

python examples/queue_worker.py worker-1 localhost:9092 orders billing kmq

The sidecar starts it with its instance name and stops it by SIGTERM: it takes no more messages,
finishes those it has and leaves the group (docs/queues.md).
"""

import signal
import sys
from threading import Event

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.queues import QueueMessage, open_queue, queue_worker


def main(instance: str, bootstrap: str, topic: str, group: str, kind: str, seconds: float = 0.5) -> None:
    """Handle orders, four at a time, each in `seconds`."""
    stop = Event()

    def end(*_: object) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "trimtab.instance": instance,
        "auto.offset.reset": "earliest",
    }

    @queue_worker(concurrency=4)
    def handle(message: QueueMessage) -> None:
        Event().wait(seconds)  # the work
        sys.stdout.write(f"{(message.value or b'').decode()}\n")
        sys.stdout.flush()

    with open_queue(kind, topic, config) as queue:
        handle.run(queue, stop)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit("usage: queue_worker.py INSTANCE BOOTSTRAP TOPIC GROUP kmq|ordered|share")
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass  # Ctrl-C is the normal way to stop it
    except TrimtabError as error:
        sys.exit(str(error))
