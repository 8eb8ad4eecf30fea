"""Membership in the consumer group of the sidecars that divide the groups (`leadership.group_shards`).

- A thread polls, so that a rebalance takes no whole round. It stops polling while no round has begun for
  `hang_timeout` seconds: librdkafka then leaves the group, and others take the shards.
- Rebalances are cooperative: a shard that stays is not revoked, and its groups go on.
- The topic has no records, and its partitions are not fetched.
"""

import logging
from collections.abc import Sequence
from threading import Event, Lock, Thread
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message
from confluent_kafka import TopicPartition as RawPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.common.clock import Clock
from trimtab.sidecar.kafka.cluster_client import format_error_with_grant
from trimtab.sidecar.kafka.control_topic_store import is_topic_exists_error, raise_for_error
from trimtab.sidecar.leadership.group_shards import OwnedShards
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

SHARDS: Final = 60  # of a topic that is created: 2, 3, 4, 5 or 6 sidecars get equally many
SESSION_TIMEOUT_S: Final = 10.0
POLL_TIMEOUT_S: Final = 0.5
RETRY_INTERVAL_S: Final = 2.0


class ShardMembership:
    """Membership of this sidecar among those that have the same shard topic."""

    def __init__(
        self, settings: SidecarSettings, admin: AdminClient, topic: str, clock: Clock, hang_timeout: float
    ) -> None:
        self._settings = settings
        self._admin = admin
        self._topic = topic
        self._clock = clock
        self._hang_timeout = hang_timeout
        self._round_began_at = clock.monotonic()
        self._lock = Lock()
        self._owned = OwnedShards()
        self._error = "not yet a member of the sidecars' group"
        self._stopped = Event()
        # a daemon: brokers that do not answer do not delay the exit
        self._thread = Thread(target=self._run, name="trimtab-shards", daemon=True)

    def start(self) -> None:
        """Join in the background."""
        self._thread.start()

    def close(self) -> None:
        """Leave, so that others have the shards at once."""
        self._stopped.set()
        self._thread.join(SESSION_TIMEOUT_S)

    def begin_round(self) -> OwnedShards:
        """Return the shards."""
        self._round_began_at = self._clock.monotonic()
        with self._lock:
            return self._owned

    def get_error(self) -> str:
        """Return why shards cannot be had; empty without an error."""
        owned = self._owned
        return "" if owned.count and not owned.is_stale else self._error

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._follow_assignments()
            except Exception as error:  # noqa: BLE001 - groups need this thread: it must not end
                self._record_error(_explain(error, self._topic))
                self._stopped.wait(RETRY_INTERVAL_S)

    def _follow_assignments(self) -> None:
        self._create_topic()
        consumer = Consumer(_build_member_config(self._settings, self._topic))
        try:
            consumer.subscribe(
                [self._topic], on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
            while not self._stopped.is_set():
                if self._clock.monotonic() - self._round_began_at > self._hang_timeout:
                    self._stopped.wait(POLL_TIMEOUT_S)
                    continue
                self._check_message(consumer.poll(POLL_TIMEOUT_S))
        finally:
            consumer.close()

    def _check_message(self, message: Message | None) -> None:
        if message is not None and message.error() is not None:
            self._record_error(_explain(KafkaException(message.error()), self._topic))

    def _create_topic(self) -> None:
        found = self._admin.list_topics(self._topic, timeout=self._settings.timeout).topics[self._topic]
        if found.error is None:
            return
        new = NewTopic(self._topic, SHARDS, self._settings.replication_factor)
        try:
            self._admin.create_topics([new])[self._topic].result(self._settings.timeout)
            log.info("created the shard topic %s with %d partitions", self._topic, SHARDS)
        except KafkaException as error:
            if not is_topic_exists_error(error):
                raise

    def _assign(self, consumer: Consumer, partitions: Sequence[RawPartition]) -> None:
        consumer.incremental_assign(list(partitions))
        consumer.pause(list(partitions))
        self._update(self._owned.assign((p.partition for p in partitions), self._count_shards()))

    def _count_shards(self) -> int:
        # At each rebalance: its cause may be that partitions were added. Not by the consumer: after such a
        # call in a callback, a second callback in the same poll aborts the process (CallState_get).
        try:
            found = self._admin.list_topics(self._topic, timeout=self._settings.timeout).topics[self._topic]
            raise_for_error(found.error)
        except KafkaException:
            if not self._owned.count:
                raise
            return self._owned.count
        return len(found.partitions)

    def _revoke(self, consumer: Consumer, partitions: Sequence[RawPartition]) -> None:
        del consumer
        self._update(self._owned.revoke(p.partition for p in partitions))

    def _lose(self, consumer: Consumer, partitions: Sequence[RawPartition]) -> None:
        del consumer, partitions
        self._record_error("the membership in the sidecars' group was lost; joining again")
        self._update(self._owned.lose_membership())

    def _update(self, owned: OwnedShards) -> None:
        if owned != self._owned:
            log.info("this sidecar has %d of %d shards", len(owned.numbers), owned.count)
        with self._lock:
            self._owned = owned

    def _record_error(self, text: str) -> None:
        if text != self._error:
            log.warning("shards of topic %s: %s", self._topic, text)
        self._error = text


def _build_member_config(settings: SidecarSettings, topic: str) -> dict[str, Any]:
    timeout_ms = int(SESSION_TIMEOUT_S * 1000)
    return {
        **settings.client_config,
        "group.id": topic,
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": timeout_ms,
        "max.poll.interval.ms": timeout_ms,  # after `hang_timeout`, in which polls go on
        "enable.auto.commit": False,
        "auto.offset.reset": "latest",
        "allow.auto.create.topics": False,
    }


def _explain(error: Exception, topic: str) -> str:
    if isinstance(error, KafkaException):
        return format_error_with_grant(error, f"Read on group {topic} and on topic {topic}")
    return f"{type(error).__name__}: {error}"
