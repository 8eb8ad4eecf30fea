"""`ordered`: a classic group whose messages are finished in any order, in parallel by key.

`lanes` says what may be handed out and committed. The rules here:

1. At least once (the default): committed is what is finished without a gap, every second, when a
   partition goes, and at the end. At most once: committed before a message is handed out.
2. A partition that is taken away is waited for, `HANDOVER` seconds at most, until what is in work
   of it is over; the rest is read by its next owner.
3. A retry and the delivery count live in this process. What has failed too often, or is rejected,
   is finished when its dead letter is kept; one that is not kept is tried again, and one that its
   topic never takes goes there without its value.
4. A partition is paused while `WINDOW` of its messages are held.
"""

import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from heapq import heappop, heappush
from typing import Any, Final, NamedTuple, Self

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Raw
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock, SystemClock
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.queues import message_headers, topics
from trimtab.consumer_sdk.queues.durable_producer import TOO_LARGE, Record, Writer, keep
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KEPT
from trimtab.consumer_sdk.queues.message import Received
from trimtab.consumer_sdk.queues.message_fetch import (
    closed_on_error,
    committed,
    gather,
    named,
    rewind,
)
from trimtab.consumer_sdk.queues.ordered.key_ordering import Lanes
from trimtab.consumer_sdk.queues.redelivery_decision import without_value
from trimtab.consumer_sdk.queues.settings import settings
from trimtab.consumer_sdk.queues.settlement import Said, Verb

log = logging.getLogger("trimtab.queues")

WINDOW: Final = 5000
"""Messages of a partition that are held at most."""

HANDOVER: Final = 5.0
"""Seconds that a partition which goes waits for what is in work of it."""

COMMIT: Final = 1.0
"""Seconds between two commits."""

SLICE: Final = 0.005
"""Seconds of one wait while others may settle what holds the next message back."""

AGAIN: Final = 1.0
"""Seconds until a dead letter that is not kept is tried again."""


class _Noted(NamedTuple):
    message: Received
    said: Said


