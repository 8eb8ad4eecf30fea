"""The settings of a share group: what is given is set on the broker, and its dead letters.

The rules:

1. A right that is missing is `NotAllowed` and says which; what passes by itself is
   `BrokerUnreachable`; only what the broker does not know, or does not take, is `NoShareGroups`.
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
from trimtab.consumer_sdk.errors import NoShareGroups, NotAllowed, NotOffered, QueueMismatch
from trimtab.consumer_sdk.queues import settings as names
from trimtab.consumer_sdk.queues import topics
from trimtab.consumer_sdk.queues.message_fetch import named
from trimtab.consumer_sdk.queues.settings import QueueSettings
from trimtab.consumer_sdk.queues.share.broker_features import DEAD_LETTERS

TIMEOUT: Final = 30.0
LOCK: Final = "share.record.lock.duration.ms"
RESET: Final = "share.auto.offset.reset"
MOST: Final = "share.delivery.count.limit"
DEAD: Final = "errors.deadletterqueue.topic.name"
COPY: Final = "errors.deadletterqueue.copy.record.enable"
PREFIX: Final = "errors.deadletterqueue.topic.name.prefix"
ADMITS: Final = "errors.deadletterqueue.group.enable"

MISSING: Final = frozenset(
    {
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)
REFUSED: Final = frozenset(
    {
        KafkaError._UNSUPPORTED_FEATURE,  # noqa: SLF001 - the name it is documented by
        KafkaError.UNSUPPORTED_VERSION,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_REQUEST,
    }
)

_CONFIGS: Any = admin  # documented, but not in the package's __all__
_KIND: Any = _CONFIGS.ConfigResource.Type


def configure(
    client: AdminClient,
    settings: QueueSettings,
    given: Mapping[str, Any],
    version: int,
    clock: Clock,
) -> float:
    """Set what was given as the group's settings on the broker; return the lock's seconds.

    `version` is the brokers' `share.version`. Raises NotOffered where a dead-letter topic is given
    and the brokers write none, QueueMismatch, NotAllowed, NoShareGroups, BrokerUnreachable.
    """
    found = _described(client, settings, _KIND.GROUP, settings.group)
    wanted = {
        LOCK: round(settings.timeout * 1000) if names.TIMEOUT in given else None,
        MOST: given.get(names.MOST),
        RESET: given.get("auto.offset.reset"),
        **_dead_letters(client, settings, names.DEAD_LETTER in given, version, found, clock),
    }
    changed = {
        name: str(value)
        for name, value in wanted.items()
        if value is not None and str(value) != found.get(name)
    }
    if changed:
        _set(client, settings, changed)
        found = {**found, **changed}
    return int(found[LOCK]) / 1000


def require_group(client: AdminClient, settings: QueueSettings) -> None:
    """Raise NotAllowed for a group that we may not even see, which Read includes.

    librdkafka tells of that as of a coordinator that is away, for as long as one listens.
    """
    asked = [ConsumerGroupTopicPartitions(settings.group)]
    (answer,) = client.list_consumer_group_offsets(asked, request_timeout=TIMEOUT).values()
    try:
        answer.result(TIMEOUT + 1)
    except KafkaException as error:
        if error.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            raise NotAllowed(
                f"share group {settings.group!r}: may not be in it; grant Read on group "
                f"{settings.group}"
            ) from error


def name_of(given: bool, name: str, prefix: str) -> str:  # noqa: FBT001
    """Return a dead-letter topic's name; ours gets the broker's prefix. Raises QueueMismatch."""
    if name.startswith(prefix):
        return name
    if given:
        raise QueueMismatch(
            f"{names.DEAD_LETTER}: {name!r} does not begin with {prefix!r}, and the broker writes "
            f"dead letters of share groups to no other topic ({PREFIX}); call it {prefix + name!r}"
        )
    return prefix + name


def _dead_letters(
    client: AdminClient,
    settings: QueueSettings,
    given: bool,  # noqa: FBT001
    version: int,
    found: Mapping[str, str],
    clock: Clock,
) -> dict[str, str]:
    """Make or check the topic; return the group's settings for it."""
    if version < DEAD_LETTERS:
        if given and settings.dead_letter:
            raise NotOffered(
                f"{names.DEAD_LETTER}: the brokers at {settings.bootstrap} write no dead letters "
                f"of share groups: that takes share.version={DEAD_LETTERS} (Kafka 4.4), and it is "
                f"{version}; upgrade it (kafka-features.sh upgrade --feature share.version="
                f"{DEAD_LETTERS}), leave the setting out, or use 'kmq'"
            )
        return {}
    if found.get(DEAD) and not given:
        return {}
    if not settings.dead_letter:
        return {DEAD: ""}
    name = name_of(given, settings.dead_letter, _prefix(client, settings))
    _admit(client, settings, name)
    topics.prepare(client, replace(settings, dead_letter=name), clock, markers=False)
    return {DEAD: name, COPY: "true"}


