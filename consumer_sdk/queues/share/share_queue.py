"""`share`: a queue in the broker, by share groups (KIP-932) and librdkafka's ShareConsumer.

The rules:

1. Only the receiving thread uses the client. Settlements of other threads are queued; `receive`
   sends them, also with `max=0`.
2. librdkafka (2.16) delivers the next messages only when all previous ones are settled. So a
   worker takes a batch at a time, and a slow message delays only its own worker. All locks of a
   batch run at once, so a batch has the size of the first `receive`, `MAX_POLL_RECORDS` at most,
   or of a producer's batch, which the broker does not split.
3. The broker counts and limits deliveries (`share.delivery.count.limit`) and expires locks
   (`share.record.lock.duration.ms`). It has no delay, and librdkafka does not renew locks: `retry`
   with a delay and `extend` raise UnsupportedQueueOperationError. The broker writes messages that
   are rejected, or reach the limit, to the dead-letter topic from Kafka 4.4 on (`group_settings`);
   before, it archives them.
4. One commit at a time, waiting for its answer: of two concurrent ones the broker refuses the
   second as a whole (`Invalid request`, librdkafka 2.16), and its messages are redelivered.
5. A message still unsettled when its lock expires is released and blocks no further delivery. Its
   later settlement is dropped: the message may be in flight in another worker by then.
6. A lock begins after the start of the poll that returns its message. But after an empty poll
   librdkafka (2.16) waits on for messages and keeps them, locked, for the next poll: then it begins
   after the end of the empty one. So call `receive` more often than locks expire.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from trimtab.common.clock import Clock, SystemClock
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.consumer_sdk.errors import UnsupportedQueueOperationError
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.message_fetch import close_on_error, convert_transient_errors, repair_headers
from trimtab.consumer_sdk.queues.message_queue import MessageQueue, QueuedSettlement
from trimtab.consumer_sdk.queues.queue_spans import open_queue_spans
from trimtab.consumer_sdk.queues.settings import QueueSettings, check_kind, parse_queue_settings
from trimtab.consumer_sdk.queues.settlement import SettlementAction, SettlementRequest
from trimtab.consumer_sdk.queues.share.broker_features import require_share_groups
from trimtab.consumer_sdk.queues.share.group_settings import (
    LOCK_DURATION_CONFIG,
    configure_share_group,
    require_group_access,
)

log = logging.getLogger("trimtab.queues")

MAX_POLL_RECORDS: Final = 500  # librdkafka's own default
SHARE_COMMIT_TIMEOUT_S: Final = 5.0  # delays `receive`, which commits first (rule 4)
LOCK_POLL_SHARE: Final = 0.02  # of a lock's duration: the longest poll, which a deadline is too early by
LOCK_POLL_SLICE_S: Final = 0.005  # while messages in flight block the next batch (rule 2)


class ShareQueue(MessageQueue):
    """Worker of a `share` queue.

    Sets `trimtab.queue.timeout`, `max.deliveries`, `dead.letter` and `auto.offset.reset`, if
    given, as the group's settings on the broker. Raises SettingError, and the errors of
    `configure_share_group`.
    """

    notify_on_ack = True  # librdkafka must get each acknowledgement

    def __init__(self, topic: str, config: Mapping[str, Any], *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._settings = parse_queue_settings(topic, config)
        check_kind("share", self._settings, config)
        self._spans = open_queue_spans(self._settings, self._clock)
        client = topics.create_admin_client(self._settings)
        topics.require_topic(client, self._settings)
        require_group_access(self._settings, self._clock)
        version = require_share_groups(self._settings.client_config, self._clock)
        self._lock_duration_s = configure_share_group(client, self._settings, config, version, self._clock)
        self._consumer: Any = None  # created by the first `receive`, which sets the batch size
        self._undelivered: deque[Message] = deque()  # fetched, not delivered yet
        self._errors: deque[KafkaError] = deque()
        self._locked_at = 0.0  # at the earliest
        self._empty_poll_ended_at: float | None = None  # of the last poll; None if it had messages
        self._in_flight: set[QueueMessage] = set()
        self._settlements: deque[QueuedSettlement] = deque()
        self._closed = False
        _require_share_consumer()

    def receive(self, max: int = 100, wait: float = 1.0) -> list[QueueMessage]:  # noqa: A002
        """Return up to `max` messages once any is available, none after `wait` seconds.

        Returns none while a message of the last batch is in flight and its lock lasts. Raises
        BrokerUnreachableError for transient failures, and KafkaException.
        """
        with convert_transient_errors(self._settings.bootstrap):
            if self._consumer is None and max:
                self._consumer = self._subscribe(min(max, MAX_POLL_RECORDS))
            return self._receive_batch(max, wait)

    def now(self) -> float:
        """Return the seconds of the monotonic clock."""
        return self._clock.monotonic()

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Queue a settlement. Raises UnsupportedQueueOperationError for extensions and delays."""
        if request.action is SettlementAction.EXTEND:
            raise UnsupportedQueueOperationError(
                "a queue of kind 'share' cannot extend a message: librdkafka does not renew locks. "
                f"Raise the group's {LOCK_DURATION_CONFIG} (trimtab.queue.timeout), or use 'kmq'"
            )
        if request.action is SettlementAction.RETRY and request.seconds > 0:
            raise UnsupportedQueueOperationError(
                "a queue of kind 'share' cannot delay a retry: the broker offers a released "
                "message at once. Call retry() without a delay, or use 'kmq'"
            )
        if late:
            log.warning("%r was settled after its lock expired; raise %s", message, LOCK_DURATION_CONFIG)
        self._settlements.append(QueuedSettlement(message, request))

    def trace_processing(self, message: QueueMessage) -> AbstractContextManager[None]:
        """Return a block whose span processes a message; it does nothing without `trimtab.telemetry`."""
        return self._spans.trace_delivery(message.raw, message.delivery)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until the broker has stored all settlements; return False if it refused any.

        Raises BrokerUnreachableError, KafkaException.
        """
        self._apply_settlements()
        if self._consumer is None:
            return True
        with convert_transient_errors(self._settings.bootstrap):
            return self._commit_acknowledgements(timeout)

    def close(self) -> None:
        """Send settlements, release all other messages, leave the group. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._consumer is None:
            return
        try:
            self._apply_settlements()
            for raw in [*(m.raw for m in self._in_flight), *self._undelivered]:
                self._acknowledge(raw, _RELEASE_TYPE)
        finally:
            self._consumer.close()

    def _subscribe(self, max_messages: int) -> Any:
        consumer = _create_share_consumer(self._settings, max_messages)
        with close_on_error(consumer):
            consumer.set_acknowledgement_commit_callback(_log_commit_errors)
            consumer.subscribe([self._settings.topic])
        return consumer

    def _receive_batch(self, max_messages: int, wait: float) -> list[QueueMessage]:
        deadline = self._clock.monotonic() + wait
        while True:
            self._commit_settlements()
            left = deadline - self._clock.monotonic()
            if self._undelivered or left <= 0 or (max_messages and not self._in_flight):
                break
            self._clock.sleep(min(left, LOCK_POLL_SLICE_S))
        if self._errors and not self._undelivered:
            raise KafkaException(self._errors.popleft())
        if max_messages and not self._undelivered and not self._in_flight:
            self._fetch_batch(deadline - self._clock.monotonic())
        return [self._deliver_next() for _ in range(min(max_messages, len(self._undelivered)))]

    def _commit_settlements(self) -> None:
        settled = self._apply_settlements()
        expired = self._release_expired()
        if settled or expired:
            self._commit_acknowledgements(SHARE_COMMIT_TIMEOUT_S)

    def _commit_acknowledgements(self, timeout: float) -> bool:
        with self._spans.trace_settlement(self._settings.topic):
            answers = self._consumer.commit_sync(timeout)  # one at a time (rule 4)
            refused = {partition: error for partition, error in answers.items() if error is not None}
            for partition, error in refused.items():
                log.warning("%s-%s: not settled: %s", partition.topic, partition.partition, error)
        return not refused

    def _release_expired(self) -> bool:
        batch = [*(message.raw for message in self._in_flight), *self._undelivered]
        if not batch or self._clock.monotonic() <= self._locked_at + self._lock_duration_s:
            return False
        self._in_flight.clear()
        self._undelivered.clear()
        for raw in batch:  # librdkafka delivers no further batch before (rules 2 and 5)
            self._acknowledge(raw, _RELEASE_TYPE)
        topic = self._settings.topic
        first = min(int(raw.offset() or 0) for raw in batch)
        log.warning(
            "%s: %d messages were not settled before their lock expired, the first at offset %s: "
            "they are redelivered; raise %s if the work takes longer",
            topic,
            len(batch),
            first,
            LOCK_DURATION_CONFIG,
        )
        return True

    def _apply_settlements(self) -> bool:
        any_queued = bool(self._settlements)
        while self._settlements:
            message, request = self._settlements.popleft()
            if message in self._in_flight:  # else its lock has expired (rule 5)
                self._in_flight.discard(message)
                self._acknowledge(message.raw, _ACKNOWLEDGE_TYPES[request.action])
        return any_queued

    def _acknowledge(self, raw: Message, acknowledge_type: int) -> None:
        try:
            self._consumer.acknowledge(raw, acknowledge_type)
        except KafkaException as error:  # the broker redelivers it
            log.warning("%s-%s@%s: %s", raw.topic(), raw.partition(), raw.offset(), error)

    def _fetch_batch(self, wait: float) -> None:
        begun_at = self._clock.monotonic()
        polled = self._poll_until(begun_at + wait)
        if self._spans.is_on and polled:
            self._spans.record_receive(polled, self._clock.monotonic() - begun_at)
        for raw in polled:
            error = raw.error()
            if error is None:
                self._undelivered.append(raw)
            else:
                self._errors.append(error)  # raised when the messages beside it are delivered
        repair_headers(self._undelivered)
        if self._errors and not self._undelivered:
            raise KafkaException(self._errors.popleft())

    def _poll_until(self, deadline: float) -> Sequence[Message]:
        while True:
            now = self._clock.monotonic()
            self._locked_at = now if self._empty_poll_ended_at is None else self._empty_poll_ended_at
            left = max(deadline - now, 0.0)
            # Short beside a lock: counted from the start of a long poll, it would have expired already.
            slice_s = min(left, self._lock_duration_s * LOCK_POLL_SHARE)
            polled: Sequence[Message] = self._consumer.poll(slice_s)
            self._empty_poll_ended_at = None if polled else self._clock.monotonic()
            if polled or slice_s == left:
                return polled

    def _deliver_next(self) -> QueueMessage:
        raw = self._undelivered.popleft()
        # All locks of a batch run at once, from before the fetch (rule 2).
        deadline = self._locked_at + self._lock_duration_s
        message = QueueMessage(raw, int(raw.delivery_count() or 1), deadline, self)
        self._in_flight.add(message)
        return message


