"""A queue's settings: those of a consumer, and `trimtab.queue.*`; checked before anything connects.

Workers and trackers of a queue are given the same ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection
from trimtab.common.kmq_offset_metadata import markers_of, trackers_of
from trimtab.common.units import parse_seconds
from trimtab.consumer_sdk.consumer.settings import nearest, parse

TIMEOUT: Final = "trimtab.queue.timeout"
MOST: Final = "trimtab.queue.max.deliveries"
MARKERS: Final = "trimtab.queue.markers"
DEAD_LETTER: Final = "trimtab.queue.dead.letter"
GUARANTEE: Final = "trimtab.queue.guarantee"
OWN: Final = frozenset({TIMEOUT, MOST, MARKERS, DEAD_LETTER, GUARANTEE})
_GUARANTEES: Final = ("at-least-once", "at-most-once")


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """A checked configuration of the queue of one group on one topic; `timeout` is seconds.

    `consumer` goes to the consumer, `client` to producers and admin clients.
    """

    topic: str
    group: str
    timeout: float
    max_deliveries: int
    markers: str
    dead_letter: str
    at_most_once: bool
    consumer: Mapping[str, Any]
    client: Mapping[str, Any]

    def __repr__(self) -> str:
        """Show no secret: the dictionaries stay out."""
        return f"QueueSettings({self.topic!r}, {self.group!r})"

    @property
    def bootstrap(self) -> str:
        """Address of the brokers."""
        return str(self.client.get("bootstrap.servers"))

    @property
    def trackers(self) -> str:
        """Name of the group that the queue's trackers form."""
        return trackers_of(self.group)


def settings(topic: str, config: Mapping[str, Any]) -> QueueSettings:
    """Check a configuration, all of it. Raises SettingError."""
    if not topic or topic.startswith("^"):
        raise SettingError(f"a queue is on one topic, {topic!r} is none; write its name")
    own = {name: value for name, value in config.items() if name.startswith("trimtab.queue.")}
    for name in own.keys() - OWN:
        raise SettingError(f"{name!r} is not a setting of a queue{nearest(name, OWN)}")
    consumer = {name: value for name, value in config.items() if name not in own}
    consumer = {"auto.offset.reset": "earliest", **consumer, "enable.auto.commit": False}
    checked = parse(consumer)
    group = checked.group
    if topic.endswith(f".{group}.markers"):
        raise SettingError(
            f"{topic!r} is the markers topic of a queue of group {group!r}; name the queue's topic"
        )
    markers = _another(MARKERS, own.get(MARKERS, markers_of(topic, group)), topic)
    dead_letter = _another(DEAD_LETTER, own.get(DEAD_LETTER, f"{topic}.{group}.dead"), topic)
    if dead_letter == markers:
        raise SettingError(
            f"{DEAD_LETTER}: {markers!r} is the markers topic, whose old records are deleted; "
            "name another"
        )
    return QueueSettings(
        topic=topic,
        group=group,
        timeout=_timeout(own.get(TIMEOUT, "30 s")),
        max_deliveries=_count(own.get(MOST, 5)),
        markers=markers,
        dead_letter=dead_letter,
        at_most_once=_guarantee(own.get(GUARANTEE, _GUARANTEES[0])) == _GUARANTEES[1],
        consumer=consumer,
        client=connection.of(checked.data),
    )


def _another(name: str, value: Any, topic: str) -> str:
    none = value == "" and name == DEAD_LETTER  # a share group may do without
    if not none and (not isinstance(value, str) or not value.strip()):
        raise SettingError(f"{name}: {value!r} is no name of a topic; leave it out, or name one")
    if value == topic:
        raise SettingError(f"{name}: {topic!r} is the topic of the messages; name another")
    return str(value)


def _timeout(value: Any) -> float:
    seconds = parse_seconds(value, TIMEOUT)
    if seconds <= 0:
        raise SettingError(f"{TIMEOUT} must be above 0")
    return seconds


def _count(value: Any) -> int:
    if not str(value).isdecimal() or int(value) < 1:
        raise SettingError(f"{MOST}: {value!r} must be a whole number from 1 on")
    return int(value)


def _guarantee(value: Any) -> str:
    if value not in _GUARANTEES:
        raise SettingError(f"{GUARANTEE}: {value!r}; write {' or '.join(_GUARANTEES)}")
    return str(value)