def _prefix(client: AdminClient, settings: QueueSettings) -> str:
    with named(settings.bootstrap):
        broker = min(client.list_topics(settings.topic, timeout=TIMEOUT).brokers)
    return _described(client, settings, _KIND.BROKER, str(broker)).get(PREFIX, "")


def _admit(client: AdminClient, settings: QueueSettings, name: str) -> None:
    """Make a topic that share groups may write to, or check that this one is."""
    try:
        found = _described(client, settings, _KIND.TOPIC, name)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            raise
        _make(client, settings, name)
        return
    if found.get(ADMITS) != "true":
        raise QueueMismatch(
            f"dead-letter topic {name!r} does not admit share groups; set {ADMITS}=true on it "
            f"(kafka-configs.sh --alter --topic {name} --add-config {ADMITS}=true)"
        )


def _make(client: AdminClient, settings: QueueSettings, name: str) -> None:
    shape = topics.require(client, settings)
    new = NewTopic(name, *shape, config={ADMITS: "true"})
    try:
        with _asking(settings, f"Create on topic {name!r}"):
            (made,) = client.create_topics([new], request_timeout=TIMEOUT).values()
            made.result(TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:  # another worker was first
            raise


def _described(
    client: AdminClient, settings: QueueSettings, kind: Any, name: str
) -> dict[str, str]:
    on = "the cluster" if kind is _KIND.BROKER else f"{kind.name.lower()} {name!r}"
    with _asking(settings, f"DescribeConfigs on {on}"):
        (asked,) = client.describe_configs(
            [_CONFIGS.ConfigResource(kind, name)], request_timeout=TIMEOUT
        ).values()
        return {name: entry.value for name, entry in asked.result(TIMEOUT).items()}


def _set(client: AdminClient, settings: QueueSettings, changed: Mapping[str, str]) -> None:
    how = _CONFIGS.AlterConfigOpType.SET
    entries = [
        _CONFIGS.ConfigEntry(name, value, incremental_operation=how)
        for name, value in changed.items()
    ]
    change = _CONFIGS.ConfigResource(_KIND.GROUP, settings.group, incremental_configs=entries)
    with _asking(settings, f"AlterConfigs on group {settings.group!r}"):
        (done,) = client.incremental_alter_configs([change], request_timeout=TIMEOUT).values()
        done.result(TIMEOUT)


@contextmanager
def _asking(settings: QueueSettings, right: str) -> Generator[None, None, None]:
    """Tell apart why the broker does not do what takes this right."""
    try:
        with named(settings.bootstrap):
            yield
    except KafkaException as error:
        told: KafkaError = error.args[0]
        if told.code() in MISSING:
            raise NotAllowed(
                f"share group {settings.group!r} cannot be set up: grant {right}"
            ) from error
        if told.code() in REFUSED:
            raise NoShareGroups(
                f"the broker does not take settings of share group {settings.group!r}: {told.str()}"
            ) from error
        raise
