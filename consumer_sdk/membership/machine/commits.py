"""Commits of a member that are not sent yet, and whether a release may be confirmed.

Rules 15 to 18 of a classic member:

15. A commit is sent in a stable generation only, and carries it: the owner is checked just before. During a
    join it fails with REBALANCE_IN_PROGRESS, outside the group with UNKNOWN_MEMBER_ID.
16. Commits of partitions that a round has not confirmed wait for its end, in order, and all later ones.
17. A commit that failed may yet take effect: until the generation ends, no release is confirmed.
18. A refused partition does not fail the others of a commit.
"""

from collections.abc import Mapping
from math import inf
from typing import Any, Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.machine.topics import TOPIC_DENIED
from trimtab.consumer_sdk.membership.machine.values import Commit

MAX_CONFIRMED_RELEASE_S: Final = 2.0  # the next owner waits three times as long
# of single partitions: unknown topic, metadata or request too large, topic denied
REFUSALS: Final = frozenset({3, 12, 28, TOPIC_DENIED})


class CommitQueue:
    """Commits in order; the member sends them."""

    def __init__(self) -> None:
        self.waiting: list[Commit] = []
        self._doubtful_generation = -1
        self._confirm_by = -inf

    def confirm(
        self, last: Mapping[TopicPartition, CommitPosition], epoch: int, now: float, began_at: float
    ) -> bool:
        """Add the confirmation of a release; return whether it is in time."""
        self._confirm_by = began_at + MAX_CONFIRMED_RELEASE_S
        if now >= self._confirm_by:
            return False
        self.waiting.append(Commit(dict(last), epoch, lambda: True, is_confirmation=True))
        return True

    def doubt(self, generation: int) -> None:
        """Record a commit of this generation that failed (rule 17)."""
        self._doubtful_generation = generation

    def is_certain(self, generation: int) -> bool:
        """Return whether none waits, and each of this generation has succeeded."""
        return not self.waiting and self._doubtful_generation != generation

    def is_in_time(self, now: float) -> bool:
        """Return whether the answer to a confirmation still counts."""
        return now < self._confirm_by


def read_commit_codes(response: Any) -> tuple[int, dict[TopicPartition, int]]:
    """Return the code that fails a whole commit, or 0, and the refused partitions (rule 18)."""
    codes = {
        TopicPartition(topic.name, row.partition_index): row.error_code
        for topic in response.topics
        for row in topic.partitions
    }
    refused = {partition: code for partition, code in codes.items() if code in REFUSALS}
    return next((code for code in codes.values() if code and code not in REFUSALS), 0), refused
