"""Queue settings: the consumer's and `trimtab.queue.*`, validated before any connection is made.

Workers and redelivery trackers of a queue use the same settings.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection
from trimtab.common.kmq_offset_metadata import markers_topic, tracker_group
from trimtab.common.suggestions import suggest_name
from trimtab.common.units import parse_seconds
from trimtab.consumer_sdk.consumer.settings import parse_consumer_settings

TIMEOUT_SETTING: Final = "trimtab.queue.timeout"
MAX_DELIVERIES_SETTING: Final = "trimtab.queue.max.deliveries"
MARKERS_SETTING: Final = "trimtab.queue.markers"
DEAD_LETTER_SETTING: Final = "trimtab.queue.dead.letter"
GUARANTEE_SETTING: Final = "trimtab.queue.guarantee"
QUEUE_SETTINGS: Final = frozenset(
    {
        TIMEOUT_SETTING,
        MAX_DELIVERIES_SETTING,
        MARKERS_SETTING,
        DEAD_LETTER_SETTING,
        GUARANTEE_SETTING,
    }
)
_DELIVERY_GUARANTEES: Final = ("at-least-once", "at-most-once")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """Validated settings of one group's queue on one topic; `timeout` is in seconds.

    `consumer_config` goes to the consumer, `client_config` to producers and admin clients.
    """

    topic: str
    group: str
    timeout: float
    max_deliveries: int
    markers_topic: str
    dead_letter_topic: str
    at_most_once: bool
    consumer_config: Mapping[str, Any]
    client_config: Mapping[str, Any]

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


def parse_queue_settings(topic: str, config: Mapping[str, Any]) -> QueueSettings:
    """Validate a queue's configuration. Raises SettingError."""
    if not topic or topic.startswith("^"):
        raise SettingError(f"{topic!r} is not the name of a topic; a queue needs exactly one")
    own = {name: value for name, value in config.items() if name.startswith("trimtab.queue.")}
    for name in own.keys() - QUEUE_SETTINGS:
        raise SettingError(f"{name!r} is not a queue setting{suggest_name(name, QUEUE_SETTINGS)}")
    consumer = {name: value for name, value in config.items() if name not in own}
    # "latest" would skip the messages that wait when the group starts.
    consumer = {"auto.offset.reset": "earliest", **consumer, "enable.auto.commit": False}
    checked = parse_consumer_settings(consumer)
    group = checked.group
    if topic.endswith(f".{group}.markers"):
        raise SettingError(
            f"{topic!r} is the markers topic of a queue of group {group!r}; name the queue's topic"
        )
    markers = _parse_topic_name(
        MARKERS_SETTING, own.get(MARKERS_SETTING, markers_topic(topic, group)), topic
    )
    dead_letter = _parse_topic_name(
        DEAD_LETTER_SETTING, own.get(DEAD_LETTER_SETTING, f"{topic}.{group}.dead"), topic
    )
    if dead_letter == markers:
        raise SettingError(
            f"{DEAD_LETTER_SETTING}: {markers!r} is the markers topic, whose records are deleted; "
            "name another topic"
        )
    return QueueSettings(
        topic=topic,
        group=group,
        timeout=_parse_timeout(own.get(TIMEOUT_SETTING, "30 s")),
        max_deliveries=_parse_max_deliveries(own.get(MAX_DELIVERIES_SETTING, 5)),
        markers_topic=markers,
        dead_letter_topic=dead_letter,
        at_most_once=_parse_guarantee(own.get(GUARANTEE_SETTING, _DELIVERY_GUARANTEES[0]))
        == _DELIVERY_GUARANTEES[1],
        consumer_config=consumer,
        client_config=connection.extract_connection_settings(checked.librdkafka_config),
    )


def _parse_topic_name(name: str, value: Any, topic: str) -> str:
    # An empty name switches a share group's dead letters off; the other kinds refuse it later.
    is_off = value == "" and name == DEAD_LETTER_SETTING
    if not is_off and (not isinstance(value, str) or not value.strip()):
        raise SettingError(f"{name}: {value!r} is no name of a topic; name one or omit the setting")
    if value == topic:
        raise SettingError(f"{name}: {topic!r} is the topic of the messages; name another")
    return str(value)


def _parse_timeout(value: Any) -> float:
    seconds = parse_seconds(value, TIMEOUT_SETTING)
    if seconds <= 0:
        raise SettingError(f"{TIMEOUT_SETTING} must be above 0")
    return seconds


def _parse_max_deliveries(value: Any) -> int:
    if not str(value).isdecimal() or int(value) < 1:
        raise SettingError(
            f"{MAX_DELIVERIES_SETTING}: {value!r} must be a whole number of at least 1"
        )
    return int(value)


def _parse_guarantee(value: Any) -> str:
    if value not in _DELIVERY_GUARANTEES:
        raise SettingError(
            f"{GUARANTEE_SETTING}: {value!r}; write {' or '.join(_DELIVERY_GUARANTEES)}"
        )
    return str(value)
