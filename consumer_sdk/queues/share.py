"""`share`: a queue that the broker keeps, by share groups (KIP-932) and librdkafka's ShareConsumer.

The rules:

1. The client is used by the thread that receives only; what others say of messages waits in line
   until then. `receive` sends it, also with `max=0`.
2. librdkafka (2.16) gives the next messages only when all it gave before are settled. So a worker
   takes a batch at a time, as many as `receive` asks for; one slow message holds up its own worker,
   and no other.
3. The broker counts deliveries, limits them (`share.delivery.count.limit`), and lets a lock end
   (`share.record.lock.duration.ms`). It does not delay, and librdkafka does not renew: `retry` with
   a delay and `extend` are `NotOffered`. What is given up is archived by the broker; there is no
   dead-letter topic.
"""

import logging
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Self

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, admin
from confluent_kafka import Message as Raw
from confluent_kafka.admin import AdminClient

from trimtab.assignor.clock import Clock, SystemClock
from trimtab.consumer_sdk.errors import NoShareGroups, NotOffered
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.features import require_share_groups
from trimtab.consumer_sdk.queues.port import Received, Said, Verb
from trimtab.consumer_sdk.queues.reading import named
from trimtab.consumer_sdk.queues.settings import QueueSettings, settings

log = logging.getLogger("trimtab.queues")

TIMEOUT: Final = 30.0
LOCK: Final = "share.record.lock.duration.ms"
RESET: Final = "share.auto.offset.reset"
MOST: Final = "share.delivery.count.limit"
SLICE: Final = 0.005
"""Seconds of one wait for messages in work that hold up the next ones."""


_CONFIGS: Any = admin  # documented, but not in the package's __all__


class _Noted(NamedTuple):
    message: Received
    said: Said


class ShareQueue:
    """A worker's side. Raises SettingError, QueueMismatch, NoShareGroups, BrokerUnreachable.

    `trimtab.queue.timeout`, `max.deliveries` and `auto.offset.reset`, where they are given, are set
    as the group's on the broker.
    """

    attentive = True

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = settings(topic, config)
        client = topics.connect(self._settings)
        topics.require(client, self._settings)
        require_share_groups(self._settings.client)
        self._lock = _configure(client, self._settings, config)
        self._consumer = _consumer(self._settings)
        self._given: deque[Raw] = deque()  # by librdkafka, and not handed out yet
        self._failed: deque[KafkaError] = deque()
        self._locked_at = 0.0
        self._work: set[Received] = set()
        self._noted: deque[_Noted] = deque()
        self._closed = False
        self._consumer.set_acknowledgement_commit_callback(_told)
        self._consumer.subscribe([topic])

    def receive(self, max: int = 100, wait: float = 1.0) -> list[Received]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        None either while a message of the last batch is in work. Raises BrokerUnreachable for what
        passes by itself, and KafkaException.
        """
        with named(self._settings.bootstrap):
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
        """Wait until what was said is kept by the broker; False for what it did not take."""
        self._apply()
        answers = self._consumer.commit_sync(timeout)
        refused = {where: error for where, error in answers.items() if error is not None}
        for where, error in refused.items():
            log.warning("%s-%s: not settled: %s", where.topic, where.partition, error)
        return not refused

    def close(self) -> None:
        """Send what was said, give the rest back, leave the group; may be called twice."""
        if self._closed:
            return
        self._closed = True
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
        if self._apply():
            self._consumer.commit_async()

    def _apply(self) -> bool:
        """Tell librdkafka what was said; True if there was anything."""
        anything = bool(self._noted)
        while self._noted:
            message, said = self._noted.popleft()
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


def _consumer(settings: QueueSettings) -> Any:
    kind = getattr(confluent_kafka, "ShareConsumer", None)
    if kind is None:
        raise NoShareGroups(
            f"confluent-kafka {confluent_kafka.version()} has no ShareConsumer: 2.16 has it "
            "(pip install -U confluent-kafka)"
        )
    ours = {"group.id": settings.group, "share.acknowledgement.mode": "explicit"}
    return kind({"log_level": 3, **settings.client, **ours})


def _configure(client: AdminClient, settings: QueueSettings, given: Mapping[str, Any]) -> float:
    """Set what was given as the group's settings on the broker; return the lock's seconds."""
    wanted = {
        LOCK: round(settings.timeout * 1000) if "trimtab.queue.timeout" in given else None,
        MOST: given.get("trimtab.queue.max.deliveries"),
        RESET: given.get("auto.offset.reset"),
    }
    entries = [
        _CONFIGS.ConfigEntry(name, str(value), incremental_operation=_CONFIGS.AlterConfigOpType.SET)
        for name, value in wanted.items()
        if value is not None
    ]
    resource, group = _CONFIGS.ConfigResource, _CONFIGS.ConfigResource.Type.GROUP
    try:
        if entries:
            change = resource(group, settings.group, incremental_configs=entries)
            for changed in client.incremental_alter_configs([change]).values():
                changed.result(TIMEOUT)
        (asked,) = client.describe_configs([resource(group, settings.group)]).values()
        return int(asked.result(TIMEOUT)[LOCK].value) / 1000
    except KafkaException as error:
        raise NoShareGroups(
            f"the broker does not take settings of share group {settings.group!r}: "
            f"{error.args[0].str()}"
        ) from error


_RELEASE: Final = 2
_TYPES: Final = {Verb.ACK: 1, Verb.RETRY: _RELEASE, Verb.REJECT: 3}
