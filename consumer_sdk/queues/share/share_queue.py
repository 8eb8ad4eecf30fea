"""`share`: a queue that the broker keeps, by share groups (KIP-932) and librdkafka's ShareConsumer.

The rules:

1. The client is used by the thread that receives only; what others say of messages waits in line
   until then. `receive` sends it, also with `max=0`.
2. librdkafka (2.16) gives the next messages only when all it gave before are settled. So a worker
   takes a batch at a time; one slow message holds up its own worker, and no other. The locks of a
   whole batch run at once, so it is as large as the first `receive` asks for, `FETCH` at most, or
   as what a producer wrote together: the broker does not part that.
3. The broker counts deliveries, limits them (`share.delivery.count.limit`), and lets a lock end
   (`share.record.lock.duration.ms`). It does not delay, and librdkafka does not renew: `retry` with
   a delay and `extend` are `NotOffered`. What is given up, by `reject` or by the limit, the broker
   writes into the dead-letter topic, from Kafka 4.4 on (`share_settings`); before, it is archived.
4. One commit at a time, and its answer is waited for: of two under way the broker refuses the
   second as a whole (`Invalid request`, librdkafka 2.16), and what it settled comes back.
5. What nobody settles until its lock has ended holds nothing up any longer: it is given back, and
   what is said of it afterwards goes nowhere, since by then it may be another worker's.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Message as Raw

from trimtab.common.clock import Clock, SystemClock
from trimtab.consumer_sdk.errors import NoShareGroups, NotOffered
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.message import Received
from trimtab.consumer_sdk.queues.message_fetch import named
from trimtab.consumer_sdk.queues.settings import QueueSettings, settings
from trimtab.consumer_sdk.queues.settlement import Said, Verb
from trimtab.consumer_sdk.queues.share.broker_features import require_share_groups
from trimtab.consumer_sdk.queues.share.group_settings import LOCK, configure, require_group

log = logging.getLogger("trimtab.queues")

FETCH: Final = 500
"""Messages of one fetch at most, librdkafka's own default."""

ANSWER: Final = 5.0
"""Seconds in which the broker must answer to what was said."""

SLICE: Final = 0.005
"""Seconds of one wait for messages in work that hold up the next ones."""


class _Noted(NamedTuple):
    message: Received
    said: Said


