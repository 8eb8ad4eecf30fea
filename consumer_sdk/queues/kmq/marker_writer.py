"""Writes what workers say of their messages, in the background, many messages to a marker.

`wake` and `note` may be called by any thread and never wait. A thread writes what has been said
every few milliseconds. A marker that is not kept is no loss: its messages come back.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from threading import Event, Lock, Thread
from typing import Final, TypeAlias, TypeVar

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.queues.durable_producer import Record, Writer, tell_unkept
from trimtab.consumer_sdk.queues.kmq.delivered_batch import Handed
from trimtab.consumer_sdk.queues.kmq.markers import Kind, Marker, Ranges, as_ranges, merged
from trimtab.consumer_sdk.queues.message import Received
from trimtab.consumer_sdk.queues.settlement import ACK, Said, Verb

T = TypeVar("T")

log = logging.getLogger("trimtab.queues")

LINGER: Final = 0.1
"""Seconds that a marker waits for company; each takes the worker, the broker and a tracker time."""

REASON: Final = 1000
"""Characters of a reason that are kept."""

KINDS: Final = {
    Verb.RETRY: Kind.RETRY,
    Verb.REJECT: Kind.REJECT,
    Verb.EXTEND: Kind.EXTEND,
}


Noted: TypeAlias = tuple[Received, Said, bool]
"""A message, what was said of it, and whether it was late."""


class Settler:
    """The thread, and what it has to write."""

    def __init__(self, markers: str, writer: Writer, clock: Clock) -> None:
        self.now = clock.monotonic
        self._markers = markers
        self._writer = writer
        self._batches: deque[Handed] = deque()
        self._noted: deque[Noted] = deque()
        self._news = Event()
        self._closing = Event()
        self._writing = Lock()
        self._refused = False  # a marker, since the last flush
        self._thread = Thread(target=self._run, name="trimtab-settler", daemon=True)
        self._thread.start()

    def wake(self, batch: Handed) -> None:
        """Hear that something of a batch was said."""
        self._batches.append(batch)
        self._news.set()

    def note(self, message: Received, said: Said, late: bool) -> None:  # noqa: FBT001
        """Take note of what was said of a message; `wake` follows."""
        self._noted.append((message, said, late))

    def flush(self, timeout: float) -> bool:
        """Write everything noted and wait until it is kept; False too for what was refused."""
        self._write()
        kept = self._writer.flush(timeout)
        refused, self._refused = self._refused, False
        return kept and not refused

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
        with self._writing:
            ended = [batch.acknowledged() for batch in _taken(self._batches)]
            noted = _taken(self._noted)  # the batches are attentive: what comes now wakes us
            _tell([message for message, _, late in noted if late])
            for partition, marker in markers_of(noted, ended):
                self._send(partition, marker)
        self._writer.poll()

    def _answered(self, record: Record, why: str) -> None:
        self._refused = self._refused or bool(why)
        tell_unkept(record, why)

    def _send(self, partition: int, marker: Marker) -> None:
        try:
            self._writer.send(Record(self._markers, partition, marker.encode()), self._answered)
        except Exception:  # one marker's messages come back; without the thread all of them would
            log.exception("a marker for partition %d of %s is lost", partition, self._markers)


def _taken(waiting: deque[T]) -> list[T]:
    """Return what there is now, and no more."""
    return [waiting.popleft() for _ in range(len(waiting))]


def markers_of(
    noted: Iterable[Noted], acknowledged: Iterable[Mapping[int, Ranges]]
) -> list[tuple[int, Marker]]:
    """Return as few markers as say all of it, by partition; what ends a message comes last."""
    groups: defaultdict[tuple[int, Said], list[int]] = defaultdict(list)
    for message, said, _ in noted:
        if said is not ACK:
            groups[message.partition, said].append(message.offset)
    ended: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for batch in acknowledged:
        for partition, ranges in batch.items():
            ended[partition] += ranges
    return [
        *(
            (partition, Marker(KINDS[w.verb], as_ranges(set(of)), _ms(w), reason=w.reason[:REASON]))
            for (partition, w), of in groups.items()
        ),
        *((partition, Marker(Kind.END, merged(ranges))) for partition, ranges in ended.items()),
    ]


def _ms(said: Said) -> int:
    slack = LINGER if said.verb is Verb.EXTEND else 0.0  # an answer in time is written that late
    return round((said.seconds + slack) * 1000)


def _tell(late: list[Received]) -> None:
    if late:
        log.warning(
            "%d messages were settled after their deadline, one of them offset %d of partition %d; "
            "they may be delivered again: raise trimtab.queue.timeout, or extend() them",
            len(late),
            late[0].offset,
            late[0].partition,
        )
