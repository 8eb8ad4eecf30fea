"""Watches for the release of promised partitions, which this member then reads without another round.

A cooperative move takes two rounds (KIP-429): revoke, then assign. An owner that gives a partition up commits
it a last time, with the token of the round that took it away (`build_final_commit`). With
`trimtab.start.at.release` the member that this round promised the partition begins at that commit. The rules:

1. A commit with the round's token tells that the owner has stopped. The leader allows this where one member
   claimed the partition (`AssignmentUserData.starts_at_release`): a second one may still read it.
2. A member begins only before it joins the next round. In that join it claims what it has begun, so that
   nobody else gets it. From the join on it waits for the round.
3. Its commits of these partitions wait until no commit of the owner can follow, at most
   `CONFIRMATION_TIMEOUT_S`: the owner repeats a last commit without an answer, which would rewind the offset.
   The next round ends that, since the broker then refuses the owner's commit; or the owner's confirmation
   does (rule 6). `close` waits, too.
4. A due join waits `JOIN_DELAY_S` for releases: an owner joins right after its release.

A round whose releases are all confirmed is the only one of its moves (`AssignmentUserData.is_only_round`):

5. The leader allows it if all that give or get a partition know these rules, one member claims each
   partition, and whoever gives keeps or gets another one. A member that is left with nothing would look
   drained while it still flushes, and be stopped; if it is drained, its leave is the second round
   (`drained_leave`). Static members take no part: one that returns gets its last assignment again, with a
   promise whose release its own commits have replaced.
6. The owner confirms its last commit by one more, after the answer to the last one, if each commit request
   of this generation has been answered: TCP delivers a request once, so none of them can take effect later.
   The I/O thread sends the confirmation, once, while the application reads on. It counts only if its answer
   comes within `member.MAX_RELEASE_S` of the beginning of the last commit, long before the end of rule 3's
   wait. Whoever reads it therefore knows that nothing of the owner follows.
7. The owner joins again, as KIP-429 has it, unless it has the answer to a confirmation of all that it gave
   up. So a release that nobody can begin at (nothing read, nothing committed, a timeout, a transaction) has
   its second round, and an owner or a next owner that dies has that of its session's end. A round of another
   assignor always has its second one (`TimedAssignor.is_only_round_in`), and ends the watch.
8. The round's assignment lists a promised partition with its next owner: it is what the broker shows while
   no other round follows. Its member withholds it until the release (`withhold_promised`). The next join
   claims what has been begun, and not the rest, which the next leader then may assign at once.
9. A member that has seen no release for `max.poll.interval.ms` and `CONFIRMATION_TIMEOUT_S` requests a round.
   By then the owner has released the partition or has left, and the coordinator has lost the release, as a
   broker may that takes over without being in sync.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.assignor.topic_partition import TopicPartition

FIRST_LOOK_S: Final = 0.004  # after the round; a revocation takes no less
LOOK_INTERVAL_GROWTH: Final = 1.3
MAX_LOOK_INTERVAL_S: Final = 0.05  # while an owner's flush lasts
JOIN_DELAY_S: Final = 0.03
LOOK_TIMEOUT_S: Final = 0.5
CONFIRMATION_TIMEOUT_S: Final = 6.0  # longer than an owner sends its last commit (LAST_COMMIT_TIMEOUT_S)


class ReleaseWatch:
    """Partitions that a round has promised this member, and those of them that it has begun."""

    def __init__(
        self,
        promised: Iterable[TopicPartition],
        generation: int,
        token: str,
        now: float,
        *,
        is_only_round: bool = False,
    ) -> None:
        self.promised = frozenset(promised)
        self.is_only_round = is_only_round
        self.generation = generation
        self.token = token
        self._begun: frozenset[TopicPartition] = frozenset()
        self._promised_at = self._begun_at = now
        self._join_due_at: float | None = None
        self._interval = FIRST_LOOK_S
        self._next_look_at = now + FIRST_LOOK_S

    def take_look(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions to look for, if it is time to; the next look is due later."""
        awaited = self.list_awaited(now)
        if not awaited or now < self._next_look_at:
            return frozenset()
        self._interval = min(self._interval * LOOK_INTERVAL_GROWTH, MAX_LOOK_INTERVAL_S)
        self._next_look_at = now + self._interval
        return awaited

    def record_look(
        self, found: Mapping[TopicPartition, bool], released: frozenset[TopicPartition], now: float
    ) -> None:
        """Record the claimed partitions among those found, which are true if their release is confirmed."""
        if released:
            self.promised -= released
            self._begun_at, self._interval = now, FIRST_LOOK_S  # a confirmation follows at once
        self._begun = (self._begun | released).difference(p for p, confirmed in found.items() if confirmed)

    def list_awaited(self, now: float) -> frozenset[TopicPartition]:
        """Return the partitions whose release, or its confirmation, is awaited."""
        return (
            self.promised | self._begun if self.is_only_round and self.is_unconfirmed(now) else self.promised
        )

    def overdue_at(self, max_poll_interval: float) -> float:
        """Return when a release counts as overdue (rule 9)."""
        return self._promised_at + max_poll_interval + CONFIRMATION_TIMEOUT_S

    def takes_second_round(self, now: float, max_poll_interval: float) -> bool:
        """Return, once, whether a release of an only round is overdue (rule 9)."""
        overdue = now > self.overdue_at(max_poll_interval)
        if not (self.is_only_round and self.promised and overdue):
            return False
        self.is_only_round = False
        return True

    def delays_join(self, now: float, *, is_due: bool) -> bool:
        """Return whether a join that is due waits for releases (rule 4)."""
        if not is_due or not self.promised:
            return False
        if self._join_due_at is None:
            self._join_due_at = now
        return now - self._join_due_at < JOIN_DELAY_S

    @property
    def joins_at(self) -> float:
        """Return when a join that was due must wait no longer (rule 4)."""
        return (self._join_due_at or 0.0) + JOIN_DELAY_S

    @property
    def confirmed_at(self) -> float:
        """Return when commits of begun partitions wait no longer (rule 3)."""
        return self._begun_at + CONFIRMATION_TIMEOUT_S

    def wait(self, now: float) -> float:
        """Return the seconds until the next look."""
        return max(0.0, self._next_look_at - now)

    def is_unconfirmed(self, now: float, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Return whether commits of these partitions, or of any, have to wait (rule 3)."""
        begun = self._begun if partitions is None else self._begun.intersection(partitions)
        return bool(begun) and now - self._begun_at < CONFIRMATION_TIMEOUT_S
