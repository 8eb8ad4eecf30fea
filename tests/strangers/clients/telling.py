"""What the Python clients share: their options, the printed lines, the limited rate, the end.

Options are name=value words: `bootstrap`, `group`, `topic`, `client` (client.id), `instance`
(group.instance.id), `protocol` (classic, consumer), `assignors` (comma-separated names), `heartbeat` and
`session` (ms), `rate` (handled records/s; 0: all). The end of standard input ends a client in order.
"""

import sys
from collections.abc import Iterable, Mapping
from threading import Event, Thread
from time import monotonic, time
from typing import Any, Final

COMMIT_INTERVAL_S: Final = 1.0
POLL_S: Final = 0.05
UNLIMITED_BATCH: Final = 500
CLOSE_TIMEOUT_S: Final = 5.0
MAKE_UP_S: Final = 0.2


class Teller:
    """Prints a member's lines; keeps what it has handled and not committed."""

    def __init__(self, words: Iterable[str]) -> None:
        self.options: Mapping[str, str] = dict(word.split("=", 1) for word in words)
        self.rate = float(self.options.get("rate", "0"))
        self.batch = max(1, round(self.rate / 10)) if self.rate else UNLIMITED_BATCH
        self.stopped = Event()
        self.uncommitted: dict[tuple[str, int], int] = {}  # next offset by partition
        self._committed_at = monotonic()
        self._busy_until = 0.0
        self._closing_since = 0.0
        Thread(target=self._await_end, daemon=True).start()

    @property
    def assignors(self) -> list[str]:
        """Names of the protocols that it offers, in this order."""
        return self.options["assignors"].split(",")

    @property
    def classic_settings(self) -> dict[str, Any]:
        """Settings of a classic group's member, as kafka-python and aiokafka name them."""
        options = self.options
        return {
            "bootstrap_servers": options["bootstrap"],
            "group_id": options["group"],
            "client_id": options["client"],
            "group_instance_id": options.get("instance") or None,
            "heartbeat_interval_ms": int(options["heartbeat"]),
            "session_timeout_ms": int(options["session"]),
            "enable_auto_commit": False,
            "auto_offset_reset": "earliest",
        }

    def work_s(self, count: int) -> float:
        """Return the seconds until `count` records are handled; it makes up for `MAKE_UP_S` of delay."""
        if not self.rate:
            return 0.0
        now = monotonic()
        self._busy_until = max(self._busy_until, now - MAKE_UP_S) + count / self.rate
        return max(0.0, self._busy_until - now)

    def tell(self, kind: str, *words: object) -> None:
        print(f"{time():.6f}", kind, *words, flush=True)  # noqa: T201 - the line protocol

    def tell_partitions(self, kind: str, partitions: Iterable[tuple[str, int]]) -> None:
        self.tell(kind, *(f"{topic}-{number}" for topic, number in partitions))

    def tell_read(self, records: Iterable[tuple[str, int, int]]) -> None:
        """Print (topic, partition, offset) of handled records as ranges."""
        ranges: dict[tuple[str, int], list[int]] = {}
        for topic, number, offset in records:
            ranges.setdefault((topic, number), [offset, offset])[1] = offset
        for (topic, number), (first, last) in ranges.items():
            self.tell("read", f"{topic}-{number}", first, last)
            self.uncommitted[topic, number] = last + 1

    def tell_committed(self, offsets: Mapping[tuple[str, int], int]) -> None:
        """Print acknowledged offsets; forget them."""
        for (topic, number), offset in offsets.items():
            self.tell("committed", f"{topic}-{number}", offset)
            if self.uncommitted.get((topic, number)) == offset:
                del self.uncommitted[topic, number]

    def handled_of(self, partitions: Iterable[Any]) -> dict[tuple[str, int], int]:
        """Return the uncommitted offsets of these partitions."""
        return {p: self.uncommitted[p] for p in map(tuple, partitions) if p in self.uncommitted}

    def forget(self, partitions: Iterable[tuple[str, int]]) -> None:
        for partition in partitions:
            self.uncommitted.pop(partition, None)

    def is_commit_due(self) -> bool:
        """Return whether to commit now: once a second, if there is anything."""
        if not self.uncommitted or monotonic() - self._committed_at < COMMIT_INTERVAL_S:
            return False
        self._committed_at = monotonic()
        return True

    def is_closing(self) -> bool:
        """Return whether to try once more to commit before the end: a rebalance refuses commits."""
        self._closing_since = self._closing_since or monotonic()
        return bool(self.uncommitted) and monotonic() < self._closing_since + CLOSE_TIMEOUT_S

    def complain(self, error: BaseException) -> None:
        sys.stderr.write(f"{time():.3f} {error!r}\n")
        sys.stderr.flush()

    def _await_end(self) -> None:
        sys.stdin.read()
        self.stopped.set()
