"""The settings of a share group: what is given is set on the broker, and its dead letters.

The rules:

1. A right that is missing is `MissingAclError` and says which; what passes by itself is
   `BrokerUnreachableError`; only what the broker does not know, or does not take, is `ShareGroupsUnsupportedError`.
2. From `share.version` 2 on (KIP-1191) the broker writes what is given up into a topic. It does so
   only where the topic's name begins with the broker's prefix and the topic admits it, and it says
   nothing where not: both are made or checked here.
3. A group that has a dead-letter topic keeps it, unless another one is given.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, admin
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
LOCK_DURATION_CONFIG: Final = "share.record.lock.duration.ms"
SHARE_OFFSET_RESET_CONFIG: Final = "share.auto.offset.reset"
DELIVERY_LIMIT_CONFIG: Final = "share.delivery.count.limit"
DEAD_LETTER_TOPIC_CONFIG: Final = "errors.deadletterqueue.topic.name"
DEAD_LETTER_COPY_CONFIG: Final = "errors.deadletterqueue.copy.record.enable"
DEAD_LETTER_PREFIX_CONFIG: Final = "errors.deadletterqueue.topic.name.prefix"
DEAD_LETTER_ENABLE_CONFIG: Final = "errors.deadletterqueue.group.enable"

AUTHORIZATION_ERRORS: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
UNSUPPORTED_ERRORS: Final = frozenset(
    {
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - the name it is documented by
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
    }
)

_GROUP_CONFIG_API: Any = admin  # documented, but not in the package's __all__
_RESOURCE_TYPE: Any = _GROUP_CONFIG_API.ConfigResource.Type


def configure_share_group(
    client: AdminClient,
    settings: QueueSettings,
    given: Mapping[str, Any],
    version: int,
    clock: Clock,
) -> float:
    """Set what was given as the group's settings on the broker; return the lock's seconds.

    `version` is the brokers' `share.version`. Raises UnsupportedQueueOperationError where a dead-letter topic is given
    and the brokers write none, QueueTopicMismatchError, MissingAclError, ShareGroupsUnsupportedError, BrokerUnreachableError.
    """
    found = _describe_configs(client, settings, _RESOURCE_TYPE.GROUP, settings.group)
    wanted = {
        LOCK_DURATION_CONFIG: round(settings.timeout * 1000)
        if names.TIMEOUT_SETTING in given
        else None,
        DELIVERY_LIMIT_CONFIG: given.get(names.MAX_DELIVERIES_SETTING),
        SHARE_OFFSET_RESET_CONFIG: given.get("auto.offset.reset"),
        **_prepare_dead_letters(
            client, settings, names.DEAD_LETTER_SETTING in given, version, found, clock
        ),
    }
    changed = {
        name: str(value)
        for name, value in wanted.items()
        if value is not None and str(value) != found.get(name)
    }
    if changed:
        _alter_group_configs(client, settings, changed)
        found = {**found, **changed}
    return int(found[LOCK_DURATION_CONFIG]) / 1000


def require_group_access(client: AdminClient, settings: QueueSettings) -> None:
    """Raise MissingAclError for a group that we may not even see, which Read includes.

    librdkafka tells of that as of a coordinator that is away, for as long as one listens.
    """
    asked = [ConsumerGroupTopicPartitions(settings.group)]
    (answer,) = client.list_consumer_group_offsets(
        asked, request_timeout=SHARE_ADMIN_TIMEOUT_S
    ).values()
    try:
        answer.result(SHARE_ADMIN_TIMEOUT_S + 1)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise MissingAclError(
                f"share group {settings.group!r}: may not be in it; grant Read on group "
                f"{settings.group}"
            ) from error


def prefix_dead_letter_topic(given: bool, name: str, prefix: str) -> str:  # noqa: FBT001
    """Return a dead-letter topic's name; ours gets the broker's prefix. Raises QueueTopicMismatchError."""
    if name.startswith(prefix):
        return name
    if given:
        raise QueueTopicMismatchError(
            f"{names.DEAD_LETTER_SETTING}: {name!r} does not begin with {prefix!r}, and the broker writes "
            f"dead letters of share groups to no other topic ({DEAD_LETTER_PREFIX_CONFIG}); call it {prefix + name!r}"
        )
    return prefix + name


def _prepare_dead_letters(
    client: AdminClient,
    settings: QueueSettings,
    given: bool,  # noqa: FBT001
    version: int,
    found: Mapping[str, str],
    clock: Clock,
) -> dict[str, str]:
    """Make or check the topic; return the group's settings for it."""
    if version < DEAD_LETTER_SHARE_VERSION:
        if given and settings.dead_letter_topic:
            raise UnsupportedQueueOperationError(
                f"{names.DEAD_LETTER_SETTING}: the brokers at {settings.bootstrap} write no dead letters "
                f"of share groups: that takes share.version={DEAD_LETTER_SHARE_VERSION} (Kafka 4.4), and it is "
                f"{version}; upgrade it (kafka-features.sh upgrade --feature share.version="
                f"{DEAD_LETTER_SHARE_VERSION}), leave the setting out, or use 'kmq'"
            )
        return {}
    if found.get(DEAD_LETTER_TOPIC_CONFIG) and not given:
        return {}
    if not settings.dead_letter_topic:
        return {DEAD_LETTER_TOPIC_CONFIG: ""}
    name = prefix_dead_letter_topic(
        given, settings.dead_letter_topic, _read_topic_prefix(client, settings)
    )
    _ensure_dead_letter_topic(client, settings, name)
    topics.prepare_queue_topics(
        client, replace(settings, dead_letter_topic=name), clock, with_markers=False
    )
    return {DEAD_LETTER_TOPIC_CONFIG: name, DEAD_LETTER_COPY_CONFIG: "true"}


