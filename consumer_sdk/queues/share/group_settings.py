"""Configures a share group and its dead-letter topic on the broker.

The rules:

1. A missing right raises MissingAclError and names the right; a transient failure raises
   BrokerUnreachableError; ShareGroupsUnsupportedError is only for requests and settings that the
   broker does not support.
2. From `share.version` 2 on (KIP-1191) the broker writes dead letters to a topic, if the topic's
   name begins with the broker's prefix and the topic enables it; otherwise it drops them silently.
   So both are set up or checked here.
3. A group's dead-letter topic stays unless another one is given.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition, admin
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.common.clock import Clock
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.consumer_sdk.errors import (
    MissingAclError,
    QueueTopicMismatchError,
    UnsupportedQueueOperationError,
)
from trimtab.consumer_sdk.queues import settings as names
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.message_fetch import convert_transient_errors
from trimtab.consumer_sdk.queues.settings import QueueSettings
from trimtab.consumer_sdk.queues.share.broker_features import DEAD_LETTER_SHARE_VERSION

SHARE_ADMIN_TIMEOUT_S: Final = 30.0
GROUP_ACCESS_POLL_S: Final = 0.5  # between two looks for a refusal
MAX_GROUP_EVENTS: Final = 100
LOCK_DURATION_CONFIG: Final = "share.record.lock.duration.ms"
SHARE_OFFSET_RESET_CONFIG: Final = "share.auto.offset.reset"
DELIVERY_LIMIT_CONFIG: Final = "share.delivery.count.limit"
DEAD_LETTER_TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY_CONFIG: Final = "errors.deadletterqueue.copy.record.enable"
DEAD_LETTER_PREFIX_CONFIG: Final = "errors.deadletterqueue.topic.name.prefix"
DEAD_LETTER_ENABLE_CONFIG: Final = "errors.deadletterqueue.group.enable"

AUTHORIZATION_ERRORS: Final = (
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
)
UNSUPPORTED_ERRORS: Final = (
    KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - the name it is documented by
    KafkaError.UNSUPPORTED_VERSION,
    KafkaError.INVALID_CONFIG,
    KafkaError.INVALID_REQUEST,
)

_GROUP_CONFIG_API: Any = admin  # documented, but not in the package's __all__
_RESOURCE_TYPE: Any = _GROUP_CONFIG_API.ConfigResource.Type


def configure_share_group(
    client: AdminClient, settings: QueueSettings, given: Mapping[str, Any], version: int, clock: Clock
) -> float:
    """Set the given settings on the group; return its lock duration in seconds.

    `version` is the brokers' `share.version`. Raises UnsupportedQueueOperationError for a dead-letter topic
    if the brokers write no dead letters, QueueTopicMismatchError, and the errors of rule 1.
    """
    current = _describe_configs(client, settings, _RESOURCE_TYPE.GROUP, settings.group)
    named = names.DEAD_LETTER_SETTING in given
    writes_letters = version >= DEAD_LETTER_SHARE_VERSION
    if named and settings.dead_letter_topic and not writes_letters:
        needed = f"share.version={DEAD_LETTER_SHARE_VERSION}"
        raise UnsupportedQueueOperationError(
            f"{names.DEAD_LETTER_SETTING}: the brokers at {settings.bootstrap} write no dead letters of "
            f"share groups: that needs {needed} (Kafka 4.4), and it is {version}; upgrade it "
            f"(kafka-features.sh upgrade --feature {needed}), omit the setting, or use 'kmq'"
        )
    unchanged = not writes_letters or (current.get(DEAD_LETTER_TOPIC_CONFIG) and not named)  # rule 3
    desired = {
        LOCK_DURATION_CONFIG: round(settings.timeout * 1000) if names.TIMEOUT_SETTING in given else None,
        DELIVERY_LIMIT_CONFIG: given.get(names.MAX_DELIVERIES_SETTING),
        SHARE_OFFSET_RESET_CONFIG: given.get("auto.offset.reset"),
        **({} if unchanged else _prepare_letters(client, settings, clock, given=named)),
    }
    texts = {name: str(value) for name, value in desired.items() if value is not None}
    changed = {name: value for name, value in texts.items() if value != current.get(name)}
    if changed:  # without a change no worker needs the right to alter the group
        _alter_group_configs(client, settings, changed)
        current = {**current, **changed}
    return int(current[LOCK_DURATION_CONFIG]) / 1000


def require_group_access(settings: QueueSettings, clock: Clock) -> None:
    """Raise MissingAclError without the right to describe the group, which Read includes."""
    # librdkafka's ShareConsumer reports a missing right as an unavailable coordinator, for ever, and its
    # AdminClient.list_consumer_group_offsets crashes while the coordinator moves (its issue 5040),
    # as for the first group of a new cluster.
    consumer = Consumer({**settings.client_config, "group.id": settings.group, "enable.auto.commit": False})
    deadline = clock.monotonic() + SHARE_ADMIN_TIMEOUT_S
    codes = {KafkaError._TIMED_OUT}  # noqa: SLF001 - the name it is documented by
    try:
        # any other answer than a refusal is left to the ShareConsumer, which tries again
        while KafkaError._TIMED_OUT in codes and clock.monotonic() < deadline:  # noqa: SLF001
            codes = _fetch_group_errors(consumer, settings.topic)
            if KafkaError.GROUP_AUTHORIZATION_FAILED in codes:
                group = settings.group
                raise MissingAclError(
                    f"not authorized to join share group {group!r}: grant Read on group {group}"
                )
    finally:
        consumer.close()


def _fetch_group_errors(consumer: Consumer, topic: str) -> set[int]:
    """Fetch a commit of the group; return the codes of the request's error and of the events since."""
    codes: set[int] = set()
    try:
        consumer.committed([TopicPartition(topic, 0)], GROUP_ACCESS_POLL_S)
    except KafkaException as error:
        codes.add(error.args[0].code())
    # a refused request only times out: its reason is an event
    events = (event.error() for event in consumer.consume(MAX_GROUP_EVENTS, timeout=0))
    return codes | {error.code() for error in events if error is not None}


