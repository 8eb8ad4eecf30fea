"""Writes what workers say of their messages, in the background, many messages to a marker.

`note` may be called by any thread and never waits. A thread writes what has been noted every few
milliseconds. A marker that is not kept is no loss: its messages come back.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable
from threading import Event, Thread
from typing import Final, TypeAlias

from trimtab.consumer_sdk.queues.markers import Kind, Marker, as_ranges
from trimtab.consumer_sdk.queues.port import ACK, Said, Verb
from trimtab.consumer_sdk.queues.writing import Record, Writer, tell_unkept

log = logging.getLogger("trimtab.queues")

LINGER: Final = 0.01
"""Seconds that a marker waits for company."""

REASON: Final = 1000
"""Characters of a reason that are kept."""

KINDS: Final = {
    Verb.ACK: Kind.END,
    Verb.RETRY: Kind.RETRY,
    Verb.REJECT: Kind.REJECT,
    Verb.EXTEND: Kind.EXTEND,
}


Noted: TypeAlias = tuple[int, int, Said, bool]
"""What was said of one message: partition, offset, and whether it was late; thousands a second."""


class Settler:
    """The thread, and what it has to write."""

    def __init__(self, markers: str, writer: Writer) -> None:
        self._markers = markers
        self._writer = writer
        self._noted: deque[Noted] = deque()
        self._news = Event()
        self._closing = Event()
        self._thread = Thread(target=self._run, name="trimtab-settler", daemon=True)
        self._thread.start()

    def note(self, noted: Noted) -> None:
        """Take note of what was said of a message."""
        self._noted.append(noted)
        if not self._news.is_set():
            self._news.set()

    def flush(self, timeout: float) -> bool:
        """Write everything noted and wait until it is kept."""
        self._write()
        return self._writer.flush(timeout)

    def close(self) -> None:
        """End the thread; everything noted is handed to the writer."""
        self._closing.set()
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._news.wait()
            self._news.clear()
            self._closing.wait(LINGER)
            self._write()
        self._write()

    def _write(self) -> None:
        for partition, marker in markers_of(self._taken()):
            self._writer.send(Record(self._markers, partition, marker.encode()), tell_unkept)
        self._writer.poll()

    def _taken(self) -> list[Noted]:
        taken: list[Noted] = []
        while self._noted:
            try:
                taken.append(self._noted.popleft())
            except IndexError:  # `flush` and the thread take at once
                break
        _tell([noted for noted in taken if noted[3]])
        return taken


def markers_of(noted: Iterable[Noted]) -> list[tuple[int, Marker]]:
    """Return as few markers as say all of it, by partition; what ends a message comes last."""
    groups: dict[tuple[int, Said], list[int]] = {}
    acknowledged: defaultdict[int, list[int]] = defaultdict(list)
    for partition, offset, said, _ in noted:
        if said is ACK:  # all but always
            acknowledged[partition].append(offset)
        else:
            groups.setdefault((partition, said), []).append(offset)
    ended = {(partition, ACK): found for partition, found in acknowledged.items()}
    return [
        (
            partition,
            Marker(KINDS[said.verb], as_ranges(found), _ms(said), reason=said.reason[:REASON]),
        )
        for (partition, said), found in (groups | ended).items()
    ]


def _ms(said: Said) -> int:
    return round(said.seconds * 1000)


def _tell(late: list[Noted]) -> None:
    if late:
        log.warning(
            "%d messages were settled after their deadline, one of them offset %d of partition %d; "
            "they may be delivered again: raise trimtab.queue.timeout, or extend() them",
            len(late),
            late[0][1],
            late[0][0],
        )
