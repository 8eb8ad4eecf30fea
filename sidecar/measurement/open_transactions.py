"""Finds transactions that are open for long: nothing behind their first record can be read (read_committed).

A transaction is reported once the last stable offset of a partition has stood still below its end for
`OPEN_AFTER_S`. No I/O but by the given function.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from trimtab.assignor.model import TopicPartition
from trimtab.common.units import format_count
from trimtab.sidecar.measurement.write_rate import OffsetReadings

OPEN_AFTER_S: Final = 60.0  # by default brokers abort a transaction then (transaction.timeout.ms)
ASK_AGAIN_AFTER_S: Final = 60.0  # of a producer that was not told: an iteration may wait for it


class OpenProducer(NamedTuple):
    """The producer of a transaction that is open."""

    producer_id: int
    transactional_id: str | None  # None: the brokers did not tell


FindProducer = Callable[[TopicPartition, int], OpenProducer | None]


class OpenTransactionTracker:
    """Since when each last stable offset stands still; asks for a producer until it is told. One thread."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, float]] = {}  # last stable offset, time
        self._asked: tuple[TopicPartition, int] | None = None
        self._asked_at = 0.0
        self._producer: OpenProducer | None = None

    def find_open(
        self, now: float, readings: OffsetReadings, find_producer: FindProducer
    ) -> dict[TopicPartition, str]:
        """Return whose transaction hides what of each partition; the producer is that of the first one."""
        held = {
            p: stable
            for p, stable in readings.stable_offsets.items()
            if readings.get_readable_end(p) == stable < readings.end_offsets.get(p, stable)
        }
        before = self._since
        kept = {p: before[p] for p, stable in held.items() if p in before and before[p][0] == stable}
        self._since = {p: (stable, now) for p, stable in held.items()} | kept
        late = sorted(p for p, (_, since) in self._since.items() if now - since >= OPEN_AFTER_S)
        if late:
            self._ask_for_producer(now, (late[0], held[late[0]]), find_producer)
        return {
            p: _describe(
                now - self._since[p][1],
                readings.end_offsets[p] - held[p],
                self._producer if p == late[0] else None,
            )
            for p in late
        }

    def _ask_for_producer(
        self, now: float, first: tuple[TopicPartition, int], find_producer: FindProducer
    ) -> None:
        is_settled = self._producer is not None or now - self._asked_at < ASK_AGAIN_AFTER_S
        if self._asked != first or not is_settled:
            self._asked, self._asked_at = first, now
            self._producer = find_producer(*first)


def _describe(open_s: float, hidden: int, producer: OpenProducer | None) -> str:
    whose = ""
    if producer is not None:
        name = producer.transactional_id
        whose = f"of producer {producer.producer_id}" + (f" ({name!r}), " if name else ", ")
    return (
        f"{whose}open for {open_s:.0f} s, {format_count(hidden, 'offset')} cannot be read with read_committed"
    )
