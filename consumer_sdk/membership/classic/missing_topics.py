"""Warnings of subscribed topics that do not exist: one for each time that one is missing."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer as DataConsumer

from trimtab.common.errors import suggest_name
from trimtab.common.kafka_security import client_config

log = logging.getLogger("trimtab.consumer_sdk")

TOPIC_LIST_TIMEOUT_S: Final = 2.0  # the member waits for it
_INTERNAL_PREFIX: Final = "__"


class MissingTopics:
    """Decides when to warn of which topic; asks once per topic for those with near names."""

    def __init__(self, bootstrap: str, list_topics: Callable[[], Iterable[str]]) -> None:
        self._bootstrap = bootstrap
        self._list_topics = list_topics
        self._hints: dict[str, str] = {}
        self._warned: set[str] = set()

    def describe_new(self, missing: Collection[str]) -> list[str]:
        """Return the warnings that were not returned yet; topics that exist again are forgotten."""
        self._warned.intersection_update(missing)
        new = {topic: self._describe(topic) for topic in sorted(set(missing) - self._warned)}
        self._warned.update(topic for topic, warning in new.items() if warning)
        return [warning for warning in new.values() if warning]

    def _describe(self, topic: str) -> str | None:
        if topic not in self._hints:
            names = [name for name in self._list_topics() if not name.startswith(_INTERNAL_PREFIX)]
            if topic in names:  # created since the member looked
                return None
            self._hints[topic] = suggest_name(topic, names)
        return f"topic {topic!r} does not exist at {self._bootstrap}{self._hints[topic]}; waiting for it"


def list_topic_names(config: Mapping[str, Any]) -> list[str]:
    """Return the topics that the user may describe; none if no broker tells them in time."""
    try:
        own = {"group.id": config["group.id"], "log_level": 0}
        consumer = DataConsumer({**client_config.extract_connection_settings(config), **own})
        try:
            return list(consumer.list_topics(timeout=TOPIC_LIST_TIMEOUT_S).topics)
        finally:
            consumer.close()
    except Exception as error:  # noqa: BLE001 - a token callback may raise anything
        log.debug("the topics cannot be listed: %s", error)
        return []
