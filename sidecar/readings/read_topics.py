"""Remembers which topics a group reads, by who owns their partitions. No I/O.

1. A topic is read while a member owns one of its partitions, and `TOPIC_GRACE_PERIOD_S` beyond: a rebalance
   leaves topics without an owner for seconds, and their load must not vanish meanwhile.
2. While no member owns anything, nothing is forgotten: all consumers have stopped, or the brokers are away.
3. Committed offsets do not show what is read: a group keeps those of topics that it has left.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

TOPIC_GRACE_PERIOD_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ReadTopics:
    """Topics that have had an owner, each with the time of its last one, monotonic in seconds."""

    owned_at: Mapping[str, float] = field(default_factory=dict[str, float])
    observed_at: float = -inf  # when any topic last had an owner

    def add_owned(self, topics: Iterable[str], now: float) -> "ReadTopics":
        """Return the topics read now, when these have owners."""
        owned = dict.fromkeys(topics, now)
        if not owned:
            return self
        # After a pause the members return one by one, so the grace of the others begins only now.
        is_pause = now - self.observed_at > TOPIC_GRACE_PERIOD_S
        before = dict.fromkeys(self.owned_at, now) if is_pause else self.owned_at
        recent = {topic: at for topic, at in before.items() if now - at <= TOPIC_GRACE_PERIOD_S}
        return ReadTopics({**recent, **owned}, now)
