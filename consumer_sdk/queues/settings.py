"""Queue settings: the consumer's and `trimtab.queue.*`, validated before any connection is made.

Workers and redelivery trackers of a queue use the same settings.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import client_config
from trimtab.common.kmq_offset_metadata import markers_topic, tracker_group
from trimtab.common.settings.settings_model import Duration, Parsed, SettingsModel, setting, validate_settings
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.errors import UnsupportedByProtocolError, UnsupportedQueueOperationError

log = logging.getLogger("trimtab.queues")

QUEUE_PREFIX: Final = "trimtab.queue."


def _parse_topic_name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{value!r} is no name of a topic; name one or omit the setting")
    return value


def _parse_dead_letter(value: Any) -> str:
    # An empty name switches a share group's dead letters off; the other kinds refuse it later.
    return "" if value == "" else _parse_topic_name(value)


class QueueOptions(SettingsModel, owner="a queue", prefix=QUEUE_PREFIX, separator="."):
    """Settings that only queues have, under the names that people write."""

    timeout: Duration = setting(
        "Time after which a message that is not settled is redelivered. `share`: if given, set as "
        "the group's `share.record.lock.duration.ms`. Not used by `ordered`.",
        default=30.0,
    )
    max_deliveries: int = setting(
        "Deliveries after which a message is dead-lettered. `share`: if given, set as the group's "
        "`share.delivery.count.limit`.",
        default=5,
    )
    markers: Annotated[str | None, Parsed(_parse_topic_name)] = setting(
        "Markers topic of `kmq`.", default=None, default_text="`TOPIC.GROUP.markers`"
    )
    dead_letter: Annotated[str | None, Parsed(_parse_dead_letter)] = setting(
        "Dead-letter topic. `share`: see [there](#share).", default=None, default_text="`TOPIC.GROUP.dead`"
    )
    guarantee: Literal["at-least-once", "at-most-once"] = setting(
        "Delivery guarantee; `ordered` also has `at-most-once`, which the other kinds refuse.",
        default="at-least-once",
        example="at-least-once or at-most-once",
    )

    def find_problems(self, given: Collection[str]) -> Iterable[str]:
        """Yield values out of range."""
        del given
        if self.timeout <= 0:
            yield f"{TIMEOUT_SETTING} must be above 0"
        if self.max_deliveries < 1:
            yield f"{MAX_DELIVERIES_SETTING} must be a whole number of at least 1"


TIMEOUT_SETTING: Final = QueueOptions.get_setting_name("timeout")
MAX_DELIVERIES_SETTING: Final = QueueOptions.get_setting_name("max_deliveries")
MARKERS_SETTING: Final = QueueOptions.get_setting_name("markers")
DEAD_LETTER_SETTING: Final = QueueOptions.get_setting_name("dead_letter")
GUARANTEE_SETTING: Final = QueueOptions.get_setting_name("guarantee")
UNUSED_SETTINGS: Final[Mapping[str, frozenset[str]]] = MappingProxyType({
    "ordered": frozenset({TIMEOUT_SETTING, MARKERS_SETTING}),
    "share": frozenset({MARKERS_SETTING}),
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Validated settings of one group's queue on one topic."""

    topic: str
    group: str
    timeout: float  # in seconds
    max_deliveries: int
    markers_topic: str
    dead_letter_topic: str
    at_most_once: bool
    broker_assigned: bool  # group.protocol=consumer
    instance: str  # client.id, or a name made up for this process
    telemetry: bool
    consumer_config: Mapping[str, Any]
    client_config: Mapping[str, Any]  # of producers and admin clients

    def __repr__(self) -> str:
        """Leave out the dictionaries, which contain secrets."""
        return f"QueueSettings({self.topic!r}, {self.group!r})"

    @property
    def bootstrap(self) -> str:
        """Address of the brokers."""
        return str(self.client_config.get("bootstrap.servers"))

    @property
    def tracker_group(self) -> str:
        """Consumer group of the queue's redelivery trackers."""
        return tracker_group(self.group)

    @property
    def marker_key(self) -> bytes:
        """Key of the queue's markers; the names of topics have no slash."""
        return f"{self.topic}/{self.group}".encode()


def parse_queue_settings(topic: str, config: Mapping[str, Any]) -> QueueSettings:
    """Validate a queue's configuration. Raises SettingError."""
    if not topic or topic.startswith("^"):
        raise SettingError(f"{topic!r} is not the name of a topic; a queue needs exactly one")
    own = {name: value for name, value in config.items() if name.startswith(QUEUE_PREFIX)}
    options = validate_settings(QueueOptions, own)
    rest = {name: value for name, value in config.items() if name not in own}
    # "latest" would skip the messages that wait when the group starts.
    consumer = {"auto.offset.reset": "earliest", **rest, "enable.auto.commit": False}
    checked = parse_consumer_settings(consumer)
    group = checked.group
    markers = options.markers or markers_topic(topic, group)
    dead_letter = dead_letter_topic(topic, group) if options.dead_letter is None else options.dead_letter
    _check_topics(topic, group, markers, dead_letter)
    return QueueSettings(
        topic=topic,
        group=group,
        timeout=options.timeout,
        max_deliveries=options.max_deliveries,
        markers_topic=markers,
        dead_letter_topic=dead_letter,
        at_most_once=options.guarantee == "at-most-once",
        broker_assigned=checked.joining_config is not None,
        instance=checked.instance,
        telemetry=checked.telemetry,
        consumer_config=consumer,
        client_config=client_config.extract_connection_settings(checked.librdkafka_config),
    )


def dead_letter_topic(topic: str, group: str) -> str:
    """Return the default name of the dead-letter topic."""
    return f"{topic}.{group}.dead"


def check_kind(kind: str, settings: QueueSettings, given: Collection[str] = ()) -> None:
    """Refuse a guarantee that a kind of queue lacks, and log the given settings that it does not use.

    Raises UnsupportedQueueOperationError, and UnsupportedByProtocolError for a share group with another
    protocol.
    """
    if settings.broker_assigned and kind == "share":
        raise UnsupportedByProtocolError(
            "group.protocol=consumer (KIP-848): a queue of kind 'share' has a protocol of its own, KIP-932; "
            "leave it out"
        )
    if settings.at_most_once and kind != "ordered":
        raise UnsupportedQueueOperationError(
            f"{GUARANTEE_SETTING}=at-most-once: a queue of kind {kind!r} redelivers messages, which is "
            "at-least-once; use 'ordered' or omit the setting"
        )
    for name in sorted(UNUSED_SETTINGS.get(kind, frozenset()).intersection(given)):
        log.warning("%s has no effect on a queue of kind %r", name, kind)


def _check_topics(topic: str, group: str, markers: str, dead_letter: str) -> None:
    if topic.endswith(f".{group}.markers"):
        raise SettingError(
            f"{topic!r} is the markers topic of a queue of group {group!r}; name the queue's topic"
        )
    for name, value in ((MARKERS_SETTING, markers), (DEAD_LETTER_SETTING, dead_letter)):
        if value == topic:
            raise SettingError(f"{name}: {topic!r} is the topic of the messages; name another")
    if dead_letter == markers:
        raise SettingError(
            f"{DEAD_LETTER_SETTING}: {markers!r} is the markers topic, whose records are deleted; "
            "name another topic"
        )
