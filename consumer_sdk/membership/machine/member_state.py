"""State of a member of a classic group, and how a round, a release, a loss or an error changes it."""

from collections.abc import Callable, Mapping
from math import inf
from random import Random
from typing import Final, TypeAlias

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.errors import make_error
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.machine import values
from trimtab.consumer_sdk.membership.machine.commits import CommitQueue
from trimtab.consumer_sdk.membership.machine.coordinator_link import RETRY_PAUSE_S, CoordinatorLink
from trimtab.consumer_sdk.membership.machine.requests import Identity, RequestBuilder
from trimtab.consumer_sdk.membership.machine.rounds import NO_ROUND, read_round
from trimtab.consumer_sdk.membership.machine.timers import HeartbeatTimer, LeasePair
from trimtab.consumer_sdk.membership.machine.topics import MemberTopics
from trimtab.consumer_sdk.membership.machine.values import Commit, Partitions, Phase
from trimtab.consumer_sdk.membership.release_watch import ReleaseWatch

# from owned partitions, generation and topics
Describe: TypeAlias = Callable[[Partitions, int, frozenset[str]], values.Protocols]

UNKNOWN_ERROR_PAUSE_S: Final = 0.5
MAX_REASON: Final = 255

NOT_COORDINATOR: Final = frozenset({15, 16})
LATE: Final = 7  # REQUEST_TIMED_OUT
ILLEGAL_GENERATION: Final = 22
INCONSISTENT_PROTOCOL: Final = 23
UNKNOWN_MEMBER: Final = 25
REBALANCING: Final = 27
MEMBER_ID_REQUIRED: Final = 79
FENCED: Final = 82
UNKNOWN_ERROR: Final = -1


