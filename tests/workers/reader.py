"""A consumer process, for tests that kill or freeze it; logs each record that it returns.

reader.py BOOTSTRAP GROUP TOPIC NAME FILE [SETTINGS] - writes a line per record: partition, offset,
monotonic seconds. The time is taken just before the last check of the lease: a process frozen after
that check was still entitled to return its records. SETTINGS are more settings, as JSON.
"""

import json
import sys
from pathlib import Path
from time import monotonic

from trimtab.consumer_sdk.consumer.consumer import Consumer


class TimedConsumer(Consumer):
    """A consumer that knows when it last checked its lease, in monotonic seconds."""

    checked_at: float = 0.0

    def _recheck_lease(self) -> bool:
        self.checked_at = monotonic()
        return super()._recheck_lease()


def main(bootstrap: str, group: str, topic: str, name: str, file: str, settings: str = "{}") -> None:
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "trimtab.instance": name,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        **({} if "group.protocol" in settings else {"heartbeat.interval.ms": 100}),
        "auto.commit.interval.ms": 200,
        **json.loads(settings),
    }
    with Path(file).open("a", buffering=1) as log, TimedConsumer(config) as consumer:
        consumer.subscribe([topic])
        while True:
            messages = consumer.consume(100, timeout=0.05)
            at = consumer.checked_at
            log.write("".join(f"{m.partition()} {m.offset()} {at}\n" for m in messages))


if __name__ == "__main__":
    main(*sys.argv[1:])
