"""One worker process of `trimtab demo --queue`.

python -m trimtab.cli.demo.queue_worker KIND TOPIC FILE

Appends a line to FILE for each settled message: its number and delivery count. Every
`RETRY_EVERY`th message fails once, every `REJECT_EVERY`th is rejected. The first line of standard
input is the configuration as JSON; the worker ends when standard input does.
"""

import json
import os
import sys
from threading import Event, Thread
from typing import Final

from trimtab.consumer_sdk.queues import QueueMessage, Reject, Retry, open_queue, queue_worker

RETRY_EVERY: Final = 50
REJECT_EVERY: Final = 500


def main(kind: str, topic: str, file: str) -> None:
    """Handle messages until standard input ends."""
    config = json.loads(sys.stdin.readline())
    stop = Event()
    Thread(target=_stop_at_stdin_end, args=(stop,), daemon=True).start()
    # written at once, without a buffer: what a killed worker has settled is in the file
    lines = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    @queue_worker(concurrency=4)
    def handle(message: QueueMessage) -> None:
        number = int(message.value or b"0")
        if number % RETRY_EVERY == RETRY_EVERY - 1 and message.delivery == 1:
            raise Retry
        os.write(lines, b"%d %d\n" % (number, message.delivery))
        if number % REJECT_EVERY == REJECT_EVERY - 2:
            raise Reject("every five hundredth is refused")

    with open_queue(kind, topic, config) as queue:
        handle.run(queue, stop)


def _stop_at_stdin_end(stop: Event) -> None:
    sys.stdin.read()  # ends with the parent, however that ends
    stop.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
