"""The topics of a queue: made where they are missing, checked where they are not.

The markers topic has as many partitions as the messages, the broker's time (rule 1 of `ledger`),
and no retention: the trackers delete what is over (`tracker`). A dead letter goes into its
message's partition, so the dead letters have at least as many.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.common.clock import Clock
from trimtab.common.kafka_security.preflight import check_connection, diagnose_connection
from trimtab.consumer_sdk.errors import (
    BrokerUnreachableError,
    MissingAclError,
    QueueTopicMismatchError,
)
from trimtab.consumer_sdk.queues.durable_producer import QUIET_LOG_LEVEL
from trimtab.consumer_sdk.queues.settings import DEAD_LETTER_SETTING, QueueSettings

log = logging.getLogger("trimtab.queues")

TOPIC_ADMIN_TIMEOUT_S: Final = 30.0
FIRST_ANSWER_TIMEOUT_S: Final = 3.0
"""Seconds without an answer after which somebody who looks on wants to know why."""

NO_ANSWER_ERRORS: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})  # noqa: SLF001 - public
TOPIC_POLL_INTERVAL_S: Final = 0.05
TOPIC_TIMESTAMP_TYPE_CONFIG: Final = "message.timestamp.type"
LOG_APPEND_TIME: Final = "LogAppendTime"
MARKERS_TOPIC_CONFIG: Final[Mapping[str, str]] = {
    TOPIC_TIMESTAMP_TYPE_CONFIG: LOG_APPEND_TIME,
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # what is over is deleted by the trackers, by offset
    "retention.bytes": "-1",
    "segment.bytes": "67108864",  # deleting goes by whole segments
    "segment.ms": "600000",
}


_TOPIC_CONFIG_API: Any = admin  # ConfigResource is documented, but not in the package's __all__


def create_admin_client(settings: QueueSettings) -> AdminClient:
    """Make an admin client. Raises SaslAuthenticationError, TlsHandshakeError."""
    check_connection(settings.client_config)
    return AdminClient({**settings.client_config, "log_level": QUIET_LOG_LEVEL})


def prepare_queue_topics(
    client: AdminClient, settings: QueueSettings, clock: Clock, *, with_markers: bool
) -> int:
    """Make or check a queue's topics; return the number of partitions.

    Raises QueueTopicMismatchError where they cannot work together, MissingAclError, BrokerUnreachableError, TlsHandshakeError.
    """
    partitions, replicas = require_topic(client, settings)
    if not settings.dead_letter_topic:
        raise QueueTopicMismatchError(
            f"{DEAD_LETTER_SETTING} is empty, which only queues of kind 'share' can do without: name a "
            "topic for what is given up, or leave the setting out"
        )
    _create_missing_topic(
        client, settings, NewTopic(settings.dead_letter_topic, partitions, replicas)
    )
    _check_dead_letters(client, settings, partitions)
    if with_markers:
        config = dict(MARKERS_TOPIC_CONFIG)
        _create_missing_topic(
            client, settings, NewTopic(settings.markers_topic, partitions, replicas, config=config)
        )
        _wait_for_markers_topic(client, settings, clock)
        _check_markers_topic(client, settings, partitions)
    return partitions


def is_unknown_group(client: AdminClient, group: str) -> bool:
    """Tell whether the brokers say that there is no such group: no member and no offset."""
    try:
        asked: Any = client.describe_consumer_groups(
            [group], request_timeout=TOPIC_ADMIN_TIMEOUT_S
        )[group]
        return bool(asked.result(TOPIC_ADMIN_TIMEOUT_S).state is ConsumerGroupState.DEAD)
    except KafkaException as error:  # who may not describe it, cannot tell
        return bool(error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)


def require_topic(client: AdminClient, settings: QueueSettings) -> tuple[int, int]:
    """Return the partitions and replicas of the queue's topic. Raises QueueTopicMismatchError, MissingAclError."""
    partitions, replicas = _read_topic_shape(client, settings, settings.topic)
    if not partitions:
        _check_topic_visible(client, settings, settings.topic, "Read")
        raise QueueTopicMismatchError(
            f"topic {settings.topic!r} does not exist at {_broker_address(settings)}: make it first, with "
            "as many partitions as there may be workers"
        )
    return partitions, replicas


