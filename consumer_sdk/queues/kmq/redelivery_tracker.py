"""The redelivery tracker of a `kmq` queue: what nobody settles in time comes back.

Several may run; they share the markers' partitions as any group of ours does. The rules:

1. The ledger (`ledger`) says what is due. A tracker acts on it only after it has read back a tick
   of its own in the partition: then it knows everything that was written before it came.
2. The time of a partition is that of its newest marker. When a deadline seems to have come and
   nobody has written since, the tracker ticks.
3. A due message is written once more, or to the dead letters, and only when that is kept is its
   end marker written. In between a crash makes a second copy, never a hole. What its topic does
   not take, as it is too large, becomes a dead letter without its value.
4. Committed, and deleted from the markers topic, is what the ledger calls safe. So the log is
   bounded by the oldest open message, and nothing is lost however long no tracker runs. The
   commit's metadata tell how many messages are open, for whoever scales the workers.
"""

import logging
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Event
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import BadPayload
from trimtab.common.kmq_offset_metadata import Opened
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.queues import redelivery_decision, topics
from trimtab.consumer_sdk.queues.durable_producer import Record, Writer, keep, tell_unkept
from trimtab.consumer_sdk.queues.kmq.marker_retention import Trimmer
from trimtab.consumer_sdk.queues.kmq.markers import Kind, Marker, as_ranges, decode
from trimtab.consumer_sdk.queues.kmq.message_lookup import Originals
from trimtab.consumer_sdk.queues.kmq.redelivery_state import Due, Ledger
from trimtab.consumer_sdk.queues.message_fetch import MOVED_ON
from trimtab.consumer_sdk.queues.settings import QueueSettings

log = logging.getLogger("trimtab.queues")

TURN: Final = 0.05
"""Seconds of one wait for markers."""

FETCH: Final = 2000
"""Markers taken at once."""

COMPANY: Final = {"fetch.wait.max.ms": 100, "fetch.min.bytes": 20_000}
"""Markers wait for one another at the broker: each answer costs it as much as hundreds of them."""

DUE: Final = 1000
"""Messages that are written again in one go."""

TICK: Final = 0.1
"""Seconds between two ticks in a partition, while a deadline has come."""

AGAIN: Final = 1000
"""Milliseconds until what could not be written again is tried once more."""

COMMIT: Final = 1.0
"""Seconds between two commits."""

KEPT: Final = 10.0
"""Seconds that messages may take to be kept."""


@dataclass(slots=True)
class Counts:
    """What a tracker has done so far."""

    redelivered: int = 0
    given_up: int = 0
    failed: int = 0


@dataclass(slots=True)
class _Watched:
    """A partition of ours; times are of the monotonic clock, `token` is in our ticks."""

    token: str
    ledger: Ledger = field(default_factory=Ledger)
    current: bool = False  # our own tick has been read
    read_at: float = 0.0
    ticked_at: float = 0.0
    committed: int = -1
    said: str = ""  # in the metadata of that commit

    @property
    def note(self) -> str:
        """Return how many messages are open; nothing before all of them are known."""
        if not self.current:
            return ""
        returned = self.ledger.returned
        return Opened(self.ledger.next, len(self.ledger) - returned, returned).encode()


