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

Rules 9 to 11 (heartbeats and lease) are those of `timers`, 12 to 14 (rounds) of `rounds`, 15 to 18 (commits)
of `commits`, 19 (the coordinator) of `coordinator_link`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import inf, nextafter
from typing import Any, ClassVar, TypeAlias

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_protocol import apis
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.membership.machine import values
from trimtab.consumer_sdk.membership.machine.commits import read_commit_codes
from trimtab.consumer_sdk.membership.machine.member_state import (
    ILLEGAL_GENERATION,
    INCONSISTENT_PROTOCOL,
    LATE,
    MEMBER_ID_REQUIRED,
    NOT_COORDINATOR,
    REBALANCING,
    UNKNOWN_MEMBER,
    MemberState,
)
from trimtab.consumer_sdk.membership.machine.requests import CONSUMER
from trimtab.consumer_sdk.membership.machine.rounds import read_releases
from trimtab.consumer_sdk.membership.machine.topics import TOPIC_DENIED
from trimtab.consumer_sdk.membership.machine.values import Commit, MemberRequest, Phase

Step: TypeAlias = tuple[float, Callable[[float], MemberRequest | None]]  # when, and what


class ClassicMember(MemberState):
    """Membership in one group, by the rules above."""

    # -- what the application wants ---------------------------------------------------------------

    def subscribe(
        self, topics: Iterable[str], now: float, matches: Callable[[str], bool] | None = None
    ) -> None:
        """Join, or change the topics; `matches` selects more of them by name."""
        self.topics.subscribe(topics, matches, now)
        self._is_wanted = True
        self.request_rejoin()

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
        self._commits.waiting.append(made)
        return made

    def release(
        self, now: float, last: Mapping[TopicPartition, CommitPosition] | None = None, began_at: float = -inf
    ) -> None:
        """Record that the revoked partitions are released; `last` confirms it (rule 12)."""
        if not self._releasing:  # lost meanwhile
            return
        is_clear = last is not None and self._may_confirm(last)
        if last is None or not is_clear or not self._commits.confirm(last, self.epoch, now, began_at):
            self._end_release(is_confirmed=False)

    # -- what the driver does ---------------------------------------------------------------------

    def take_events(self) -> list[values.MemberEvent]:
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
                self._link.add(request)
                return request

    def next_due(self, now: float) -> float:
        """Return when `next_request` has something to do, if nothing else happens; possibly never."""
        steps = [at for at, _ in self._list_steps(now)]
        return min([*steps, self._link.answer_by()])

    def on_response(self, request: MemberRequest, response: Any, now: float) -> None:
        """Take the response to a request; one to an abandoned request changes nothing."""
        if self._link.close(request):
            self._handlers[request.api.key](self, request, response, now)

    def on_disconnect(self, now: float, why: str = "") -> None:
        """Take the end of the connection to the coordinator, or the failure to open one."""
        self._lose_coordinator(now, why or "connection closed")

    # -- lease ------------------------------------------------------------------------------------

    def holds_lease(self, now: float) -> bool:
        """Return whether records may be handed out (rules 8 and 10)."""
        return self._leases.are_valid(now)

    @property
    def is_join_due(self) -> bool:
        """Whether the member joins as soon as it can."""
        return self._is_wanted and self._rejoin_due and not self.is_joining

    @property
    def is_emptied(self) -> bool:
        """Whether a leader of ours took all partitions away in this generation and promised none."""
        return self.round.is_empty and self._claimed_at_join and self.round.generation == self.generation

    def is_unconfirmed(self, now: float, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Return whether commits of these partitions, or of any, have to wait (rule 16)."""
        return self.watch is not None and self.watch.is_unconfirmed(now, partitions)

    # -- steps ------------------------------------------------------------------------------------

    def _list_steps(self, now: float) -> Iterator[Step]:
        if self._commits.waiting and self.phase is not Phase.STABLE:
            yield now, self._fail_commit
        if self.phase is Phase.ENDED or not (self._is_wanted or self._leave_reason is not None):
            return
        if not self._link.is_known:
            if not self._link.is_open(apis.FIND_COORDINATOR):
                yield self._link.retry_at, self._find_coordinator
            yield from self._list_poll_limit()
            return
        yield from self._list_commits(now)
        if self._leave_reason is not None:
            yield from self._list_leave(now)
            return
        yield from self._list_poll_limit()
        yield from self._list_rounds(now)
        if not self._link.is_open(apis.METADATA):
            yield self.topics.due_at, self._send_metadata

    def _list_commits(self, now: float) -> Iterator[Step]:
        if not self._commits.waiting or self.phase is not Phase.STABLE:
            return
        first = self._commits.waiting[0]
        if self.watch is not None and self.is_unconfirmed(now, first.offsets):
            yield self.watch.confirmed_at, self._send_commit
        else:
            yield now, self._send_commit

    def _list_leave(self, now: float) -> Iterator[Step]:
        if self._link.is_open(apis.LEAVE_GROUP):
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
            if not self._link.is_open(apis.HEARTBEAT):
                yield self._heartbeats.due_at, self._send_heartbeat
            yield from self._list_looks(now)
        is_free = not (self.is_joining or self._releasing or self._is_overdue)
        if self._rejoin_due and is_free and self.topics.is_known and self._is_wanted:
            yield max(self._link.retry_at, self._delay_join(now)), self._send_join

    def _delay_join(self, now: float) -> float:
        if self.watch is None or not self.watch.delays_join(now, is_due=True):
            return -inf
        return self.watch.joins_at

    def _list_looks(self, now: float) -> Iterator[Step]:
        if self.watch is None:
            return
        if not self._link.is_open(apis.OFFSET_FETCH) and self.watch.list_awaited(now):
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

    # -- requests ---------------------------------------------------------------------------------

    def _find_coordinator(self, now: float) -> MemberRequest:
        return self._build.find_coordinator(self._identity, now)

    def _send_metadata(self, now: float) -> MemberRequest:
        return self._build.read_metadata(self._identity, now, self.topics.list_wanted(now))

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
        return self._build.join(self._identity, now, protocols)

    def _send_sync(self, now: float) -> MemberRequest:
        assignments, self._assignments = self._assignments or {}, None
        return self._build.sync(self._identity, now, self._protocol, assignments)

    def _send_heartbeat(self, now: float) -> MemberRequest:
        self._heartbeats.record_sent(now)
        return self._build.heartbeat(self._identity, now)

    def _send_leave(self, now: float) -> MemberRequest:
        return self._build.leave(self._identity, now, self._leave_reason or "")

    def _send_commit(self, now: float) -> MemberRequest | None:
        commit = self._commits.waiting.pop(0)
        if commit.epoch != self.epoch or not commit.still_owned():
            self._answer_commit(commit, ILLEGAL_GENERATION, {}, now)
            return None
        return self._build.commit(self._identity, now, commit)

    def _fail_commit(self, now: float) -> None:
        commit = self._commits.waiting.pop(0)
        is_lost = commit.epoch != self.epoch or self.generation < 0
        self._answer_commit(commit, UNKNOWN_MEMBER if is_lost else REBALANCING, {}, now)

    def _send_look(self, now: float) -> MemberRequest | None:
        awaited = frozenset[TopicPartition]() if self.watch is None else self.watch.take_look(now)
        if not awaited:
            return None
        return self._build.look(self._identity, now, awaited)

    # -- responses --------------------------------------------------------------------------------

    def _on_coordinator(self, _request: MemberRequest, response: Any, now: float) -> None:
        row = response.coordinators[0] if response.coordinators else response
        if row.error_code:
            self._retry_or_end(row.error_code, now)
            return
        self._link.is_known = True
        self._events.append(values.CoordinatorFound(row.host, row.port))

    def _on_metadata(self, _request: MemberRequest, response: Any, now: float) -> None:
        if denied := self.topics.read(response, now):
            self._end(TOPIC_DENIED, now, denied)
            return
        self._events.append(values.TopicsRead(self.topics.list_missing()))
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
        self._events.append(values.LeadRequested(self._protocol, members, bool(response.skip_assignment)))

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
        code, refused = read_commit_codes(response)
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
        found = read_releases(answer, self.round.token)
        released = self.watch.promised.intersection(found)
        if any(p.topic not in self.topics.subscribed for p in released):
            return
        self.watch.record_look(found, released, now)
        if released:
            self.owned |= released
            self._events.append(values.Assigned(released, self.epoch))
            if not (self.watch.promised or self.watch.is_only_round):
                self.request_rejoin()

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