def _wait_for_markers_topic(client: AdminClient, settings: QueueSettings, clock: Clock) -> None:
    """Wait until the brokers tell of a markers topic that has just been made. Raises MissingAclError."""
    deadline = clock.monotonic() + TOPIC_ADMIN_TIMEOUT_S
    while (
        not _read_topic_shape(client, settings, settings.markers_topic)[0]
        and clock.monotonic() < deadline
    ):
        _check_topic_visible(client, settings, settings.markers_topic, "Write")
        clock.sleep(TOPIC_POLL_INTERVAL_S)


def _check_markers_topic(client: AdminClient, settings: QueueSettings, partitions: int) -> None:
    found, _ = _read_topic_shape(client, settings, settings.markers_topic)
    if found != partitions:
        raise QueueTopicMismatchError(
            f"markers topic {settings.markers_topic!r} has {found} partitions and {settings.topic!r} has "
            f"{partitions}; they must have as many. Where partitions were added to the messages, "
            f"add as many to the markers (kafka-topics.sh --alter --partitions {partitions})"
        )
    topic = _TOPIC_CONFIG_API.ConfigResource(
        _TOPIC_CONFIG_API.ConfigResource.Type.TOPIC, settings.markers_topic
    )
    (asked,) = client.describe_configs([topic], request_timeout=TOPIC_ADMIN_TIMEOUT_S).values()
    time = asked.result(TOPIC_ADMIN_TIMEOUT_S)[TOPIC_TIMESTAMP_TYPE_CONFIG].value
    if time != LOG_APPEND_TIME:
        raise QueueTopicMismatchError(
            f"markers topic {settings.markers_topic!r} has {TOPIC_TIMESTAMP_TYPE_CONFIG}={time}; set it to {LOG_APPEND_TIME}, else the "
            "clocks of workers would decide when a message comes back"
        )


def _check_dead_letters(client: AdminClient, settings: QueueSettings, partitions: int) -> None:
    found, _ = _read_topic_shape(client, settings, settings.dead_letter_topic)
    if 0 < found < partitions:  # none while the brokers do not tell yet of one just made
        raise QueueTopicMismatchError(
            f"dead-letter topic {settings.dead_letter_topic!r} has {found} partitions and "
            f"{settings.topic!r} has {partitions}; it must have at least as many: add some "
            f"(kafka-topics.sh --alter --partitions {partitions})"
        )


def _check_topic_visible(
    client: AdminClient, settings: QueueSettings, topic: str, right: str
) -> None:
    """Raise MissingAclError for a topic that this user may not even see."""
    error = _read_topic_metadata(client, settings, topic).error
    if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise MissingAclError(
            f"topic {topic!r} at {_broker_address(settings)}: grant {right} on it"
        )


def _read_topic_shape(client: AdminClient, settings: QueueSettings, topic: str) -> tuple[int, int]:
    """Return the partitions of a topic, 0 if there is none, and the replicas of each."""
    found = _read_topic_metadata(client, settings, topic)
    if found.error is not None or not found.partitions:
        return 0, 0
    return len(found.partitions), len(found.partitions[0].replicas)


def _read_topic_metadata(client: AdminClient, settings: QueueSettings, topic: str) -> Any:
    """Return what the brokers tell of a topic. Raises BrokerUnreachableError."""
    try:
        try:
            return client.list_topics(topic, timeout=FIRST_ANSWER_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            if error.args[0].code() not in NO_ANSWER_ERRORS:
                raise
        where = _broker_address(settings)
        log.warning(
            "no broker answers at %s yet; asking for %.0f s more", where, TOPIC_ADMIN_TIMEOUT_S
        )
        return client.list_topics(topic, timeout=TOPIC_ADMIN_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        diagnose_connection(settings.client_config)
        raise BrokerUnreachableError(_broker_address(settings)) from error


def _create_missing_topic(client: AdminClient, settings: QueueSettings, topic: NewTopic) -> None:
    """Make a topic unless there is one."""
    if _read_topic_shape(client, settings, topic.topic)[0]:
        return
    (made,) = client.create_topics([topic], request_timeout=TOPIC_ADMIN_TIMEOUT_S).values()
    try:
        made.result(TOPIC_ADMIN_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise QueueTopicMismatchError(
                f"topic {topic.topic!r} cannot be made: {error.args[0].str()}; make it yourself, "
                f"with {topic.num_partitions} partitions"
            ) from error


def _broker_address(settings: QueueSettings) -> str:
    return str(settings.client_config.get("bootstrap.servers"))