class MemberState:
    """Membership in one group, by the rules of `classic_member` and of the modules that it names."""

    def __init__(self, options: values.MemberOptions, describe: Describe, random: Random, now: float) -> None:
        """`describe` returns the subscriptions of a JoinGroup."""
        self.options = options
        self.phase = Phase.OUTSIDE
        self.member_id = ""
        self.generation = -1
        self.epoch = 0  # memberships lost so far
        self.owned: Partitions = frozenset()
        self.is_leader = False
        self.topics = MemberTopics(options.metadata_max_age)
        self.round = NO_ROUND  # the last one
        self._protocol = ""  # of the last join
        self.joined_at = self.assigned_at = -inf
        self._describe = describe
        self._events: list[values.MemberEvent] = []
        self._link = CoordinatorLink(random)
        self._build = RequestBuilder(options)
        self._commits = CommitQueue()
        self._assignments: Mapping[str, bytes] | None = None  # of a leader, to send
        self._releasing: Partitions = frozenset()
        self._added: Partitions = frozenset()  # reported after the release
        self._claimed_at_join = False
        self._is_wanted = self._rejoin_due = self._is_overdue = False
        self._join_sent_at = -inf
        self._heartbeats = HeartbeatTimer(options.heartbeat_interval)
        self._leases = LeasePair(options.session_timeout, options.rebalance_timeout)
        self._last_poll_at = now
        self._leave_reason: str | None = None

    def request_rejoin(self) -> None:
        """Join again, after the round that is under way."""
        self._rejoin_due = True

    @property
    def is_joining(self) -> bool:
        """Whether a join is under way."""
        return self.phase in (Phase.JOINING, Phase.LEADING, Phase.SYNCING)

    @property
    def watch(self) -> ReleaseWatch | None:
        """Watch for the releases of the last round."""
        return self.round.watch

    @property
    def _identity(self) -> Identity:
        return Identity(self.member_id, self.generation)

    def _end_round(self, data: bytes, now: float) -> None:
        """Follow the assignment (rules 12 and 13)."""
        self.phase = Phase.STABLE
        self.joined_at, self.assigned_at = self._join_sent_at, now
        self._leases.renew(self.joined_at, is_stable=True)
        is_ours = self._protocol == self.options.protocol
        watches = self.options.starts_at_release
        self.round = read_round(data, self.generation, now, is_ours=is_ours, watches=watches)
        self._heartbeats.restart(now, is_short=self.round.round_follows)
        assigned, fault = self.round.assigned, self.round.fault
        if any(p.topic not in self.topics.subscribed for p in assigned):
            fault, assigned = "topics that are not subscribed", self.owned
            self._rejoin_due, self._link.retry_at = True, now + RETRY_PAUSE_S
        self._events.append(
            values.RoundEnded(self.generation, self._protocol, assigned, self.round.user_data, fault)
        )
        revoked, self._added = self.owned - assigned, assigned - self.owned
        self.owned = assigned
        if revoked:
            self._revoke(revoked)
        else:
            self._report_added()

    def _revoke(self, partitions: Partitions) -> None:
        self.owned -= partitions
        self._releasing = partitions
        self._events.append(values.Revoked(partitions))

    def _report_added(self) -> None:
        added, self._added = self._added, frozenset[TopicPartition]()
        if added:
            self._events.append(values.Assigned(added, self.epoch))

    def _may_confirm(self, last: Mapping[TopicPartition, CommitPosition]) -> bool:
        is_last = self.phase is Phase.STABLE and self.round.is_only
        is_certain = self._commits.is_certain(self.generation) and not self._link.is_open(apis.OFFSET_COMMIT)
        return is_last and is_certain and self._leave_reason is None and self._releasing <= last.keys()

    def _end_release(self, *, is_confirmed: bool) -> None:
        self._releasing = frozenset()
        if not is_confirmed:
            self.request_rejoin()
        self._report_added()

    def _answer_commit(
        self, commit: Commit, code: int, refused: Mapping[TopicPartition, int], now: float
    ) -> None:
        if code or refused:
            self._commits.doubt(self.generation)
        if not commit.is_confirmation:
            self._events.append(values.CommitAnswered(commit, code, refused))
        elif self._releasing:
            is_good = not (code or refused) and commit.epoch == self.epoch and self._commits.is_in_time(now)
            self._end_release(is_confirmed=is_good)

    def _on_member_error(self, code: int, now: float, *, is_retried: bool = True) -> None:
        """Follow an error of a heartbeat, a commit or a sync of the current generation."""
        is_known = code == ILLEGAL_GENERATION and not self.options.is_static
        if code == REBALANCING or is_known:  # rule 4
            self.request_rejoin()
        elif code in (UNKNOWN_MEMBER, ILLEGAL_GENERATION):
            member_id = self.member_id if code == ILLEGAL_GENERATION else ""
            self._lose(now)
            self.member_id = member_id
        elif is_retried or code == FENCED or code in NOT_COORDINATOR:
            self._retry_or_end(code, now)

    def _retry_or_end(self, code: int, now: float) -> None:
        if code in NOT_COORDINATOR:
            self._lose_coordinator(now, make_error(code).args[0])
        elif code in (REBALANCING, UNKNOWN_ERROR) or make_error(code).retryable:
            pause = UNKNOWN_ERROR_PAUSE_S if code == UNKNOWN_ERROR else RETRY_PAUSE_S
            self._link.pause(now, pause)
        else:
            self._end(code, now)

    def _lose(self, now: float) -> None:
        """End the membership (rules 3 and 8)."""
        lost = (self.owned | self._releasing) - self._added
        self._leases.end(now)
        self.member_id, self.generation, self.is_leader = "", -1, False
        self.owned = self._releasing = self._added = frozenset()
        self._assignments, self.round = None, NO_ROUND
        self.epoch += 1
        if self.phase is not Phase.ENDED:
            self.phase = Phase.OUTSIDE
        if lost:
            self._events.append(values.Lost(lost, self.epoch))
        self.request_rejoin()

    def _end(self, code: int, now: float, topics: frozenset[str] = frozenset()) -> None:
        self.phase = Phase.ENDED
        self._lose(now)
        self._drop_open(now)
        self._events.append(values.Ended(code, topics))

    def _begin_leave(self, reason: str, now: float) -> None:
        self._leases.end(inf)  # before the request: once the group knows, others read
        if (
            not self.member_id
            or self.options.is_static
            or self.phase is Phase.ENDED
            or not self._link.is_known
        ):
            self._end_leave(now)
        elif self._leave_reason is None:
            self._leave_reason = reason[:MAX_REASON]
            if self.watch is not None:
                self.watch.promised = frozenset()

    def _end_leave(self, now: float) -> None:
        self._leave_reason = None
        is_lost = self.generation >= 0 or bool(self.owned)
        if is_lost:
            self._lose(now)
        self._leases.end(now)
        self.member_id = ""
        self._drop_open(now)
        self._events.append(values.Left())

    def _lose_coordinator(self, now: float, why: str) -> None:
        """Look for it again; what was under way has no answer (rule 19)."""
        self._link.lose(now)
        is_leaving = self._link.is_open(apis.LEAVE_GROUP)
        self._drop_open(now)
        self._events.append(values.CoordinatorLost(why))
        if is_leaving:
            self._end_leave(now)
        elif self.phase in (Phase.JOINING, Phase.LEADING, Phase.SYNCING):
            self.phase, self._assignments = Phase.OUTSIDE, None
            self.request_rejoin()

    def _drop_open(self, now: float) -> None:
        dropped = self._link.drop()
        if any(one.api is apis.METADATA for one in dropped):
            self.topics.due_at = now
        for one in dropped:
            if one.api is apis.OFFSET_COMMIT:
                self._answer_commit(one.subject, values.NO_ANSWER, {}, now)

    def _check_answers(self, now: float) -> None:
        if (late := self._link.find_late(now)) is not None:
            self._lose_coordinator(now, f"no answer to {late.api.name} in time")