def _read_topic_prefix(client: AdminClient, settings: QueueSettings) -> str:
    with convert_transient_errors(settings.bootstrap):
        broker = min(client.list_topics(settings.topic, timeout=SHARE_ADMIN_TIMEOUT_S).brokers)
    return _describe_configs(client, settings, _RESOURCE_TYPE.BROKER, str(broker)).get(
        DEAD_LETTER_PREFIX_CONFIG, ""
    )


def _ensure_dead_letter_topic(client: AdminClient, settings: QueueSettings, name: str) -> None:
    """Make a topic that share groups may write to, or check that this one is."""
    try:
        found = _describe_configs(client, settings, _RESOURCE_TYPE.TOPIC, name)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        _create_dead_letter_topic(client, settings, name)
        return
    if found.get(DEAD_LETTER_ENABLE_CONFIG) != "true":
        raise QueueTopicMismatchError(
            f"dead-letter topic {name!r} does not admit share groups; set {DEAD_LETTER_ENABLE_CONFIG}=true on it "
            f"(kafka-configs.sh --alter --topic {name} --add-config {DEAD_LETTER_ENABLE_CONFIG}=true)"
        )


def _create_dead_letter_topic(client: AdminClient, settings: QueueSettings, name: str) -> None:
    shape = topics.require_topic(client, settings)
    new = NewTopic(name, *shape, config={DEAD_LETTER_ENABLE_CONFIG: "true"})
    try:
        with _convert_admin_errors(settings, f"Create on topic {name!r}"):
            (made,) = client.create_topics([new], request_timeout=SHARE_ADMIN_TIMEOUT_S).values()
            made.result(SHARE_ADMIN_TIMEOUT_S)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another worker was first
            raise


def _describe_configs(
    client: AdminClient, settings: QueueSettings, kind: Any, name: str
) -> dict[str, str]:
    on = "the cluster" if kind is _RESOURCE_TYPE.BROKER else f"{kind.name.lower()} {name!r}"
    with _convert_admin_errors(settings, f"DescribeConfigs on {on}"):
        (asked,) = client.describe_configs(
            [_GROUP_CONFIG_API.ConfigResource(kind, name)], request_timeout=SHARE_ADMIN_TIMEOUT_S
        ).values()
        return {name: entry.value for name, entry in asked.result(SHARE_ADMIN_TIMEOUT_S).items()}


def _alter_group_configs(
    client: AdminClient, settings: QueueSettings, changed: Mapping[str, str]
) -> None:
    how = _GROUP_CONFIG_API.AlterConfigOpType.SET
    entries = [
        _GROUP_CONFIG_API.ConfigEntry(name, value, incremental_operation=how)
        for name, value in changed.items()
    ]
    change = _GROUP_CONFIG_API.ConfigResource(
        _RESOURCE_TYPE.GROUP, settings.group, incremental_configs=entries
    )
    with _convert_admin_errors(settings, f"AlterConfigs on group {settings.group!r}"):
        (done,) = client.incremental_alter_configs(
            [change], request_timeout=SHARE_ADMIN_TIMEOUT_S
        ).values()
        done.result(SHARE_ADMIN_TIMEOUT_S)


@contextmanager
def _convert_admin_errors(settings: QueueSettings, right: str) -> Generator[None, None, None]:
    """Tell apart why the broker does not do what takes this right."""
    try:
        with convert_transient_errors(settings.bootstrap):
            yield
    except KafkaException as error:
        told: KafkaError = error.args[0]
        if told.code() in AUTHORIZATION_ERRORS:
            raise MissingAclError(
                f"share group {settings.group!r} cannot be set up: grant {right}"
            ) from error
        if told.code() in UNSUPPORTED_ERRORS:
            raise ShareGroupsUnsupportedError(
                f"the broker does not take settings of share group {settings.group!r}: {told.str()}"
            ) from error
        raise
