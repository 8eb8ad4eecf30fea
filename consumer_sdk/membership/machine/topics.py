"""The topics of a member, and those that a leader watches, by the brokers' metadata."""

from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final

TOPIC_DENIED: Final = 29
MISSING_TOPIC_INTERVAL_S: Final = 1.0


class MemberTopics:
    """Subscribed and watched topics with their partitions; `is_due` says when to ask for metadata."""

    def __init__(self, max_age: float) -> None:
        self.subscribed: frozenset[str] = frozenset()
        self.partitions: dict[str, dict[int, Any]] = {}  # metadata by topic and number
        self.racks: dict[int, str | None] = {}  # by broker
        self.due_at = -inf
        self.is_known = False  # whether metadata has come since the subscription
        self._max_age = max_age
        self._matches: Callable[[str], bool] | None = None
        self._watched: frozenset[str] = frozenset()
        self._led_on: Mapping[str, frozenset[int]] | None = None
        self._joined: frozenset[str] | None = None

    def subscribe(self, topics: Iterable[str], matches: Callable[[str], bool] | None, now: float) -> None:
        """Change the topics; `matches` selects more of them by name."""
        self.subscribed, self._matches = frozenset(topics), matches
        self.due_at, self.is_known = now, False

    def list_wanted(self, now: float) -> list[dict[str, str]] | None:
        """Return the topics to ask for, None for all; the next metadata is due later."""
        self.due_at = now + self._max_age
        return None if self._matches else [{"name": t} for t in sorted(self.subscribed | self._watched)]

    def read(self, response: Any, now: float) -> frozenset[str]:
        """Take metadata; return the subscribed topics that are denied, after which nothing has changed."""
        found = {topic.name: topic for topic in response.topics}
        if self._matches is not None:
            matches = self._matches
            self.subscribed = frozenset(n for n, t in found.items() if not t.is_internal and matches(n))
        denied = {name for name, topic in found.items() if topic.error_code == TOPIC_DENIED}
        if own := self.subscribed & denied:
            return own
        self.racks = {broker.node_id: broker.rack for broker in response.brokers}
        self.partitions = {
            name: {p.partition_index: p for p in topic.partitions}
            for name, topic in found.items()
            if topic.partitions
        }
        self.is_known = True
        if self.list_missing():
            self.due_at = min(self.due_at, now + MISSING_TOPIC_INTERVAL_S)
        return frozenset()

    def list_missing(self) -> frozenset[str]:
        """Return the subscribed topics without partitions."""
        return self.subscribed - self.partitions.keys()

    def record_join(self) -> None:
        """Record the topics of a JoinGroup; who leads is open again."""
        self._joined, self._led_on, self._watched = self.subscribed, None, frozenset()

    def watch(self, topics: Iterable[str], now: float) -> None:
        """Watch the topics of all members, as their leader, from now on."""
        self._watched = frozenset(topics)
        self._led_on = self._list_numbers()
        self.due_at = min(self.due_at, now)

    def require_join(self) -> bool:
        """Return whether the member's topics, or the partitions that it led on, have changed."""
        is_new = self._joined is not None and self._joined != self.subscribed
        return is_new or (self._led_on is not None and self._led_on != self._list_numbers())

    def _list_numbers(self) -> dict[str, frozenset[int]]:
        return {topic: frozenset(self.partitions.get(topic, ())) for topic in self._watched}
