"""Creates a queue's markers and dead-letter topics, or checks existing ones.

The markers topic has at least as many partitions as the messages' topic, timestamps of the broker
(`redelivery_state`, rule 1) and no retention (`redelivery_tracker`, rule 4). A dead letter goes to
the partition number of its message, so its topic has at least as many partitions. If partitions are
added to the messages, the other two get them, too: at the start, and when they are assigned. A
dead-letter topic that the user named may serve others as well, so it stays as it is.
"""

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from trimtab.common.clock import Clock
from trimtab.common.errors import TrimtabError
from trimtab.common.kafka_security.preflight import check_connection, diagnose_connection
from trimtab.common.librdkafka_settings import NO_TOPIC_CREATION
from trimtab.common.units import format_count
from trimtab.consumer_sdk.errors import BrokerUnreachableError, MissingAclError, QueueTopicMismatchError
from trimtab.consumer_sdk.log_rate_limit import QUIET_LOG_LEVEL
from trimtab.consumer_sdk.queues.settings import DEAD_LETTER_SETTING, QueueSettings, dead_letter_topic

log = logging.getLogger("trimtab.queues")

TOPIC_ADMIN_TIMEOUT_S: Final = 30.0
FIRST_ANSWER_TIMEOUT_S: Final = 3.0  # then the log names the cause of the wait
NO_ANSWER_ERRORS: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})  # noqa: SLF001 - public
TOPIC_POLL_INTERVAL_S: Final = 0.05
MARKERS_TOPIC_CONFIG: Final[Mapping[str, str]] = {
    "message.timestamp.type": "LogAppendTime",
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # trackers delete settled markers by offset
    "retention.bytes": "-1",
    "segment.bytes": "67108864",  # the broker frees only whole segments
    "segment.ms": "600000",
}
# Of a topic that Trimtab did not create: what else would happen.
REQUIRED_CONFIGS: Final[Mapping[str, str]] = {
    "message.timestamp.type": "the workers' clocks decide when a message is redelivered",
    "cleanup.policy": "compaction deletes markers, and messages in flight at a crash are lost",
}


_TOPIC_CONFIG_API: Any = admin  # ConfigResource is documented, but not in the package's __all__


def create_admin_client(settings: QueueSettings) -> AdminClient:
    """Create an admin client. Raises SaslAuthenticationError, TlsHandshakeError."""
    check_connection(settings.client_config)
    return AdminClient({**settings.client_config, **NO_TOPIC_CREATION, "log_level": QUIET_LOG_LEVEL})


def prepare_queue_topics(
    client: AdminClient, settings: QueueSettings, clock: Clock, *, with_markers: bool
) -> int:
    """Create or check a queue's topics; return the number of partitions.

    Raises QueueTopicMismatchError, MissingAclError, BrokerUnreachableError, TlsHandshakeError.
    """
    partitions, replicas = require_topic(client, settings)
    if not settings.dead_letter_topic:
        raise QueueTopicMismatchError(
            f"{DEAD_LETTER_SETTING} is empty, which only queues of kind 'share' support: name a "
            "dead-letter topic or omit the setting"
        )
    _create_if_missing(client, settings, NewTopic(settings.dead_letter_topic, partitions, replicas))
    _check_dead_letters(client, settings, partitions, clock)
    if with_markers:
        config = dict(MARKERS_TOPIC_CONFIG)
        markers = NewTopic(settings.markers_topic, partitions, replicas, config=config)
        _create_if_missing(client, settings, markers)
        _wait_for_partitions(client, settings, settings.markers_topic, 1, clock)
        _check_markers(client, settings, partitions, clock)
    return partitions


def add_missing_partitions(settings: QueueSettings, clock: Clock, *, with_markers: bool) -> int:
    """Do what the start does after partitions were added to the messages; log what prevents it.

    Returns the number of partitions that all topics have, 0 after a failure.
    """
    try:
        client = create_admin_client(settings)
        return prepare_queue_topics(client, settings, clock, with_markers=with_markers)
    except (TrimtabError, KafkaException) as error:
        log.warning("topic %r has new partitions: %s", settings.topic, error)
        return 0


def is_unknown_group(client: AdminClient, group: str) -> bool:
    """Return whether the brokers report that a group has neither members nor offsets."""
    timeout = TOPIC_ADMIN_TIMEOUT_S
    try:
        description: Any = client.describe_consumer_groups([group], request_timeout=timeout)[group]
        return bool(description.result(timeout).state is ConsumerGroupState.DEAD)
    except KafkaException as error:  # without Describe on the group the answer is unknown
        return bool(error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)


def require_topic(client: AdminClient, settings: QueueSettings) -> tuple[int, int]:
    """Return the number of partitions and replicas of the queue's topic.

    Raises QueueTopicMismatchError if it does not exist, MissingAclError, BrokerUnreachableError.
    """
    partitions, replicas = _read_shape(client, settings, settings.topic)
    if not partitions:
        _check_visible(client, settings, settings.topic, "Read")
        raise QueueTopicMismatchError(
            f"topic {settings.topic!r} does not exist at {settings.bootstrap}: create it with as "
            "many partitions as the largest number of workers"
        )
    return partitions, replicas