def _log_commit_errors(offsets: Mapping[Any, set[int]], error: KafkaException | None) -> None:
    if error is not None:
        for at, refused in offsets.items():  # the broker redelivers the messages
            reason = error.args[0].str()
            name = f"{at.topic}-{at.partition}"
            log.warning("%s: %d messages were not settled: %s", name, len(refused), reason)


def _require_share_consumer() -> Any:
    consumer_class = getattr(confluent_kafka, "ShareConsumer", None)
    if consumer_class is None:
        raise ShareGroupsUnsupportedError(
            f"confluent-kafka {confluent_kafka.version()} has no ShareConsumer: it needs 2.16 "
            "(pip install -U confluent-kafka)"
        )
    return consumer_class


def _create_share_consumer(settings: QueueSettings, max_messages: int) -> Any:
    fixed = {"group.id": settings.group, "share.acknowledgement.mode": "explicit"}
    config = {"log_level": 3, "max.poll.records": max_messages, **settings.client_config, **fixed}
    return _require_share_consumer()(config)


_RELEASE_TYPE: Final = 2
_ACKNOWLEDGE_TYPES: Final = {
    SettlementAction.ACK: 1,
    SettlementAction.RETRY: _RELEASE_TYPE,
    SettlementAction.REJECT: 3,
}
