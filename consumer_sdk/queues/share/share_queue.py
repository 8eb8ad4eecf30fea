"""`share`: a queue that the broker keeps, by share groups (KIP-932) and librdkafka's ShareConsumer.

The rules:

1. The client is used by the thread that receives only; what others say of messages waits in line
   until then. `receive` sends it, also with `max=0`.
2. librdkafka (2.16) gives the next messages only when all it gave before are settled. So a worker
   takes a batch at a time; one slow message holds up its own worker, and no other. The locks of a
   whole batch run at once, so it is as large as the first `receive` asks for, `MAX_POLL_RECORDS` at most, or
   as what a producer wrote together: the broker does not part that.
3. The broker counts deliveries, limits them (`share.delivery.count.limit`), and lets a lock end
   (`share.record.lock.duration.ms`). It does not delay, and librdkafka does not renew: `retry` with
   a delay and `extend` are `UnsupportedQueueOperationError`. What is given up, by `reject` or by the limit, the broker
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
from trimtab.consumer_sdk.errors import ShareGroupsUnsupportedError, UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.message_fetch import convert_transient_errors
from trimtab.consumer_sdk.queues.settings import QueueSettings, parse_queue_settings
from trimtab.consumer_sdk.queues.settlement import SettlementAction, SettlementRequest
from trimtab.consumer_sdk.queues.share.broker_features import require_share_groups
from trimtab.consumer_sdk.queues.share.group_settings import (
    LOCK_DURATION_CONFIG,
    configure_share_group,
    require_group_access,
)

log = logging.getLogger("trimtab.queues")

MAX_POLL_RECORDS: Final = 500
"""Messages of one fetch at most, librdkafka's own default."""

SHARE_COMMIT_TIMEOUT_S: Final = 5.0
"""Seconds in which the broker must answer to what was said."""

LOCK_POLL_SLICE_S: Final = 0.005
"""Seconds of one wait for messages in work that hold up the next ones."""


class _QueuedSettlement(NamedTuple):
    message: QueueMessage
    request: SettlementRequest