def _wait_for_partitions(
    client: AdminClient, settings: QueueSettings, topic: str, count: int, clock: Clock
) -> None:
    # A created topic or partition reaches the metadata of all brokers later than the answer.
    deadline = clock.monotonic() + TOPIC_ADMIN_TIMEOUT_S
    while _read_shape(client, settings, topic)[0] < count and clock.monotonic() < deadline:
        _check_visible(client, settings, topic, "Write")
        clock.sleep(TOPIC_POLL_INTERVAL_S)


def _check_markers(client: AdminClient, settings: QueueSettings, partitions: int, clock: Clock) -> None:
    name = settings.markers_topic
    resource = _TOPIC_CONFIG_API.ConfigResource
    topic = resource(resource.Type.TOPIC, name)
    (answer,) = client.describe_configs([topic], request_timeout=TOPIC_ADMIN_TIMEOUT_S).values()
    config = answer.result(TOPIC_ADMIN_TIMEOUT_S)
    differing = [key for key in REQUIRED_CONFIGS if config[key].value != MARKERS_TOPIC_CONFIG[key]]
    # Another topic, named by mistake, must not get partitions: its keys would move.
    actual = _count_partitions(client, settings, name, 0 if differing else partitions, clock)
    if actual < partitions:
        raise QueueTopicMismatchError(
            f"markers topic {name!r} has {format_count(actual, 'partition')} and "
            f"{settings.topic!r} has {partitions}; it must have at least as many: add partitions "
            f"(kafka-topics.sh --alter --partitions {partitions})"
        )
    for key in differing:
        raise QueueTopicMismatchError(
            f"markers topic {name!r} has {key}={config[key].value}; set it to "
            f"{MARKERS_TOPIC_CONFIG[key]}: otherwise {REQUIRED_CONFIGS[key]}"
        )


def _check_dead_letters(client: AdminClient, settings: QueueSettings, partitions: int, clock: Clock) -> None:
    name = settings.dead_letter_topic
    is_ours = name.endswith(dead_letter_topic(settings.topic, settings.group))  # `share` prefixes it
    actual = _count_partitions(client, settings, name, partitions if is_ours else 0, clock)
    if 0 < actual < partitions:  # 0: just created, not yet in the brokers' metadata
        raise QueueTopicMismatchError(
            f"dead-letter topic {name!r} has {format_count(actual, 'partition')} and "
            f"{settings.topic!r} has {partitions}; it must have at least as many: add partitions "
            f"(kafka-topics.sh --alter --partitions {partitions})"
        )


def _count_partitions(
    client: AdminClient, settings: QueueSettings, topic: str, desired: int, clock: Clock
) -> int:
    """Return a topic's number of partitions after adding those that it lacks to `desired`."""
    actual, _ = _read_shape(client, settings, topic)
    if not 0 < actual < desired:
        return actual
    added = NewPartitions(topic, desired)
    (answer,) = client.create_partitions([added], request_timeout=TOPIC_ADMIN_TIMEOUT_S).values()
    try:
        answer.result(TOPIC_ADMIN_TIMEOUT_S)
        log.info("%s: %d partitions, as many as %s", topic, desired, settings.topic)
    except KafkaException as error:
        # Another worker has added them, perhaps. If not, the caller says what is missing.
        log.info("%s: partitions were not added: %s", topic, error.args[0].str())
    else:
        _wait_for_partitions(client, settings, topic, desired, clock)
    return _read_shape(client, settings, topic)[0]


def _check_visible(client: AdminClient, settings: QueueSettings, topic: str, right: str) -> None:
    # A topic that this user may not describe has this error instead of partitions.
    error = _read_metadata(client, settings, topic).error
    if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise MissingAclError(f"topic {topic!r} at {settings.bootstrap}: grant {right} on it")


def _read_shape(client: AdminClient, settings: QueueSettings, topic: str) -> tuple[int, int]:
    metadata = _read_metadata(client, settings, topic)
    if metadata.error is not None or not metadata.partitions:
        return 0, 0  # it does not exist
    return len(metadata.partitions), len(metadata.partitions[0].replicas)


def _read_metadata(client: AdminClient, settings: QueueSettings, topic: str) -> Any:
    address = settings.bootstrap
    timeout = TOPIC_ADMIN_TIMEOUT_S
    try:
        try:
            return client.list_topics(topic, timeout=FIRST_ANSWER_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            if error.args[0].code() not in NO_ANSWER_ERRORS:
                raise
        log.warning("no broker answers at %s yet; waiting %.0f s more", address, timeout)
        return client.list_topics(topic, timeout=timeout).topics[topic]
    except KafkaException as error:
        diagnose_connection(settings.client_config)
        raise BrokerUnreachableError(address) from error


def _create_if_missing(client: AdminClient, settings: QueueSettings, topic: NewTopic) -> None:
    if _read_shape(client, settings, topic.topic)[0]:
        return
    (answer,) = client.create_topics([topic], request_timeout=TOPIC_ADMIN_TIMEOUT_S).values()
    try:
        answer.result(TOPIC_ADMIN_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise QueueTopicMismatchError(
                f"topic {topic.topic!r} cannot be created: {error.args[0].str()}; create it with "
                f"{format_count(topic.num_partitions, 'partition')}"
            ) from error
