"""A member of a classic group, without I/O: which request comes next, and what its response changes.

Time, randomness and settings are arguments; one thread uses it. A driver sends what `next_request` returns,
hands the answers to `on_response`, a broken connection to `on_disconnect`, and waits until `next_due`.

Membership:

1. It joins while it is wanted, a join is due and nothing is being released; it claims what it owns, with its
   generation. A join that no answer reaches stays due, whatever its cause was.
2. The first join waits for metadata. The leader watches all members' topics, and joins again if their
   partitions change; a member joins again if its own topics change. Another member's denied or missing
   topics disturb no leader, its own denied ones end the member.
3. MEMBER_ID_REQUIRED joins again at once with the id. UNKNOWN_MEMBER_ID ends the membership, at any attempt:
   partitions are lost before the next join, which claims none of them.
4. ILLEGAL_GENERATION loses nothing for a dynamic member, since the group still knows it: it joins again. A
   static member may have missed a rebalance, and loses its partitions.
5. FENCED_INSTANCE_ID ends the member, its partitions are lost, and it never joins again (KIP-345). So do
   errors that no retry can fix. Unknown errors are retried: brokers answer so while a group is too large.
6. A static member leaves without a request. A static leader that returns keeps the last assignment (KIP-814).
7. Without a poll for the rebalance timeout the member leaves until the next poll (KIP-62).
8. The lease ends before the request to leave, and at each loss; a request sent earlier renews it no more.

Heartbeats and lease:

9. Heartbeats go on during a release, and stop from a join's request to its round's end.
10. An answered heartbeat renews the lease from the time it was sent, REBALANCE_IN_PROGRESS included; only one
    without a rebalance renews the second lease. The round's join renews both, from its own time.
11. If another round follows, heartbeats begin after 10 ms, and slow down to the interval.

Rounds:

12. What a round takes away is revoked first; what it gives is reported after the release. Then the member
    joins again (KIP-429), unless the release is confirmed in a round that may be the only one.
13. An unreadable assignment of a hostile leader is empty; one with topics that are not subscribed changes
    nothing, and the member joins again. What an only round promises is withheld until its release.
14. Promised partitions are looked for, and begun, by the rules of `release_watch`; not
    once a join was sent.

Commits:

15. A commit is sent in a stable generation only, and carries it: the owner is checked just before. During a
    join it fails with REBALANCE_IN_PROGRESS, outside the group with UNKNOWN_MEMBER_ID.
16. Commits of partitions that a round has not confirmed wait for its end, in order, and all later ones.
17. A commit that failed may yet take effect: until the generation ends, no release is confirmed.
18. A refused partition does not fail the others of a commit.

Coordinator:

19. It is looked up before the first request, and again after NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE, a
    broken connection or a late answer, with pauses between failures. The membership outlasts that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf, nextafter
from random import Random
from typing import Any, ClassVar, Final, TypeAlias

from trimtab.assignor.rebalance.user_data import AssignmentUserData, group_by_topic
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.errors import make_error
from trimtab.consumer_sdk.membership.commit_metadata import format_round_token, parse_release
from trimtab.consumer_sdk.membership.events import CommitPosition
from trimtab.consumer_sdk.membership.machine.assignments import decode_partitions
from trimtab.consumer_sdk.membership.machine.timers import HeartbeatTimer, LeasePair
from trimtab.consumer_sdk.membership.machine.topics import TOPIC_DENIED, MemberTopics
from trimtab.consumer_sdk.membership.machine.values import (
    NO_ANSWER,
    Assigned,
    Commit,
    CommitAnswered,
    CoordinatorFound,
    CoordinatorLost,
    Ended,
    LeadRequested,
    Left,
    Lost,
    MemberEvent,
    MemberOptions,
    MemberRequest,
    Partitions,
    Phase,
    Protocols,
    Revoked,
    RoundEnded,
    TopicsRead,
)
from trimtab.consumer_sdk.membership.release_watch import ReleaseWatch

Describe: TypeAlias = Callable[[Partitions, int, frozenset[str]], Protocols]  # owned, generation, topics
Step: TypeAlias = tuple[float, Callable[[float], MemberRequest | None]]  # when, and what

CONSUMER: Final = "consumer"  # protocol type
RETRY_PAUSE_S: Final = 0.1  # doubled by each failure in a row to reach the coordinator
MAX_RETRY_PAUSE_S: Final = 1.0
UNKNOWN_ERROR_PAUSE_S: Final = 0.5
LEAVE_TIMEOUT_S: Final = 2.0  # without an answer the session timeout removes the member
LOOK_TIMEOUT_S: Final = 0.5
JOIN_EXTRA_S: Final = 5.0  # Java's, beyond the rebalance timeout
MAX_CONFIRMED_RELEASE_S: Final = 2.0  # the next owner waits three times as long
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
# of single partitions: unknown topic, metadata or request too large, topic denied
REFUSALS: Final = frozenset({3, 12, 28, TOPIC_DENIED})


class ClassicMember:
    """Membership in one group, by the rules above."""

    def __init__(self, options: MemberOptions, describe: Describe, random: Random, now: float) -> None:
        """`describe` returns the subscriptions of a JoinGroup."""
        self.options = options
        self.phase = Phase.OUTSIDE
        self.member_id = ""
        self.generation = -1
        self.epoch = 0  # memberships lost so far
        self.owned: Partitions = frozenset()
        self.is_leader = False
        self.topics = MemberTopics(options.metadata_max_age)
        self.watch: ReleaseWatch | None = None  # of the last round
        self.release_token = self._protocol = ""  # of the last round
        self.joined_at = self.assigned_at = -inf
        self._describe = describe
        self._random = random
        self._events: list[MemberEvent] = []
        self._open: list[MemberRequest] = []
        self._commits: list[Commit] = []  # not sent yet
        self._assignments: Mapping[str, bytes] | None = None  # of a leader, to send
        self._releasing: Partitions = frozenset()
        self._added: Partitions = frozenset()  # reported after the release
        self._doubtful_generation = self._only_round_in = self._emptied_in = -1
        self._claimed_at_join = False
        self._is_wanted = self._rejoin_due = self._is_overdue = False
        self._has_coordinator = False
        self._failures = 0  # to reach the coordinator, in a row
        self._retry_at = self._join_sent_at = self._confirm_by = -inf
        self._heartbeats = HeartbeatTimer(options.heartbeat_interval)
        self._leases = LeasePair(options.session_timeout, options.rebalance_timeout)
        self._last_poll_at = now
        self._leave_reason: str | None = None

    # -- what the application wants ---------------------------------------------------------------

    def subscribe(
        self, topics: Iterable[str], now: float, matches: Callable[[str], bool] | None = None
    ) -> None:
        """Join, or change the topics; `matches` selects more of them by name."""
        self.topics.subscribe(topics, matches, now)
        self._is_wanted = True
        self.request_rejoin()

    def request_rejoin(self) -> None:
        """Join again, after the round that is under way."""
        self._rejoin_due = True

    def record_poll(self, now: float) -> None:
        """Record that the application polled (rule 7)."""
        self._last_poll_at = now
        self._is_overdue = False

    def leave(self, reason: str, now: float) -> None:
        """Leave the group, and stay outside until `subscribe` or `come_back`."""
        self._is_wanted = False
        self._begin_leave(reason, now)

    def come_back(self) -> None:
        """Join again after `leave`."""
        self._is_wanted = self._rejoin_due = True

    def assign(self, assignments: Mapping[str, bytes], topics: Iterable[str], now: float) -> None:
        """Lead: send the members' assignments; watch all their topics (rule 2)."""
        if self.phase is not Phase.LEADING:  # the membership was lost meanwhile
            return
        self._assignments = assignments
        self.is_leader = True
        self.topics.watch(topics, now)
        self.phase = Phase.SYNCING

    def commit(
        self, offsets: Mapping[TopicPartition, CommitPosition], still_owned: Callable[[], bool] = lambda: True
    ) -> Commit:
        """Commit with the generation at the time of the request; `CommitAnswered` follows."""
        made = Commit(dict(offsets), self.epoch, still_owned)
        self._commits.append(made)
        return made

    def release(
        self, now: float, last: Mapping[TopicPartition, CommitPosition] | None = None, began_at: float = -inf
    ) -> None:
        """Record that the revoked partitions are released; `last` confirms it (rule 12)."""
        if not self._releasing:  # lost meanwhile
            return
        if last is not None and self._may_confirm(last) and now - began_at < MAX_CONFIRMED_RELEASE_S:
            in_time = began_at + MAX_CONFIRMED_RELEASE_S
            self._commits.append(Commit(dict(last), self.epoch, lambda: True, is_confirmation=True))
            self._confirm_by = in_time
            return
        self._end_release(is_confirmed=False)

    # -- what the driver does ---------------------------------------------------------------------

    def take_events(self) -> list[MemberEvent]:
        """Return what has happened since the last call."""
        taken, self._events = self._events, []
        return taken

    def next_request(self, now: float) -> MemberRequest | None:
        """Return a request to send now; call until there is none."""
        self._check_answers(now)
        while True:
            due = next((build for at, build in self._list_steps(now) if at <= now), None)
            if due is None:
                return None
            if (request := due(now)) is not None:
                self._open.append(request)
                return request

    def next_due(self, now: float) -> float:
        """Return when `next_request` has something to do, if nothing else happens; possibly never."""
        steps = [at for at, _ in self._list_steps(now)]
        return min([*steps, *(one.answer_by for one in self._open)], default=inf)

    def on_response(self, request: MemberRequest, response: Any, now: float) -> None:
        """Take the response to a request; one to an abandoned request changes nothing."""
        if request not in self._open:
            return
        self._open.remove(request)
        if request.api is not apis.FIND_COORDINATOR:
            self._failures = 0
        self._handlers[request.api.key](self, request, response, now)

    def on_disconnect(self, now: float, why: str = "") -> None:
        """Take the end of the connection to the coordinator, or the failure to open one."""
        self._lose_coordinator(now, why or "connection closed")

    # -- lease ------------------------------------------------------------------------------------

    def holds_lease(self, now: float) -> bool:
        """Return whether records may be handed out (rules 8 and 10)."""
        return self._leases.are_valid(now)

    @property
    def is_joining(self) -> bool:
        """Whether a join is under way."""
        return self.phase in (Phase.JOINING, Phase.LEADING, Phase.SYNCING)

    @property
    def is_join_due(self) -> bool:
        """Whether the member joins as soon as it can."""
        return self._is_wanted and self._rejoin_due and not self.is_joining

    @property
    def is_emptied(self) -> bool:
        """Whether a leader of ours took all partitions away in this generation and promised none."""
        return 0 <= self.generation == self._emptied_in

    def is_unconfirmed(self, now: float, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Return whether commits of these partitions, or of any, have to wait (rule 16)."""
        return self.watch is not None and self.watch.is_unconfirmed(now, partitions)

    # -- steps ------------------------------------------------------------------------------------

    def _list_steps(self, now: float) -> Iterator[Step]:
        if self._commits and self.phase is not Phase.STABLE:
            yield now, self._fail_commit
        if self.phase is Phase.ENDED or not (self._is_wanted or self._leave_reason is not None):
            return
        if not self._has_coordinator:
            if not self._is_open(apis.FIND_COORDINATOR):
                yield self._retry_at, self._find_coordinator
            yield from self._list_poll_limit()
            return
        yield from self._list_commits(now)
        if self._leave_reason is not None:
            yield from self._list_leave(now)
            return
        yield from self._list_poll_limit()
        yield from self._list_rounds(now)
        if not self._is_open(apis.METADATA):
            yield self.topics.due_at, self._send_metadata

    def _list_commits(self, now: float) -> Iterator[Step]:
        if not self._commits or self.phase is not Phase.STABLE:
            return
        first = self._commits[0]
        if self.watch is not None and self.is_unconfirmed(now, first.offsets):
            yield self.watch.confirmed_at, self._send_commit
        else:
            yield now, self._send_commit

    def _list_leave(self, now: float) -> Iterator[Step]:
        if self._is_open(apis.LEAVE_GROUP):
            return
        if self.watch is None or not self.is_unconfirmed(now):
            yield now, self._send_leave
            return
        yield self.watch.confirmed_at, self._send_leave
        yield from self._list_looks(now)

    def _list_poll_limit(self) -> Iterator[Step]:
        if not self._is_overdue and self._leave_reason is None:
            yield self._last_poll_at + self.options.rebalance_timeout, self._leave_overdue

    def _list_rounds(self, now: float) -> Iterator[Step]:
        if self.phase is Phase.SYNCING and self._assignments is not None:
            yield now, self._send_sync
        if self.phase is Phase.STABLE:
            if not self._is_open(apis.HEARTBEAT):
                yield self._heartbeats.due_at, self._send_heartbeat
            yield from self._list_looks(now)
        is_free = not (self.is_joining or self._releasing or self._is_overdue)
        if self._rejoin_due and is_free and self.topics.is_known and self._is_wanted:
            yield max(self._retry_at, self._delay_join(now)), self._send_join

    def _delay_join(self, now: float) -> float:
        if self.watch is None or not self.watch.delays_join(now, is_due=True):
            return -inf
        return self.watch.joins_at

    def _list_looks(self, now: float) -> Iterator[Step]:
        if self.watch is None:
            return
        if not self._is_open(apis.OFFSET_FETCH) and self.watch.list_awaited(now):
            yield now + self.watch.wait(now), self._send_look
        if self.watch.is_only_round and self.watch.promised:
            at = self.watch.overdue_at(self.options.rebalance_timeout)
            yield nextafter(at, inf), self._take_second_round

    def _take_second_round(self, now: float) -> None:
        if self.watch is not None and self.watch.takes_second_round(now, self.options.rebalance_timeout):
            self.request_rejoin()

    def _leave_overdue(self, now: float) -> None:
        self._is_overdue = True
        self._begin_leave("max.poll.interval.ms exceeded", now)

    def _is_open(self, api: apis.Api) -> bool:
        return any(one.api is api for one in self._open)

    # -- requests ---------------------------------------------------------------------------------

    def _request(
        self, api: apis.Api, now: float, timeout: float | None = None, subject: Any = None, **fields: Any
    ) -> MemberRequest:
        until = now + (self.options.request_timeout if timeout is None else timeout)
        return MemberRequest(api, fields, now, until, self.generation, subject)

    def _identify(self) -> dict[str, Any]:
        return {
            "group_id": self.options.group,
            "member_id": self.member_id,
            "group_instance_id": self.options.group_instance_id,
        }

    def _find_coordinator(self, now: float) -> MemberRequest:
        group = self.options.group
        return self._request(apis.FIND_COORDINATOR, now, key=group, key_type=0, coordinator_keys=[group])

    def _send_metadata(self, now: float) -> MemberRequest:
        return self._request(apis.METADATA, now, topics=self.topics.list_wanted(now))

    def _send_join(self, now: float) -> MemberRequest | None:
        left = frozenset(p for p in self.owned if p.topic not in self.topics.subscribed)
        if left and self.generation >= 0:
            self._revoke(left)
            return None
        self.phase = Phase.JOINING
        self.is_leader = False
        self.topics.record_join()
        self._claimed_at_join = bool(self.owned)
        self._rejoin_due = False
        protocols = self._describe(self.owned, self.generation, self.topics.subscribed)
        return self._request(
            apis.JOIN_GROUP,
            now,
            max(self.options.request_timeout, self.options.rebalance_timeout + JOIN_EXTRA_S),
            **self._identify(),
            session_timeout_ms=round(self.options.session_timeout * 1000),
            rebalance_timeout_ms=round(self.options.rebalance_timeout * 1000),
            protocol_type=CONSUMER,
            protocols=[{"name": name, "metadata": data} for name, data in protocols],
        )

    def _send_sync(self, now: float) -> MemberRequest:
        assignments, self._assignments = self._assignments or {}, None
        rows = [{"member_id": member, "assignment": data} for member, data in assignments.items()]
        names = {"protocol_type": CONSUMER, "protocol_name": self._protocol}
        return self._request(
            apis.SYNC_GROUP,
            now,
            max(self.options.request_timeout, self.options.rebalance_timeout + JOIN_EXTRA_S),
            **self._identify(),
            **names,
            generation_id=self.generation,
            assignments=rows,
        )

    def _send_heartbeat(self, now: float) -> MemberRequest:
        self._heartbeats.record_sent(now)
        timeout = min(self.options.request_timeout, self.options.session_timeout)
        return self._request(apis.HEARTBEAT, now, timeout, **self._identify(), generation_id=self.generation)

    def _send_leave(self, now: float) -> MemberRequest:
        member = {"member_id": self.member_id, "group_instance_id": None, "reason": self._leave_reason}
        return self._request(
            apis.LEAVE_GROUP, now, LEAVE_TIMEOUT_S, group_id=self.options.group, members=[member]
        )

    def _send_commit(self, now: float) -> MemberRequest | None:
        commit = self._commits.pop(0)
        if commit.epoch != self.epoch or not commit.still_owned():
            self._answer_commit(commit, ILLEGAL_GENERATION, {}, now)
            return None
        topics = [
            {"name": topic, "partitions": [_write_offset(TopicPartition(topic, n), commit) for n in numbers]}
            for topic, numbers in group_by_topic(commit.offsets)
        ]
        return self._request(
            apis.OFFSET_COMMIT,
            now,
            subject=commit,
            **self._identify(),
            generation_id_or_member_epoch=self.generation,
            topics=topics,
        )

    def _fail_commit(self, now: float) -> None:
        commit = self._commits.pop(0)
        is_lost = commit.epoch != self.epoch or self.generation < 0
        self._answer_commit(commit, UNKNOWN_MEMBER if is_lost else REBALANCING, {}, now)

    def _send_look(self, now: float) -> MemberRequest | None:
        awaited = frozenset[TopicPartition]() if self.watch is None else self.watch.take_look(now)
        if not awaited:
            return None
        topics = [{"name": topic, "partition_indexes": list(n)} for topic, n in group_by_topic(awaited)]
        group = {"group_id": self.options.group, "topics": topics}
        return self._request(apis.OFFSET_FETCH, now, LOOK_TIMEOUT_S, subject=awaited, **group, groups=[group])

    # -- responses --------------------------------------------------------------------------------

    def _on_coordinator(self, _request: MemberRequest, response: Any, now: float) -> None:
        row = response.coordinators[0] if response.coordinators else response
        if row.error_code:
            self._retry_or_end(row.error_code, now)
            return
        self._has_coordinator = True
        self._events.append(CoordinatorFound(row.host, row.port))

    def _on_metadata(self, _request: MemberRequest, response: Any, now: float) -> None:
        if denied := self.topics.read(response, now):
            self._end(TOPIC_DENIED, now, denied)
            return
        self._events.append(TopicsRead(self.topics.list_missing()))
        if self.topics.require_join():
            self.request_rejoin()

    def _on_join(self, request: MemberRequest, response: Any, now: float) -> None:
        code = response.error_code
        if code:
            self._on_join_error(code, response.member_id, now)
            return
        if response.protocol_type not in (None, CONSUMER):
            self._end(INCONSISTENT_PROTOCOL, now)
            return
        self.generation, self.member_id = response.generation_id, response.member_id
        self._protocol = response.protocol_name
        self._join_sent_at = request.sent_at
        if response.leader != response.member_id:
            self.phase, self._assignments = Phase.SYNCING, {}
            return
        self.phase = Phase.LEADING
        members = {one.member_id: one.metadata for one in response.members}
        self._events.append(LeadRequested(self._protocol, members, bool(response.skip_assignment)))

    def _on_join_error(self, code: int, member_id: str, now: float) -> None:
        self.phase = Phase.OUTSIDE
        self.request_rejoin()
        if code == MEMBER_ID_REQUIRED:
            self.member_id = member_id
        elif code == UNKNOWN_MEMBER:
            self._lose(now)
        else:
            self._retry_or_end(code, now)

    def _on_sync(self, _request: MemberRequest, response: Any, now: float) -> None:
        code = response.error_code
        if not code and response.protocol_name not in (None, self._protocol):
            code = INCONSISTENT_PROTOCOL
        if not code:
            self._end_round(response.assignment, now)
            return
        self.phase = Phase.OUTSIDE
        self.request_rejoin()
        self._on_member_error(code, now)

    def _on_heartbeat(self, request: MemberRequest, response: Any, now: float) -> None:
        code = response.error_code
        if request.generation != self.generation or self.phase is not Phase.STABLE:
            return
        if code in (0, REBALANCING):
            self._leases.renew(request.sent_at, is_stable=code == 0)
        if code:
            self._on_member_error(code, now)

    def _on_leave(self, _request: MemberRequest, _response: Any, now: float) -> None:
        self._end_leave(now)

    def _on_commit(self, request: MemberRequest, response: Any, now: float) -> None:
        rows = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.topics
            for row in topic.partitions
        }
        refused = {partition: code for partition, code in rows.items() if code in REFUSALS}
        code = next((code for code in rows.values() if code and code not in REFUSALS), 0)
        if code == LATE:
            self._lose_coordinator(now, "the coordinator stored a commit too late")
        elif code and self.phase is Phase.STABLE and request.generation == self.generation:
            self._on_member_error(code, now, is_retried=False)
        self._answer_commit(request.subject, code, refused, now)

    def _on_look(self, request: MemberRequest, response: Any, now: float) -> None:
        if self.watch is None or self.phase is not Phase.STABLE or request.generation != self.generation:
            return
        answer = response.groups[0] if response.groups else response
        if answer.error_code in NOT_COORDINATOR:
            self._lose_coordinator(now, "the coordinator has moved")
        if answer.error_code:
            return
        rows = [(TopicPartition(t.name, p.partition_index), p) for t in answer.topics for p in t.partitions]
        releases = {partition: parse_release(row.metadata) for partition, row in rows}
        found = {p: one.is_confirmed for p, one in releases.items() if one.token == self.release_token}
        released = self.watch.promised.intersection(found)
        if any(p.topic not in self.topics.subscribed for p in released):
            return
        self.watch.record_look(found, released, now)
        if released:
            self.owned |= released
            self._events.append(Assigned(released, self.epoch))
            if not (self.watch.promised or self.watch.is_only_round):
                self.request_rejoin()

    # -- changes of state -------------------------------------------------------------------------

    def _end_round(self, data: bytes, now: float) -> None:
        """Follow the assignment (rules 12 and 13)."""
        self.phase = Phase.STABLE
        self.joined_at, self.assigned_at = self._join_sent_at, now
        self._leases.renew(self.joined_at, is_stable=True)
        assigned, user_data, fault = decode_partitions(data)
        decision = AssignmentUserData()
        if self._protocol == self.options.protocol and not fault:
            try:
                decision = AssignmentUserData.decode(user_data)
                assigned -= decision.list_early()
            except InvalidPayloadError as error:  # any of its partitions could be a promised one
                assigned, fault = frozenset(), str(error)
        if any(p.topic not in self.topics.subscribed for p in assigned):
            fault, assigned = "topics that are not subscribed", self.owned
            self._rejoin_due, self._retry_at = True, now + RETRY_PAUSE_S
        self._follow_decision(decision, assigned, now)
        self._events.append(RoundEnded(self.generation, self._protocol, assigned, user_data, fault))
        revoked, self._added = self.owned - assigned, assigned - self.owned
        self.owned = assigned
        if revoked:
            self._revoke(revoked)
        else:
            self._report_added()

    def _follow_decision(self, decision: AssignmentUserData, assigned: Partitions, now: float) -> None:
        token = self.release_token = format_round_token(self.generation, decision.decision_fingerprint)
        promised = [TopicPartition(topic, n) for topic, numbers in decision.promised for n in numbers]
        is_only = decision.is_only_round
        self._only_round_in = self.generation if is_only and token else -1
        watches = self.options.starts_at_release and decision.starts_at_release and token
        watch = ReleaseWatch(promised, self.generation, token, now, is_only_round=is_only)
        self.watch = watch if watches else None
        self._heartbeats.restart(now, is_short=decision.round_follows)
        keeps_any = bool(assigned or promised)
        self._emptied_in = self.generation if token and self._claimed_at_join and not keeps_any else -1

    def _revoke(self, partitions: Partitions) -> None:
        self.owned -= partitions
        self._releasing = partitions
        self._events.append(Revoked(partitions))

    def _report_added(self) -> None:
        added, self._added = self._added, frozenset[TopicPartition]()
        if added:
            self._events.append(Assigned(added, self.epoch))

    def _may_confirm(self, last: Mapping[TopicPartition, CommitPosition]) -> bool:
        is_last = self.phase is Phase.STABLE and self.generation == self._only_round_in
        is_open = bool(self._commits) or self._is_open(apis.OFFSET_COMMIT)
        is_certain = not is_open and self._doubtful_generation != self.generation
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
            self._doubtful_generation = self.generation
        if not commit.is_confirmation:
            self._events.append(CommitAnswered(commit, code, refused))
        elif self._releasing:
            is_good = not (code or refused) and commit.epoch == self.epoch and now < self._confirm_by
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
            self._retry_at = now + pause * self._random.uniform(0.8, 1.2)
        else:
            self._end(code, now)

    def _lose(self, now: float) -> None:
        """End the membership (rules 3 and 8)."""
        lost = (self.owned | self._releasing) - self._added
        self._leases.end(now)
        self.member_id, self.generation, self.is_leader = "", -1, False
        self.owned = self._releasing = self._added = frozenset()
        self._assignments = self.watch = None
        self.release_token = ""
        self.epoch += 1
        if self.phase is not Phase.ENDED:
            self.phase = Phase.OUTSIDE
        if lost:
            self._events.append(Lost(lost, self.epoch))
        self.request_rejoin()

    def _end(self, code: int, now: float, topics: frozenset[str] = frozenset()) -> None:
        self.phase = Phase.ENDED
        self._lose(now)
        self._drop_open(now)
        self._events.append(Ended(code, topics))

    def _begin_leave(self, reason: str, now: float) -> None:
        self._leases.end(inf)  # before the request: once the group knows, others read
        if (
            not self.member_id
            or self.options.is_static
            or self.phase is Phase.ENDED
            or not self._has_coordinator
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
        self._events.append(Left())

    def _lose_coordinator(self, now: float, why: str) -> None:
        """Look for it again; what was under way has no answer (rule 19)."""
        self._has_coordinator = False
        self._failures += 1
        pause = min(MAX_RETRY_PAUSE_S, RETRY_PAUSE_S * 2 ** min(self._failures - 1, 10))
        self._retry_at = now + pause * self._random.uniform(0.8, 1.2)
        is_leaving = self._is_open(apis.LEAVE_GROUP)
        self._drop_open(now)
        self._events.append(CoordinatorLost(why))
        if is_leaving:
            self._end_leave(now)
        elif self.phase in (Phase.JOINING, Phase.LEADING, Phase.SYNCING):
            self.phase, self._assignments = Phase.OUTSIDE, None
            self.request_rejoin()

    def _drop_open(self, now: float) -> None:
        dropped, self._open = self._open, []
        if any(one.api is apis.METADATA for one in dropped):
            self.topics.due_at = now
        for one in dropped:
            if one.api is apis.OFFSET_COMMIT:
                self._answer_commit(one.subject, NO_ANSWER, {}, now)

    def _check_answers(self, now: float) -> None:
        late = [one for one in self._open if one.answer_by <= now]
        if late:
            self._lose_coordinator(now, f"no answer to {late[0].api.name} in time")

    _handlers: ClassVar[Mapping[int, Any]] = {
        apis.FIND_COORDINATOR.key: _on_coordinator,
        apis.METADATA.key: _on_metadata,
        apis.JOIN_GROUP.key: _on_join,
        apis.SYNC_GROUP.key: _on_sync,
        apis.HEARTBEAT.key: _on_heartbeat,
        apis.LEAVE_GROUP.key: _on_leave,
        apis.OFFSET_COMMIT.key: _on_commit,
        apis.OFFSET_FETCH.key: _on_look,
    }


def _write_offset(partition: TopicPartition, commit: Commit) -> dict[str, Any]:
    at = commit.offsets[partition]
    return {
        "partition_index": partition.partition,
        "committed_offset": at.offset,
        "committed_metadata": at.metadata,
    }