class ShareQueue:
    """A worker's side. Raises SettingError, QueueTopicMismatchError, NoShareGroups, BrokerUnreachableError.

    `trimtab.queue.timeout`, `max.deliveries`, `dead.letter` and `auto.offset.reset`, where they are
    given, are set as the group's on the broker. Raises MissingAclError for a right that is missing, and
    UnsupportedQueueOperationError for a dead-letter topic where the broker writes to none.
    """

    notify_on_ack = True

    def __init__(
        self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_queue_settings(topic, config)
        client = topics.create_admin_client(self._settings)
        topics.require_topic(client, self._settings)
        require_group_access(client, self._settings)
        version = require_share_groups(self._settings.client_config)
        self._lock_duration_s = configure_share_group(
            client, self._settings, config, version, self._clock
        )
        self._consumer: Any = None  # until it is known how many are wanted at once
        self._undelivered: deque[Raw] = deque()  # by librdkafka, and not handed out yet
        self._errors: deque[KafkaError] = deque()
        self._locked_at = 0.0
        self._in_work: set[QueueMessage] = set()
        self._settlements: deque[_QueuedSettlement] = deque()
        self._closed = False
        _require_share_consumer()

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        None either while a message of the last batch is in work and its lock lasts. Raises
        BrokerUnreachableError for what passes by itself, and KafkaException.
        """
        with convert_transient_errors(self._settings.bootstrap):
            if self._consumer is None and max:
                self._consumer = self._create_subscribed_consumer(min(max, MAX_POLL_RECORDS))
            return self._receive_batch(max, wait)

    def now(self) -> float:
        """Return seconds of the monotonic clock."""
        return self._clock.monotonic()

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Put what was said in line. Raises UnsupportedQueueOperationError for an extension and for a delay."""
        if request.action is SettlementAction.EXTEND:
            raise UnsupportedQueueOperationError(
                "a queue of kind 'share' cannot extend a message: librdkafka does not renew locks. "
                f"Give the group a longer {LOCK_DURATION_CONFIG} (trimtab.queue.timeout), or use 'kmq'"
            )
        if request.action is SettlementAction.RETRY and request.seconds > 0:
            raise UnsupportedQueueOperationError(
                "a queue of kind 'share' cannot delay a retry: the broker offers a released "
                "message at once. Call retry() without a delay, or use 'kmq'"
            )
        if late:
            log.warning(
                "%r was settled after its lock had ended; raise %s", message, LOCK_DURATION_CONFIG
            )
        self._settlements.append(_QueuedSettlement(message, request))

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until what was said is kept by the broker; False for what it did not take.

        Raises BrokerUnreachableError, KafkaException.
        """
        self._apply_settlements()
        if self._consumer is None:
            return True
        with convert_transient_errors(self._settings.bootstrap):
            return self._commit_acknowledgements(timeout)

    def close(self) -> None:
        """Send what was said, give the rest back, leave the group; may be called twice."""
        if self._closed:
            return
        self._closed = True
        if self._consumer is None:
            return
        try:
            self._apply_settlements()
            for raw in [*(m.raw for m in self._in_work), *self._undelivered]:
                self._acknowledge_message(raw, _RELEASE_TYPE)
        finally:
            self._consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create_subscribed_consumer(self, max_messages: int) -> Any:
        consumer = _create_share_consumer(self._settings, max_messages)
        try:
            consumer.set_acknowledgement_commit_callback(_log_commit_errors)
            consumer.subscribe([self._settings.topic])
        except BaseException:
            consumer.close()
            raise
        return consumer

    def _receive_batch(self, max_messages: int, wait: float) -> list[QueueMessage]:
        deadline = self._clock.monotonic() + wait
        while True:
            self._commit_settlements()
            left = deadline - self._clock.monotonic()
            if self._undelivered or left <= 0 or (max_messages and not self._in_work):
                break
            self._clock.sleep(min(left, LOCK_POLL_SLICE_S))
        if self._errors and not self._undelivered:
            raise KafkaException(self._errors.popleft())
        if max_messages and not self._undelivered and not self._in_work:
            self._fetch_batch(deadline - self._clock.monotonic())
        return [self._deliver_next() for _ in range(min(max_messages, len(self._undelivered)))]

    def _commit_settlements(self) -> None:
        said, lapsed = self._apply_settlements(), self._release_expired()
        if said or lapsed:
            self._commit_acknowledgements(SHARE_COMMIT_TIMEOUT_S)

    def _commit_acknowledgements(self, timeout: float) -> bool:
        """Tell the broker what was said, and wait (rule 4); False for what it did not take."""
        answers = self._consumer.commit_sync(timeout)
        refused = {where: error for where, error in answers.items() if error is not None}
        for where, error in refused.items():
            log.warning("%s-%s: not settled: %s", where.topic, where.partition, error)
        return not refused

    def _release_expired(self) -> bool:
        """Give back what nobody settled while its lock lasted; True if there was anything."""
        batch = [*(message.raw for message in self._in_work), *self._undelivered]
        if not batch or self._clock.monotonic() <= self._locked_at + self._lock_duration_s:
            return False
        self._in_work.clear()
        self._undelivered.clear()
        for raw in batch:
            self._acknowledge_message(raw, _RELEASE_TYPE)
        log.warning(
            "%s: %d messages were not settled before their lock ended, offset %s among them: they "
            "come back; raise %s if the work takes longer",
            self._settings.topic,
            len(batch),
            min(int(raw.offset() or 0) for raw in batch),
            LOCK_DURATION_CONFIG,
        )
        return True

    def _apply_settlements(self) -> bool:
        """Tell librdkafka what was said; True if there was anything."""
        anything = bool(self._settlements)
        while self._settlements:
            message, said = self._settlements.popleft()
            if message in self._in_work:  # else its lock has ended, and it may be in work again
                self._in_work.discard(message)
                self._acknowledge_message(message.raw, _ACKNOWLEDGE_TYPES[said.action])
        return anything

    def _acknowledge_message(self, raw: Raw, acknowledge_type: Any) -> None:
        try:
            self._consumer.acknowledge(raw, acknowledge_type)
        except KafkaException as error:
            log.warning("%s-%s@%s: %s", raw.topic(), raw.partition(), raw.offset(), error)

    def _fetch_batch(self, wait: float) -> None:
        began = self._clock.monotonic()
        for raw in self._consumer.poll(max(wait, 0.0)):
            error = raw.error()
            if error is None:
                self._undelivered.append(raw)
            else:
                self._errors.append(error)  # raised when the messages beside it are handed out
        self._locked_at = began
        if self._errors and not self._undelivered:
            raise KafkaException(self._errors.popleft())

    def _deliver_next(self) -> QueueMessage:
        raw = self._undelivered.popleft()
        deadline = self._locked_at + self._lock_duration_s
        message = QueueMessage(raw, int(raw.delivery_count() or 1), deadline, self)
        self._in_work.add(message)
        return message


def _log_commit_errors(offsets: Mapping[Any, set[int]], error: KafkaException | None) -> None:
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


def _require_share_consumer() -> Any:
    """Return librdkafka's class. Raises NoShareGroups where it is not there yet."""
    kind = getattr(confluent_kafka, "ShareConsumer", None)
    if kind is None:
        raise ShareGroupsUnsupportedError(
            f"confluent-kafka {confluent_kafka.version()} has no ShareConsumer: 2.16 has it "
            "(pip install -U confluent-kafka)"
        )
    return kind


def _create_share_consumer(settings: QueueSettings, max_messages: int) -> Any:
    ours = {"group.id": settings.group, "share.acknowledgement.mode": "explicit"}
    return _require_share_consumer()(
        {"log_level": 3, "max.poll.records": max_messages, **settings.client_config, **ours}
    )


_RELEASE_TYPE: Final = 2
_ACKNOWLEDGE_TYPES: Final = {
    SettlementAction.ACK: 1,
    SettlementAction.RETRY: _RELEASE_TYPE,
    SettlementAction.REJECT: 3,
}
