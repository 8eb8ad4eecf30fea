"""Warnings of subscribed topics that do not exist: at once, and every minute for as long as they do not."""

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer as DataConsumer

from trimtab.common.kafka_security import client_config
from trimtab.common.suggestions import suggest_name

log = logging.getLogger("trimtab.consumer_sdk")

MISSING_TOPIC_WARNING_INTERVAL_S: Final = 60.0
TOPIC_LIST_TIMEOUT_S: Final = 2.0  # the member waits for it
_INTERNAL_PREFIX: Final = "__"


class MissingTopics:
    """Decides when to warn of which topic; asks once per topic for those with near names."""

    def __init__(self, bootstrap: str, list_topics: Callable[[], Iterable[str]]) -> None:
        self._bootstrap = bootstrap
        self._list_topics = list_topics
        self._hints: dict[str, str] = {}
        self._warned_at: dict[str, float] = {}

    def describe_due(self, missing: Collection[str], now: float) -> list[str]:
        """Return the warnings that are due at `now`; topics that exist again are forgotten."""
        latest = now - MISSING_TOPIC_WARNING_INTERVAL_S
        recent = {topic: at for topic, at in self._warned_at.items() if topic in missing and at > latest}
        due = sorted(set(missing) - recent.keys())
        self._warned_at = recent | dict.fromkeys(due, now)
        return [warning for topic in due if (warning := self._describe(topic))]

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