def prefix_dead_letter_topic(given: bool, name: str, prefix: str) -> str:  # noqa: FBT001
    """Return a dead-letter topic's name; a default name gets the broker's prefix.

    Raises QueueTopicMismatchError for a `given` name without the prefix.
    """
    if name.startswith(prefix):
        return name
    if given:
        raise QueueTopicMismatchError(
            f"{names.DEAD_LETTER_SETTING}: {name!r} does not begin with {prefix!r}, which the "
            f"broker requires of dead-letter topics ({DEAD_LETTER_PREFIX_CONFIG}); call it "
            f"{prefix + name!r}"
        )
    return prefix + name


def _prepare_letters(
    client: AdminClient, settings: QueueSettings, clock: Clock, *, given: bool
) -> dict[str, str]:
    if not settings.dead_letter_topic:
        return {DEAD_LETTER_TOPIC_CONFIG: ""}
    name = prefix_dead_letter_topic(given, settings.dead_letter_topic, _read_topic_prefix(client, settings))
    _ensure_dead_letter_topic(client, settings, name)
    topics.prepare_queue_topics(client, replace(settings, dead_letter_topic=name), clock, with_markers=False)
    return {DEAD_LETTER_TOPIC_CONFIG: name, DEAD_LETTER_COPY_CONFIG: "true"}


def _read_topic_prefix(client: AdminClient, settings: QueueSettings) -> str:
    with convert_transient_errors(settings.bootstrap):
        broker = min(client.list_topics(settings.topic, timeout=SHARE_ADMIN_TIMEOUT_S).brokers)
    configs = _describe_configs(client, settings, _RESOURCE_TYPE.BROKER, str(broker))
    return configs.get(DEAD_LETTER_PREFIX_CONFIG, "")


def _ensure_dead_letter_topic(client: AdminClient, settings: QueueSettings, name: str) -> None:
    try:
        current = _describe_configs(client, settings, _RESOURCE_TYPE.TOPIC, name)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        _create_dead_letter_topic(client, settings, name)
        return
    if current.get(DEAD_LETTER_ENABLE_CONFIG) != "true":
        missing = f"{DEAD_LETTER_ENABLE_CONFIG}=true"
        raise QueueTopicMismatchError(
            f"dead-letter topic {name!r} does not accept dead letters of share groups; set {missing} on it "
            f"(kafka-configs.sh --alter --topic {name} --add-config {missing})"
        )


def _create_dead_letter_topic(client: AdminClient, settings: QueueSettings, name: str) -> None:
    shape = topics.require_topic(client, settings)
    new = NewTopic(name, *shape, config={DEAD_LETTER_ENABLE_CONFIG: "true"})
    try:
        with _convert_admin_errors(settings, f"Create on topic {name!r}"):
            (answer,) = client.create_topics([new], request_timeout=SHARE_ADMIN_TIMEOUT_S).values()
            answer.result(SHARE_ADMIN_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # by another worker
            raise


def _describe_configs(client: AdminClient, settings: QueueSettings, kind: Any, name: str) -> dict[str, str]:
    # Kafka checks broker configs against the cluster's ACLs.
    on = "the cluster" if kind is _RESOURCE_TYPE.BROKER else f"{kind.name.lower()} {name!r}"
    resource = _GROUP_CONFIG_API.ConfigResource(kind, name)
    timeout = SHARE_ADMIN_TIMEOUT_S
    with _convert_admin_errors(settings, f"DescribeConfigs on {on}"):
        (answer,) = client.describe_configs([resource], request_timeout=timeout).values()
        return {name: entry.value for name, entry in answer.result(timeout).items()}


def _alter_group_configs(client: AdminClient, settings: QueueSettings, changed: Mapping[str, str]) -> None:
    api = _GROUP_CONFIG_API
    group = settings.group
    timeout = SHARE_ADMIN_TIMEOUT_S
    # Incremental: settings of the group that are not given stay.
    operation = api.AlterConfigOpType.SET
    entries = [api.ConfigEntry(name, v, incremental_operation=operation) for name, v in changed.items()]
    resource = api.ConfigResource(_RESOURCE_TYPE.GROUP, group, incremental_configs=entries)
    with _convert_admin_errors(settings, f"AlterConfigs on group {group!r}"):
        (answer,) = client.incremental_alter_configs([resource], request_timeout=timeout).values()
        answer.result(timeout)


@contextmanager
def _convert_admin_errors(settings: QueueSettings, right: str) -> Generator[None]:
    group = f"share group {settings.group!r}"
    try:
        with convert_transient_errors(settings.bootstrap):
            yield
    except KafkaException as error:
        cause: KafkaError = error.args[0]
        if cause.code() in AUTHORIZATION_ERRORS:
            raise MissingAclError(f"{group} cannot be configured: grant {right}") from error
        if cause.code() in UNSUPPORTED_ERRORS:
            raise ShareGroupsUnsupportedError(
                f"the broker does not accept settings of {group}: {cause.str()}"
            ) from error
        raise