class ShareQueue:
    """A worker's side. Raises SettingError, QueueMismatch, NoShareGroups, BrokerUnreachable.

    `trimtab.queue.timeout`, `max.deliveries`, `dead.letter` and `auto.offset.reset`, where they are
    given, are set as the group's on the broker. Raises NotAllowed for a right that is missing, and
    NotOffered for a dead-letter topic where the broker writes to none.
    """

    attentive = True

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings(topic, config)
        client = topics.connect(self._settings)
        topics.require(client, self._settings)
        require_group(client, self._settings)
        version = require_share_groups(self._settings.client)
        self._lock = configure(client, self._settings, config, version, self._clock)
        self._consumer: Any = None  # until it is known how many are wanted at once
        self._given: deque[Raw] = deque()  # by librdkafka, and not handed out yet
        self._failed: deque[KafkaError] = deque()
        self._locked_at = 0.0
        self._work: set[Received] = set()
        self._noted: deque[_Noted] = deque()
        self._closed = False
        _client()

    def receive(self, max: int = 100, wait: float = 1.0) -> list[Received]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        None either while a message of the last batch is in work and its lock lasts. Raises
        BrokerUnreachable for what passes by itself, and KafkaException.
        """
        with named(self._settings.bootstrap):
            if self._consumer is None and max:
                self._consumer = self._subscribed(min(max, FETCH))
            return self._receive(max, wait)

    def now(self) -> float:
        """Return seconds of the monotonic clock."""
        return self._clock.monotonic()

    def settle(self, message: Received, said: Said, late: bool) -> None:  # noqa: FBT001
        """Put what was said in line. Raises NotOffered for an extension and for a delay."""
        if said.verb is Verb.EXTEND:
            raise NotOffered(
                "a queue of kind 'share' cannot extend a message: librdkafka does not renew locks. "
                f"Give the group a longer {LOCK} (trimtab.queue.timeout), or use 'kmq'"
            )
        if said.verb is Verb.RETRY and said.seconds > 0:
            raise NotOffered(
                "a queue of kind 'share' cannot delay a retry: the broker offers a released "
                "message at once. Call retry() without a delay, or use 'kmq'"
            )
        if late:
            log.warning("%r was settled after its lock had ended; raise %s", message, LOCK)
        self._noted.append(_Noted(message, said))

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until what was said is kept by the broker; False for what it did not take.

        Raises BrokerUnreachable, KafkaException.
        """
        self._apply()
        if self._consumer is None:
            return True
        with named(self._settings.bootstrap):
            return self._send(timeout)

    def close(self) -> None:
        """Send what was said, give the rest back, leave the group; may be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._consumer is None:
            return
        try:
            self._apply()
            for raw in [*(m.raw for m in self._work), *self._given]:
                self._acknowledge(raw, _RELEASE)
        finally:
            self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _subscribed(self, most: int) -> Any:
        consumer = _consumer(self._settings, most)
        try:
            consumer.set_acknowledgement_commit_callback(_told)
            consumer.subscribe([self._settings.topic])
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _receive(self, most: int, wait: float) -> list[Received]:
        deadline = self._clock.monotonic() + wait
        while True:
            self._serve()
            left = deadline - self._clock.monotonic()
            if self._given or left <= 0 or (most and not self._work):
                break
            self._clock.sleep(min(left, SLICE))
        if self._failed and not self._given:
            raise KafkaException(self._failed.popleft())
        if most and not self._given and not self._work:
            self._fetch(deadline - self._clock.monotonic())
        return [self._hand_out() for _ in range(min(most, len(self._given)))]

    def _serve(self) -> None:
        said, lapsed = self._apply(), self._lapse()
        if said or lapsed:
            self._send(ANSWER)

    def _send(self, timeout: float) -> bool:
        """Tell the broker what was said, and wait (rule 4); False for what it did not take."""
        answers = self._consumer.commit_sync(timeout)
        refused = {where: error for where, error in answers.items() if error is not None}
        for where, error in refused.items():
            log.warning("%s-%s: not settled: %s", where.topic, where.partition, error)
        return not refused

    def _lapse(self) -> bool:
        """Give back what nobody settled while its lock lasted; True if there was anything."""
        batch = [*(message.raw for message in self._work), *self._given]
        if not batch or self._clock.monotonic() <= self._locked_at + self._lock:
            return False
        self._work.clear()
        self._given.clear()
        for raw in batch:
            self._acknowledge(raw, _RELEASE)
        log.warning(
            "%s: %d messages were not settled before their lock ended, offset %s among them: they "
            "come back; raise %s if the work takes longer",
            self._settings.topic,
            len(batch),
            min(int(raw.offset() or 0) for raw in batch),
            LOCK,
        )
        return True

    def _apply(self) -> bool:
        """Tell librdkafka what was said; True if there was anything."""
        anything = bool(self._noted)
        while self._noted:
            message, said = self._noted.popleft()
            if message in self._work:  # else its lock has ended, and it may be in work again
                self._work.discard(message)
                self._acknowledge(message.raw, _TYPES[said.verb])
        return anything

    def _acknowledge(self, raw: Raw, how: Any) -> None:
        try:
            self._consumer.acknowledge(raw, how)
        except KafkaException as error:
            log.warning("%s-%s@%s: %s", raw.topic(), raw.partition(), raw.offset(), error)

    def _fetch(self, wait: float) -> None:
        began = self._clock.monotonic()
        for raw in self._consumer.poll(max(wait, 0.0)):
            error = raw.error()
            if error is None:
                self._given.append(raw)
            else:
                self._failed.append(error)  # raised when the messages beside it are handed out
        self._locked_at = began
        if self._failed and not self._given:
            raise KafkaException(self._failed.popleft())

    def _hand_out(self) -> Received:
        raw = self._given.popleft()
        deadline = self._locked_at + self._lock
        message = Received(raw, int(raw.delivery_count() or 1), deadline, self)
        self._work.add(message)
        return message


def _told(offsets: Mapping[Any, set[int]], error: KafkaException | None) -> None:
    """Say what the broker did not take: such a message comes back."""
    if error is not None:
        for where, found in offsets.items():
            log.warning(
                "%s-%s: %d messages were not settled: %s",
                where.topic,
                where.partition,
                len(found),
                error.args[0].str(),
            )


def _client() -> Any:
    """Return librdkafka's class. Raises NoShareGroups where it is not there yet."""
    kind = getattr(confluent_kafka, "ShareConsumer", None)
    if kind is None:
        raise NoShareGroups(
            f"confluent-kafka {confluent_kafka.version()} has no ShareConsumer: 2.16 has it "
            "(pip install -U confluent-kafka)"
        )
    return kind


def _consumer(settings: QueueSettings, most: int) -> Any:
    ours = {"group.id": settings.group, "share.acknowledgement.mode": "explicit"}
    return _client()({"log_level": 3, "max.poll.records": most, **settings.client, **ours})


_RELEASE: Final = 2
_TYPES: Final = {Verb.ACK: 1, Verb.RETRY: _RELEASE, Verb.REJECT: 3}
