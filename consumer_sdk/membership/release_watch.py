"""Watches for the release of promised partitions, which this member then reads without another round.

A cooperative move takes two rounds (KIP-429): revoke, then assign. An owner that gives a partition up commits
it a last time, with the token of the round that took it away (`build_final_commit`). With
`trimtab.start.at.release` the member that this round promised the partition begins at that commit. The rules:

1. A commit with the round's token tells that the owner has stopped. The leader allows this where one member
   claimed the partition (`AssignmentUserData.starts_at_release`): a second one may still read it.
2. A member begins only before it joins the next round. In that join it claims what it has begun, so that
   nobody else gets it. From the join on it waits for the round.
3. Its commits of these partitions wait until the round has ended, at most `CONFIRMATION_TIMEOUT_S`: the owner
   repeats a last commit without an answer, which would rewind the offset. After the round the broker refuses
   that commit. `close` waits, too.
4. A due join waits `JOIN_DELAY_S` for releases: an owner joins right after its release.
"""

from collections.abc import Iterable
from typing import Any, Final

from kafka.errors import KafkaError

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.membership import coordinator

FIRST_LOOK_S: Final = 0.004  # after the round; a revocation takes no less
LOOK_INTERVAL_GROWTH: Final = 1.3
MAX_LOOK_INTERVAL_S: Final = 0.05  # while an owner's flush lasts
JOIN_DELAY_S: Final = 0.03
LOOK_TIMEOUT_S: Final = 0.5
CONFIRMATION_TIMEOUT_S: Final = 6.0  # longer than an owner repeats its last commit


class ReleaseWatch:
    """Partitions that a round has promised this member, and those of them that it has begun."""

    def __init__(self, promised: Iterable[TopicPartition], generation: int, token: str, now: float) -> None:
        self.promised = frozenset(promised)
        self._generation = generation
        self._token = token
        self._begun: frozenset[TopicPartition] = frozenset()
        self._begun_at = now
        self._join_due_at: float | None = None
        self._interval = FIRST_LOOK_S
        self._next_look_at = now + FIRST_LOOK_S

    def begin_released(self, client: Any, now: float) -> frozenset[TopicPartition]:
        """Claim and return the promised partitions that have been released, if it is time to look."""
        if not self.promised or now < self._next_look_at:
            return frozenset()
        self._interval = min(self._interval * LOOK_INTERVAL_GROWTH, MAX_LOOK_INTERVAL_S)
        self._next_look_at = now + self._interval
        try:
            released = coordinator.find_released(client, self.promised, self._token, LOOK_TIMEOUT_S)
        except KafkaError:  # without the coordinator no round ends either
            return frozenset()
        if not released or not coordinator.claim_partitions(client, released, self._generation):
            return frozenset()
        self.promised -= released
        self._begun, self._begun_at = self._begun | released, now
        return released

    def delays_join(self, now: float, *, is_due: bool) -> bool:
        """Return whether a join that is due waits for releases (rule 4)."""
        if not is_due or not self.promised:
            return False
        if self._join_due_at is None:
            self._join_due_at = now
        return now - self._join_due_at < JOIN_DELAY_S

    def wait(self, now: float) -> float:
        """Return the seconds until the next look."""
        return max(0.0, self._next_look_at - now)

    def is_unconfirmed(self, now: float, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Return whether commits of these partitions, or of any, have to wait (rule 3)."""
        begun = self._begun if partitions is None else self._begun.intersection(partitions)
        return bool(begun) and now - self._begun_at < CONFIRMATION_TIMEOUT_S
