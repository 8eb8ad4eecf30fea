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
from trimtab.common.kafka_security.preflight import diagnose, knock
from trimtab.consumer_sdk.errors import BrokerUnreachable, NotAllowed, QueueMismatch
from trimtab.consumer_sdk.queues.durable_producer import QUIET
from trimtab.consumer_sdk.queues.settings import DEAD_LETTER, QueueSettings

log = logging.getLogger("trimtab.queues")

TIMEOUT: Final = 30.0
SOON: Final = 3.0
"""Seconds without an answer after which somebody who looks on wants to know why."""

SILENT: Final = frozenset({KafkaError._TRANSPORT, KafkaError._TIMED_OUT})  # noqa: SLF001 - public
LOOK: Final = 0.05
TIME: Final = "message.timestamp.type"
APPENDED: Final = "LogAppendTime"
MARKERS: Final[Mapping[str, str]] = {
    TIME: APPENDED,
    "cleanup.policy": "delete",
    "retention.ms": "-1",  # what is over is deleted by the trackers, by offset
    "retention.bytes": "-1",
    "segment.bytes": "67108864",  # deleting goes by whole segments
    "segment.ms": "600000",
}


_CONFIGS: Any = admin  # ConfigResource is documented, but not in the package's __all__


def connect(settings: QueueSettings) -> AdminClient:
    """Make an admin client. Raises LoginRefused, TlsFailed."""
    knock(settings.client)
    return AdminClient({**settings.client, "log_level": QUIET})


def prepare(client: AdminClient, settings: QueueSettings, clock: Clock, *, markers: bool) -> int:
    """Make or check a queue's topics; return the number of partitions.

    Raises QueueMismatch where they cannot work together, NotAllowed, BrokerUnreachable, TlsFailed.
    """
    partitions, replicas = require(client, settings)
    if not settings.dead_letter:
        raise QueueMismatch(
            f"{DEAD_LETTER} is empty, which only queues of kind 'share' can do without: name a "
            "topic for what is given up, or leave the setting out"
        )
    _make(client, settings, NewTopic(settings.dead_letter, partitions, replicas))
    _check_dead_letters(client, settings, partitions)
    if markers:
        config = dict(MARKERS)
        _make(client, settings, NewTopic(settings.markers, partitions, replicas, config=config))
        _wait(client, settings, clock)
        _check(client, settings, partitions)
    return partitions


def strange(client: AdminClient, group: str) -> bool:
    """Tell whether the brokers say that there is no such group: no member and no offset."""
    try:
        asked: Any = client.describe_consumer_groups([group], request_timeout=TIMEOUT)[group]
        return bool(asked.result(TIMEOUT).state is ConsumerGroupState.DEAD)
    except KafkaException as error:  # who may not describe it, cannot tell
        return bool(error.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND)


def require(client: AdminClient, settings: QueueSettings) -> tuple[int, int]:
    """Return the partitions and replicas of the queue's topic. Raises QueueMismatch, NotAllowed."""
    partitions, replicas = _shape(client, settings, settings.topic)
    if not partitions:
        _refuse_hidden(client, settings, settings.topic, "Read")
        raise QueueMismatch(
            f"topic {settings.topic!r} does not exist at {_where(settings)}: make it first, with "
            "as many partitions as there may be workers"
        )
    return partitions, replicas


def _wait(client: AdminClient, settings: QueueSettings, clock: Clock) -> None:
    """Wait until the brokers tell of a markers topic that has just been made. Raises NotAllowed."""
    deadline = clock.monotonic() + TIMEOUT
    while not _shape(client, settings, settings.markers)[0] and clock.monotonic() < deadline:
        _refuse_hidden(client, settings, settings.markers, "Write")
        clock.sleep(LOOK)


def _check(client: AdminClient, settings: QueueSettings, partitions: int) -> None:
    found, _ = _shape(client, settings, settings.markers)
    if found != partitions:
        raise QueueMismatch(
            f"markers topic {settings.markers!r} has {found} partitions and {settings.topic!r} has "
            f"{partitions}; they must have as many. Where partitions were added to the messages, "
            f"add as many to the markers (kafka-topics.sh --alter --partitions {partitions})"
        )
    topic = _CONFIGS.ConfigResource(_CONFIGS.ConfigResource.Type.TOPIC, settings.markers)
    (asked,) = client.describe_configs([topic], request_timeout=TIMEOUT).values()
    time = asked.result(TIMEOUT)[TIME].value
    if time != APPENDED:
        raise QueueMismatch(
            f"markers topic {settings.markers!r} has {TIME}={time}; set it to {APPENDED}, else the "
            "clocks of workers would decide when a message comes back"
        )


def _check_dead_letters(client: AdminClient, settings: QueueSettings, partitions: int) -> None:
    found, _ = _shape(client, settings, settings.dead_letter)
    if 0 < found < partitions:  # none while the brokers do not tell yet of one just made
        raise QueueMismatch(
            f"dead-letter topic {settings.dead_letter!r} has {found} partitions and "
            f"{settings.topic!r} has {partitions}; it must have at least as many: add some "
            f"(kafka-topics.sh --alter --partitions {partitions})"
        )


def _refuse_hidden(client: AdminClient, settings: QueueSettings, topic: str, right: str) -> None:
    """Raise NotAllowed for a topic that this user may not even see."""
    error = _found(client, settings, topic).error
    if error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        raise NotAllowed(f"topic {topic!r} at {_where(settings)}: grant {right} on it")


def _shape(client: AdminClient, settings: QueueSettings, topic: str) -> tuple[int, int]:
    """Return the partitions of a topic, 0 if there is none, and the replicas of each."""
    found = _found(client, settings, topic)
    if found.error is not None or not found.partitions:
        return 0, 0
    return len(found.partitions), len(found.partitions[0].replicas)


def _found(client: AdminClient, settings: QueueSettings, topic: str) -> Any:
    """Return what the brokers tell of a topic. Raises BrokerUnreachable."""
    try:
        try:
            return client.list_topics(topic, timeout=SOON).topics[topic]
        except KafkaException as error:
            if error.args[0].code() not in SILENT:
                raise
        where = _where(settings)
        log.warning("no broker answers at %s yet; asking for %.0f s more", where, TIMEOUT)
        return client.list_topics(topic, timeout=TIMEOUT).topics[topic]
    except KafkaException as error:
        diagnose(settings.client)
        raise BrokerUnreachable(_where(settings)) from error


def _make(client: AdminClient, settings: QueueSettings, topic: NewTopic) -> None:
    """Make a topic unless there is one."""
    if _shape(client, settings, topic.topic)[0]:
        return
    (made,) = client.create_topics([topic], request_timeout=TIMEOUT).values()
    try:
        made.result(TIMEOUT)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise QueueMismatch(
                f"topic {topic.topic!r} cannot be made: {error.args[0].str()}; make it yourself, "
                f"with {topic.num_partitions} partitions"
            ) from error


def _where(settings: QueueSettings) -> str:
    return str(settings.client.get("bootstrap.servers"))