class Tracker:
    """One tracker; `run` is all that an application calls. Not thread-safe."""

    def __init__(self, settings: QueueSettings, *, clock: Clock | None = None) -> None:
        self.counts = Counts()
        self._clock = clock or SystemClock()
        self._settings = settings
        self._watched: dict[int, _Watched] = {}
        self._commit_at = 0.0
        client = topics.connect(settings)
        topics.prepare(client, settings, self._clock, markers=True)
        if topics.strange(client, settings.group):
            log.warning(
                "nobody has read as group %r yet; if workers do, their group.id is another one, "
                "and nothing of theirs comes back",
                settings.group,
            )
        self._trimmer = Trimmer(client, settings.markers, self._clock)
        self._originals = Originals(settings.topic, settings.client, self._clock)
        self._writer = Writer(settings.client, self._clock)
        config = {**COMPANY, **settings.consumer, "group.id": settings.trackers}
        self._consumer = Consumer({**config, "auto.offset.reset": "earliest"}, clock=self._clock)

    def run(self, stop: Event) -> None:
        """Track until `stop` is set, then commit and leave the group.

        Raises MembershipFailed, and KafkaException for what does not pass by itself.
        """
        own = self._settings
        where = (own.group, own.topic, own.markers, own.trackers)
        log.info("what group %s has in work of topic %s is watched in %s, as group %s", *where)
        try:
            self._consumer.subscribe([own.markers], self._on_assign, self._on_revoke, self._on_lost)
            while not stop.is_set():
                self.turn()
        finally:
            self.close()

    def turn(self) -> None:
        """Read what there is, and do what is due."""
        self._take(self._consumer.consume(1, TURN))
        self._take(self._consumer.consume(FETCH, 0))
        for partition, watched in list(self._watched.items()):
            self._tick(partition, watched)
            if watched.current:
                self._deliver(partition, watched)
        self._writer.poll()
        if self._clock.monotonic() >= self._commit_at:
            self._commit_at = self._clock.monotonic() + COMMIT
            self._commit(list(self._watched))
            self._trimmer.trim({p: w.committed for p, w in self._watched.items()})

    def close(self) -> None:
        """Commit, leave the group, free everything."""
        self._consumer.close()
        self._originals.close()
        self._writer.flush(KEPT)

    def open(self) -> Mapping[int, int]:
        """Return how many messages are in work, by partition."""
        return {partition: len(watched.ledger) for partition, watched in self._watched.items()}

    # -- the group --------------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._watched[partition.partition] = _Watched(secrets.token_hex(8))

    def _on_revoke(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        self._commit([p.partition for p in partitions])
        self._on_lost(_, partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._watched.pop(partition.partition, None)

    def _commit(self, partitions: Sequence[int]) -> None:
        safe = {p: w.ledger.safe for p in partitions if (w := self._watched.get(p)) is not None}
        notes = {p: self._watched[p].note for p in safe}
        moved = {
            p: at
            for p, at in safe.items()
            if at > max(0, self._watched[p].committed) or notes[p] != self._watched[p].said
        }
        if not moved:
            return
        markers = self._settings.markers
        offsets = [RawPartition(markers, p, at, notes[p]) for p, at in moved.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            passing = error.args[0].code() in MOVED_ON or error.args[0].retriable()
            log.log(
                logging.DEBUG if passing else logging.WARNING,
                "the markers' offsets were not committed: %s",
                error.args[0].str(),
            )
            return
        for partition, at in moved.items():
            self._watched[partition].committed = at
            self._watched[partition].said = notes[partition]

    # -- reading ----------------------------------------------------------------------------------

    def _take(self, raws: Sequence[Raw]) -> None:
        for raw in raws:
            error = raw.error()
            if error is not None:
                log.warning("markers: %s", error.str())
                continue
            watched = self._watched.get(int(raw.partition() or 0))
            if watched is not None:
                self._take_one(watched, raw)

    def _take_one(self, watched: _Watched, raw: Raw) -> None:
        at = int(raw.offset() or 0)
        _, appended = raw.timestamp()
        try:
            marker = decode(raw.value() or b"")
        except BadPayload as error:
            log.warning("%s, partition %s, offset %s: %s", raw.topic(), raw.partition(), at, error)
            marker = Marker(Kind.TICK)
        watched.ledger.take(at, appended, marker)
        watched.read_at = self._clock.monotonic()
        if marker.by == watched.token:
            watched.current = True

    def _tick(self, partition: int, watched: _Watched) -> None:
        """Ask for the time where a deadline has come, and when we are new (rules 1 and 2)."""
        now, ledger = self._clock.monotonic(), watched.ledger
        if now < watched.ticked_at + (TICK if watched.current else COMMIT):
            return
        if watched.current:
            if ledger.deadline is None or ledger.deadline <= ledger.now:
                return
            if now < watched.read_at + (ledger.deadline - ledger.now) / 1000:
                return
        watched.ticked_at = now
        tick = Marker(Kind.TICK, by=watched.token).encode()
        self._writer.send(Record(self._settings.markers, partition, tick), tell_unkept)

    # -- writing ----------------------------------------------------------------------------------

    def _deliver(self, partition: int, watched: _Watched) -> None:
        due = sorted(watched.ledger.due(DUE), key=attrgetter("offset"))
        if not due:
            return
        try:
            found = self._originals.read(partition, [message.offset for message in due])
        except KafkaException as error:
            log.warning("%s-%d: %s; trying again", self._settings.topic, partition, error)
            watched.ledger.postpone(due, AGAIN)
            return
        ready = [message for message in due if message.offset in found.messages]
        gone = [message for message in due if message.offset in found.gone]
        self._write(partition, watched, ready, lambda m: self._again(m, partition, found.messages))
        self._write(
            partition, watched, gone, lambda m: self._lost(m, partition, redelivery_decision.GONE)
        )
        answered = found.messages.keys() | found.gone
        watched.ledger.postpone([m for m in due if m.offset not in answered], AGAIN)

    def _again(self, due: Due, partition: int, messages: Mapping[int, Raw]) -> Record:
        return redelivery_decision.again(due, messages[due.offset], partition, self._settings)

    def _lost(self, due: Due, partition: int, reason: str) -> Record:
        where = f"{self._settings.topic}-{partition}"
        log.error("%s, offset %d: %s", where, due.offset, reason)
        return redelivery_decision.lost(due, partition, self._settings, reason)

    def _shorter(self, due: Due, partition: int) -> Record:
        return self._lost(due, partition, redelivery_decision.too_large(due, self._settings))

    def _write(
        self,
        partition: int,
        watched: _Watched,
        messages: Sequence[Due],
        record: Callable[[Due], Record],
    ) -> None:
        """Write messages once more, and then the end markers of those that are kept (rule 3)."""
        if not messages:
            return
        records, failed = keep(
            lambda some: self._writer.write(some, KEPT),
            [record(message) for message in messages],
            lambda place: self._shorter(messages[place], partition),
        )
        if failed:
            self.counts.failed += len(failed)
            why = next(iter(failed.values()))
            log.warning("%d messages were not written again: %s; trying again", len(failed), why)
            watched.ledger.postpone([messages[place] for place in failed], AGAIN)
        kept = [place for place in range(len(records)) if place not in failed]
        again = sum(records[place].topic == self._settings.topic for place in kept)
        self.counts.redelivered += again
        self.counts.given_up += len(kept) - again
        self._end(partition, watched, [messages[place] for place in kept])

    def _end(self, partition: int, watched: _Watched, messages: Sequence[Due]) -> None:
        if not messages:
            return
        end = Marker(Kind.END, as_ranges(message.offset for message in messages)).encode()
        if self._writer.write([Record(self._settings.markers, partition, end)], KEPT):
            watched.ledger.postpone(messages, AGAIN)