class OrderedQueue:
    """A worker's side. Raises SettingError, QueueMismatch, BrokerUnreachable."""

    attentive = True

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings(topic, config)
        topics.prepare(topics.connect(self._settings), self._settings, self._clock, markers=False)
        self._writer = Writer(self._settings.client, self._clock)
        self._lanes: dict[int, Lanes[Raw]] = {}
        self._work: dict[Received, Lanes[Raw]] = {}
        self._noted: deque[_Noted] = deque()
        self._later: list[tuple[float, int, _Noted]] = []  # retries, dead letters: by when due
        self._again: deque[Received] = deque()  # retries that are due
        self._large: deque[tuple[Received, str, Record]] = deque()  # dead letters
        self._paused: set[int] = set()
        self._numbers = 0
        self._commit_at = 0.0
        self._committed: dict[int, int] = {}
        self._closed = False
        ours = {"on_commit": self._on_commit}
        self._consumer = Consumer({**self._settings.consumer, **ours}, clock=self._clock)
        with closed_on_error(self):
            self._consumer.subscribe([topic], self._on_assign, self._on_revoke, self._on_lost)

    def receive(self, max: int = 100, wait: float = 1.0) -> list[Received]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        Raises BrokerUnreachable for what passes by itself, and what `Consumer` raises.
        """
        with named(self._settings.bootstrap):
            return self._receive(max, self._clock.monotonic() + wait)

    def now(self) -> float:
        """Return seconds of the monotonic clock."""
        return self._clock.monotonic()

    def settle(self, message: Received, said: Said, late: bool) -> None:  # noqa: ARG002, FBT001
        """Note what was said of a message; an extension means nothing, there is no deadline."""
        if said.verb is not Verb.EXTEND:
            self._noted.append(_Noted(message, said))

    def flush(self, timeout: float = 30.0) -> bool:
        """Commit what is finished, and wait for it; False while dead letters are on their way.

        False too where the group went on without us. Raises BrokerUnreachable, KafkaException.
        """
        with named(self._settings.bootstrap):
            self._serve()
            kept = self._writer.flush(timeout)
            self._serve()
            self._committed.clear()  # what was sent in the background may have failed
            ours = self._committed_now()
        return kept and ours and all(n.said.verb is Verb.RETRY for *_, n in self._later)

    def close(self) -> None:
        """Wait for what is in work (`HANDOVER`), commit, leave the group; may be called twice."""
        if self._closed:
            return
        self._closed = True
        self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- reading ----------------------------------------------------------------------------------

    def _receive(self, most: int, deadline: float) -> list[Received]:
        while True:
            self._serve()
            taken = self._take(most)
            left = deadline - self._clock.monotonic()
            if taken or left <= 0:
                break
            self._read(most, min(left, SLICE if self._work else left))
        if not taken:
            return []
        return taken if self._settle_first(taken) else []

    def _read(self, most: int, wait: float) -> None:
        self._throttle()
        for raw in gather(self._consumer, most, wait):
            where = int(raw.partition() or 0)
            self._lanes[where].add(int(raw.offset() or 0), raw.key(), raw)

    def _throttle(self) -> None:
        topic = self._settings.topic
        full = {p for p, lanes in self._lanes.items() if len(lanes) >= WINDOW}
        empty = {p for p in self._paused if p in self._lanes and len(self._lanes[p]) < WINDOW // 2}
        if full - self._paused:
            self._consumer.pause([RawPartition(topic, p) for p in full - self._paused])
        if empty:
            self._consumer.resume([RawPartition(topic, p) for p in empty])
        self._paused = (self._paused | full) - empty

    def _take(self, most: int) -> list[Received]:
        taken: list[Received] = []
        while self._again and len(taken) < most:
            old = self._again.popleft()
            again = Received(old.raw, old.delivery + 1, None, self)
            taken.append(again)
            self._work[taken[-1]] = self._work.pop(old)
        for lanes in self._lanes.values():
            for raw in lanes.take(most - len(taken)):
                taken.append(Received(raw, 1, None, self))
                self._work[taken[-1]] = lanes
        return taken

    def _settle_first(self, taken: Sequence[Received]) -> bool:
        """At most once: commit before anything is handed out; False where it is not ours any more.

        Raises KafkaException for what does not pass by itself; nothing is handed out then either.
        """
        if not self._settings.at_most_once:
            return True
        try:
            ours = self._committed_now()
        except KafkaException:
            self._forget(taken)
            raise
        if not ours:
            self._forget(taken)
        return ours

    def _forget(self, taken: Sequence[Received]) -> None:
        """Let messages go that were not handed out after all: what is new is read again.

        Retried ones are committed long since: they wait here again.
        """
        new: defaultdict[int, list[Received]] = defaultdict(list)
        for message in reversed(taken):
            lanes = self._work.pop(message)
            if message.delivery == 1:
                new[message.partition].insert(0, message)
            else:
                before = Received(message.raw, message.delivery - 1, None, self)
                self._work[before] = lanes
                self._again.appendleft(before)
        for partition, messages in new.items():
            self._lanes[partition].take_back([message.offset for message in messages])
            rewind(self._consumer, [message.raw for message in messages])

    # -- settling ---------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Take in what was said, wake what is due, commit by the clock."""
        self._writer.poll()
        while self._large:
            self._shorten(*self._large.popleft())
        while self._noted:
            noted = self._noted.popleft()
            if noted.message in self._work:  # else its partition is somebody else's by now
                self._take_in(noted)
        now = self._clock.monotonic()
        while self._later and self._later[0][0] <= now:
            message, said = noted = heappop(self._later)[2]
            if message in self._work and said.verb is Verb.RETRY:
                self._again.append(message)
            elif message in self._work:
                self._take_in(noted)
        if now >= self._commit_at and not self._settings.at_most_once:
            self._commit_at = now + COMMIT
            self._commit(self._lanes)

    def _take_in(self, noted: _Noted) -> None:
        message, said = noted
        if said.verb is Verb.ACK:
            self._finish(message)
        elif said.verb is Verb.REJECT:
            self._give_up(message, said.reason or said.verb.value)
        elif message.delivery >= self._settings.max_deliveries:
            self._give_up(message, f"delivered {message.delivery} times, the last one retried")
        else:
            self._wait(noted, said.seconds)

    def _wait(self, noted: _Noted, seconds: float) -> None:
        self._numbers += 1
        heappush(self._later, (self._clock.monotonic() + seconds, self._numbers, noted))

    def _finish(self, message: Received) -> None:
        self._work.pop(message).finish(message.offset)

    def _give_up(self, message: Received, reason: str) -> None:
        more: dict[str, str | int] = {
            message_headers.GROUP: self._settings.group,
            message_headers.DELIVERY: message.delivery,
            message_headers.REASON: reason,
        }
        passed = message_headers.passed_on(message.raw, more)
        where = message.partition
        record = Record(self._settings.dead_letter, where, message.value, message.key, passed)
        self._writer.send(record, partial(self._on_dead_letter, message, reason))

    def _on_dead_letter(self, message: Received, reason: str, record: Record, why: str) -> None:
        if not why:
            self._noted.append(_Noted(message, Said(Verb.ACK)))
        elif why == TOO_LARGE:
            self._large.append((message, reason, record))  # not from here: this is a receipt
        else:
            self._keep_later(message, reason, why)

    def _keep_later(self, message: Received, reason: str, why: str) -> None:
        log.warning("a dead letter is not kept: %s; trying again", why)
        self._wait(_Noted(message, Said(Verb.REJECT, reason=reason)), AGAIN)

    def _shorten(self, message: Received, reason: str, record: Record) -> None:
        """Keep a dead letter that was refused for its size, or its batch's, at last without value.

        Else it would be tried for ever, and nothing behind it be committed.
        """
        _, failed = keep(
            lambda some: self._writer.write(some, KEPT), [record], lambda _: without_value(record)
        )
        self._on_dead_letter(message, reason, record, failed.get(0, ""))

    # -- the group --------------------------------------------------------------------------------

    def _on_assign(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        for partition in partitions:
            self._lanes[partition.partition] = Lanes(strict=self._settings.at_most_once)

    def _on_revoke(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        going = {p.partition: self._lanes[p.partition] for p in partitions}
        for lanes in going.values():
            lanes.discard()
        deadline = self._clock.monotonic() + HANDOVER
        while any(x.working for x in going.values()) and self._clock.monotonic() < deadline:
            self._serve()
            self._clock.sleep(SLICE)
        self._serve()
        for partition in going:
            self._committed.pop(partition, None)  # what was sent in the background may have failed
        try:
            self._commit(going, wait=True)
        except KafkaException as error:
            log.warning("the last commit failed: %s; others read it again", error.args[0].str())
        self._drop(partitions)

    def _on_lost(self, _: Consumer, partitions: Sequence[RawPartition]) -> None:
        self._drop(partitions)

    def _drop(self, partitions: Iterable[RawPartition]) -> None:
        gone = [self._lanes.pop(p.partition, None) for p in partitions]
        for p in partitions:
            self._committed.pop(p.partition, None)
            self._paused.discard(p.partition)
        self._work = {m: lanes for m, lanes in self._work.items() if lanes not in gone}
        self._again = deque(m for m in self._again if m in self._work)

    def _on_commit(self, error: KafkaError | None, offsets: Sequence[RawPartition]) -> None:
        if error is not None:  # it may have been the last one: the next turn commits them again
            for p in offsets:
                self._committed.pop(p.partition, None)
        theirs = self._settings.consumer.get("on_commit")
        if theirs is not None:
            theirs(error, offsets)

    def _committed_now(self) -> bool:
        """Commit and wait; False where the group went on without us. Raises KafkaException."""
        return committed(self._settings.topic, lambda: self._commit(self._lanes, wait=True))

    def _commit(self, partitions: Iterable[int], *, wait: bool = False) -> None:
        reached = {p: self._lanes[p].committable for p in partitions}
        moved = {p: at for p, at in reached.items() if at > self._committed.get(p, 0)}
        if not moved:
            return
        offsets = [RawPartition(self._settings.topic, p, at) for p, at in moved.items()]
        self._consumer.commit(offsets=offsets, asynchronous=not wait)
        self._committed.update(moved)
