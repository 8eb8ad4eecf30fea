"""Whether the pilots of a group ask its broker for the plugin. Pure.

1. Kafka takes the assignor that most members name, among those that name one, else the brokers' first.
   It keeps the vote of a member that joins again and names none. So pilots name the plugin only with
   `protocol: consumer`, and while the group has another assignor.
2. Where as many members name another one, Kafka 4 computes two winners, and starts an assignment at each
   heartbeat of any member. Only a member that leaves takes its vote back: the pilots do so, join again
   without one, and ask no more until the sidecar restarts.
"""

from math import inf
from typing import Final

TIE_EPOCHS: Final = 6  # that rise without a cause; a pilot raises three by itself
TIE_PAUSE_S: Final = 5.0  # between two of them: Kafka 4.4 assigns once a second


class AssignorVote:
    """The vote of all pilots of one group."""

    def __init__(self, *, is_allowed: bool) -> None:
        self.is_cast = False
        self.is_taken_back = False
        self._is_allowed = is_allowed
        self._rises = 0
        self._last_rise_at = -inf

    def is_missing(self, *, has_plugin: bool) -> bool:
        """Return whether the pilots should vote; `has_plugin` tells whether the group has the plugin."""
        return self._is_allowed and not (self.is_cast or self.is_taken_back or has_plugin)

    def record_cause(self) -> None:
        """Record a change that raises the epoch by itself: other members, another target, a further join."""
        self._rises = 0

    def is_tied(self, now: float) -> bool:
        """Record a risen epoch; return whether the vote is to be taken back."""
        self._rises = 1 if now - self._last_rise_at > TIE_PAUSE_S else self._rises + 1
        self._last_rise_at = now
        return self._rises >= TIE_EPOCHS and not self.is_taken_back
