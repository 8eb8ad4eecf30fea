"""One worker of `trimtab demo --queue`, in a process of its own.

python -m trimtab.cli.demo.queue_worker KIND TOPIC FILE

A line of FILE for each message that is over: its number and the delivery at which it was. Every
`FAILS`th message fails once, every `REFUSED`th is rejected. The first line of its standard input is
the configuration, as JSON; it ends when its standard input does.
"""

import json
import os
import sys
from threading import Event, Thread
from typing import Final

from trimtab.consumer_sdk.queues import Received, Reject, Retry, open_queue, worker

FAILS: Final = 50
REFUSED: Final = 500


def main(kind: str, topic: str, file: str) -> None:
    """Handle messages until standard input ends."""
    config, stop = json.loads(sys.stdin.readline()), Event()
    Thread(target=_watch, args=(stop,), daemon=True).start()
    lines = os.open(file, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    @worker(concurrency=4)
    def handle(message: Received) -> None:
        number = int(message.value or b"0")
        if number % FAILS == FAILS - 1 and message.delivery == 1:
            raise Retry
        os.write(lines, b"%d %d\n" % (number, message.delivery))
        if number % REFUSED == REFUSED - 2:
            raise Reject("every five hundredth is refused")

    with open_queue(kind, topic, config) as queue:
        handle.run(queue, stop)


def _watch(stop: Event) -> None:
    """Stop when standard input ends: whoever started us is gone, or wants us to be."""
    sys.stdin.read()
    stop.set()


if __name__ == "__main__":
    main(*sys.argv[1:])
