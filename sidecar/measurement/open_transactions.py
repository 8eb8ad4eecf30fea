"""Finds transactions that are open for long: nothing behind their first record can be read (read_committed).

A transaction is reported once the last stable offset of a partition has stood still below its end for
`OPEN_AFTER_S`. No I/O but by the given function.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, NamedTuple

from trimtab.assignor.model import TopicPartition
from trimtab.common.units import format_count
from trimtab.sidecar.measurement.write_rate import OffsetReadings

OPEN_AFTER_S: Final = 60.0  # by default brokers abort a transaction then (transaction.timeout.ms)


class OpenProducer(NamedTuple):
    """The producer of a transaction that is open."""

    producer_id: int
    transactional_id: str | None  # None: the brokers did not tell


FindProducer = Callable[[TopicPartition, int], OpenProducer | None]


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """The open transaction that hides most."""

    partition: TopicPartition
    open_s: float
    hidden_offsets: int
    other_partitions: int  # in which transactions are open, too
    producer: OpenProducer | None = None

    def format_line(self) -> str:
        """Return what is open, and what follows, as one sentence."""
        more = f" (and {self.other_partitions} more)" if self.other_partitions else ""
        whose = ""
        if self.producer is not None:
            name = self.producer.transactional_id
            whose = f" of producer {self.producer.producer_id}" + (f" ({name!r})" if name else "")
        hidden = format_count(self.hidden_offsets, "offset")
        return (
            f"{self.partition}{more}: a transaction{whose} is open for {self.open_s:.0f} s, so {hidden} "
            "cannot be read with read_committed: more consumers would not help"
        )


class OpenTransactionTracker:
    """Since when each last stable offset stands still; asks for a producer once. One thread."""

    def __init__(self) -> None:
        self._since: dict[TopicPartition, tuple[int, float]] = {}  # last stable offset, time
        self._asked: tuple[TopicPartition, int] | None = None
        self._producer: OpenProducer | None = None

    def find_longest_hidden(
        self, now: float, readings: OffsetReadings, find_producer: FindProducer
    ) -> OpenTransaction | None:
        """Return the transaction that hides most offsets; None if none is open for long."""
        held = {
            p: stable
            for p, stable in readings.stable_offsets.items()
            if readings.get_readable_end(p) == stable < readings.end_offsets.get(p, stable)
        }
        before = self._since
        kept = {p: before[p] for p, stable in held.items() if p in before and before[p][0] == stable}
        self._since = {p: (stable, now) for p, stable in held.items()} | kept
        late = [p for p, (_, since) in self._since.items() if now - since >= OPEN_AFTER_S]
        return self._describe(now, readings, late, find_producer) if late else None

    def _describe(
        self,
        now: float,
        readings: OffsetReadings,
        late: Collection[TopicPartition],
        find_producer: FindProducer,
    ) -> OpenTransaction:
        hidden = {p: readings.end_offsets[p] - self._since[p][0] for p in late}
        first = min(hidden, key=lambda p: (-hidden[p], p))
        stable, since = self._since[first]
        if self._asked != (first, stable):
            self._asked, self._producer = (first, stable), find_producer(first, stable)
        return OpenTransaction(first, now - since, hidden[first], len(hidden) - 1, self._producer)
