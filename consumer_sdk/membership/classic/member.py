"""Group member: joins, heartbeats, leads, commits with its generation; never fetches.

Threads: the member's own thread drives joins; kafka-python's I/O thread heartbeats and runs the
listeners; the application's thread takes events from `inbox` and commits. The rules:

1. Partitions are released only after the application acknowledges the `PartitionsRevoked` event or
   the membership is lost.
2. Heartbeats continue while the listener waits for the acknowledgement.
3. If the application does not poll for `max.poll.interval.ms`, the member leaves the group, so that
   its partitions find a new owner, and joins again at the next poll (KIP-62).
4. Only the leader acts on a new plan, by the rules of `plan_follower`.
5. A static member (`group.instance.id`, KIP-345) stays in the group when it closes. If it returns
   within its session it keeps its partitions without a rebalance; until its first rebalance it acts
   on plans as if it were the leader. If another consumer takes its `group.instance.id` it ends with
   an error and does not join again.
6. A member that the plan drains leaves the group in place of its next join, once it owns nothing
   (`drained_leave`), and joins again as soon as a plan no longer drains it.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from threading import Event, Thread
from typing import Any, Final, TypeAlias

from kafka.errors import FencedInstanceIdError, KafkaConnectionError, KafkaTimeoutError, UnknownError
from kafka.errors import KafkaError as KafkaPythonError

from trimtab.assignor.clients.leader_plugin import log_round
from trimtab.assignor.rebalance.leader import LeaderView, RebalanceRound
from trimtab.assignor.rebalance.plan_follower import PlanFollower
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.kafka_security.preflight import check_connection, diagnose_connection
from trimtab.consumer_sdk.client.commit_metadata import encode_confirmation
from trimtab.consumer_sdk.client.membership_events import (
    CommitCompleted,
    CommitPosition,
    EventInbox,
    MembershipEnded,
    MembershipEvent,
    OwnershipCheck,
    PartitionsAssigned,
)
from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.membership.classic import coordinator, group_commits
from trimtab.consumer_sdk.membership.classic.drained_leave import DrainedLeave
from trimtab.consumer_sdk.membership.classic.membership_errors import describe_error, to_membership_error
from trimtab.consumer_sdk.membership.classic.missing_topics import MissingTopics, list_topic_names
from trimtab.consumer_sdk.membership.classic.rebalance_listener import RebalanceListener
from trimtab.consumer_sdk.membership.classic.sticky_assignor import OwnershipStickyAssignor
from trimtab.consumer_sdk.membership.classic.timed_assignor import TimedAssignor
from trimtab.consumer_sdk.membership.classic.topic_pattern import build_topic_pattern
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.consumer_sdk.membership.lease import Lease

log = logging.getLogger("trimtab.consumer_sdk")

IDLE_ITERATION_S: Final = 1.0  # while nothing is due: a plan, a heartbeat or a stop ends the wait
MEMBER_ITERATION_S: Final = 0.05  # while the group, or its coordinator, is not as it should be
JOIN_ITERATION_S: Final = 0.001  # while a join is due
JOIN_STEP_TIMEOUT_S: Final = 1.0  # a join never ends in less than a metadata update takes
BOOTSTRAP_TIMEOUT_MS: Final = 10_000  # of the first connection
RECONNECT_DELAY_S: Final = 0.5  # between attempts while no broker answers
MISSING_TOPIC_LOOKUP_INTERVAL_S: Final = 1.0  # of subscribed topics that do not exist yet
OVERSIZED_GROUP_HINT: Final = " (the group's metadata may exceed the brokers' message.max.bytes)"
POLLS_PER_INTERVAL: Final = 10  # of max.poll.interval.ms, at least
Release: TypeAlias = tuple[Mapping[TopicPartition, CommitPosition], int, float]
"""The last commits of released partitions, the membership's epoch, and when the commit began."""

MAX_RELEASE_S: Final = 2.0  # of a confirmed one; the next owner waits three times as long


class GroupMember:
    """One membership in a consumer group; created and used by `Consumer`."""

    def __init__(self, settings: ConsumerSettings, clock: Clock, wake: Callable[[], object]) -> None:
        self.inbox: deque[MembershipEvent] = EventInbox(wake)  # `wake` ends the application's wait
        # Written on the client's I/O thread only, where commits compare it as well.
        self.membership_epoch = 0
        self._settings = settings
        self._clock = clock
        self._wake_up = Event()  # set after its cause, so that the next iteration sees the cause
        self._control_topics = ControlTopicReader(settings, clock, on_plan=self._wake_up.set)
        self._assignor = TimedAssignor(
            clock,
            settings.heuristic,
            settings.capacity,
            instance=settings.instance,
            rack=settings.rack,
            co_partitioned=settings.co_partitioned,
            view=self._build_leader_view,
            on_round=self._on_round,
            starts_at_release=settings.start_at_release,
            # static members take no part: rule 5 of `release_watch`
            confirms_releases=settings.start_at_release and not settings.is_static,
        )
        self._fenced = Event()
        listener = coordinator.MembershipListener(
            on_stable_heartbeat=self._on_stable_heartbeat,
            on_leaving=self._on_leaving,
            on_lost=self._on_lost,
            on_rejoin_needed=self._wake_up.set,
            on_fenced=self._fenced.set,
            is_unconfirmed=self._has_unconfirmed_partitions,
        )
        self.client = _connect_member(settings, self._assignor, listener)
        self._assignor.read_subscription = partial(coordinator.read_subscription, self.client)
        self._assignor.shorten_heartbeats = partial(coordinator.shorten_heartbeat_interval, self.client)
        self._lease = Lease(settings.session_timeout, clock.monotonic())
        self._last_stable_at = clock.monotonic()
        self._lost_at = -inf  # answers from before this time renew no lease
        self._closing = Event()
        self._rejoin_requested = Event()
        self._unconfirmed_release: Release | None = None  # the last one
        self._poll_overdue = False
        self._last_poll_at = clock.monotonic()
        self._plan_follower = PlanFollower()
        self._drained_leave = DrainedLeave(settings, self._assignor, self._plan_follower)
        self._round_view = self._control_topics.build_leader_view()
        self._topic_names: frozenset[str] = frozenset()
        list_topics = partial(list_topic_names, settings.librdkafka_config)
        self._missing_topics = MissingTopics(settings.bootstrap, list_topics)
        self._next_topic_lookup_at = clock.monotonic() + MISSING_TOPIC_LOOKUP_INTERVAL_S
        self._thread = Thread(target=self._run_member_loop, name=f"trimtab-{settings.instance}", daemon=True)

    # -- the application's thread -----------------------------------------------------------------

    def start(self, topics: Sequence[str]) -> None:
        """Subscribe and start to join; `topics` are names, or patterns that begin with "^"."""
        listener = RebalanceListener(self)  # pyright: ignore[reportArgumentType] # it loads this module twice
        self._topic_names = frozenset(t for t in topics if not t.startswith("^"))
        pattern = build_topic_pattern(topics)
        if pattern is None:
            self.client.subscribe(topics=list(topics), listener=listener)
        else:
            self.client.subscribe(pattern=pattern, listener=listener)
        self.request_rejoin()  # before the thread's first join, which would not serve a later request
        # A second subscribe() changes the topics of the running member.
        if not self._thread.is_alive():
            self._control_topics.start()
            self._thread.start()

    def wait(self, seconds: float) -> None:
        """Wait; the member's thread goes on."""
        self._clock.sleep(max(0.0, seconds))

    def record_poll(self) -> None:
        """Record that the application polled."""
        self._last_poll_at = self._clock.monotonic()
        if self._poll_overdue:
            self._wake_up.set()

    def leave_if_overdue(self) -> None:
        """Do nothing: the member's thread leaves (rule 3)."""

    def holds_lease(self) -> bool:
        """Return whether records may be handed out."""
        joined_at = self._assignor.joined_at
        session = self._lease.renew_by_heartbeat(*coordinator.read_heartbeat_times(self.client))
        session = self._lease = session.renew(joined_at)
        # The second lease of `lease`: heartbeats are answered during a rebalance, too.
        rebalance = Lease(self._settings.max_poll_interval, max(self._last_stable_at, joined_at))
        now = self._clock.monotonic()  # last: the process may have been frozen since the other reads
        return session.last_contact > self._lost_at and session.is_valid(now) and rebalance.is_valid(now)

    @property
    def is_rebalancing(self) -> bool:
        """Whether partitions may change: a join is in progress or has just ended."""
        ended = self._clock.monotonic() - self._assignor.assigned_at < MEMBER_ITERATION_S
        return ended or coordinator.is_joining(self.client)

    @property
    def member_id(self) -> str:
        """Member id assigned by the broker; empty before the first join."""
        return coordinator.member_id(self.client)

    @property
    def generation_id(self) -> int:
        """Last known generation of the group; -1 outside the group."""
        return coordinator.generation_id(self.client)

    @property
    def release_token(self) -> str:
        """Token of the last round, for the last commit of what it has taken away."""
        return self._assignor.release_token

    def is_current(self, epoch: int) -> bool:
        """Return whether partitions assigned in this epoch are still this member's."""
        return epoch == self.membership_epoch and (
            self.generation_id >= 0 or not self._assignor.assignment_count
        )

    def read_generation(self) -> tuple[int, str]:
        """Return generation and member id of one membership; (-1, "") before the first join.

        A transaction commits by them, which has to wait as other commits do (rule 3 of `release_watch`).
        """
        pause = Event()
        while self._has_unconfirmed_partitions():
            pause.wait(group_commits.CONFIRMATION_POLL_INTERVAL_S)
        return coordinator.read_generation(self.client)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these at the next login of each connection."""
        coordinator.set_sasl_credentials(self.client, username, password)
        self._control_topics.set_sasl_credentials(username, password)

    def drain(self) -> None:
        """Request an empty assignment for this member."""
        self._assignor.drain()
        self.request_rejoin()

    def request_rejoin(self) -> None:
        """Start a rebalance, after the current one if there is one."""
        self._rejoin_requested.set()
        self._wake_up.set()

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommitPosition],
        epoch: int,
        timeout: float,
        still_owned: OwnershipCheck = lambda _partitions: True,
    ) -> None:
        """Commit and wait up to `timeout` seconds. Raises kafka-python's errors.

        `still_owned` runs on the I/O thread, just before the request.
        """
        group_commits.commit_offsets(
            self.client, offsets, timeout, lambda: epoch == self.membership_epoch and still_owned(offsets)
        )

    def confirm_release(self, last: Mapping[TopicPartition, CommitPosition], epoch: int, at: float) -> None:
        """Leave the confirmation to the I/O thread: the application reads on meanwhile."""
        self._unconfirmed_release = last, epoch, at

    async def send_confirmation(self, released: frozenset[TopicPartition]) -> bool:
        """Confirm a release if its round may be the only one; return whether it counts. On the I/O thread."""
        release, self._unconfirmed_release = self._unconfirmed_release, None
        is_only_round = self._assignor.is_only_round_in(coordinator.generation_id(self.client))
        if (
            not is_only_round
            or self._closing.is_set()
            or release is None
            or not released <= release[0].keys()
        ):
            return False
        last, epoch, at = release
        confirmed = {p: replace(at, metadata=encode_confirmation(at.metadata)) for p, at in last.items()}

        def is_in_time() -> bool:
            return epoch == self.membership_epoch and self._clock.monotonic() - at < MAX_RELEASE_S

        # With a late answer it may have been late: joining again fences what else is on its way.
        return await group_commits.confirm_release(self.client, confirmed, is_in_time) and is_in_time()

    def commit_async(
        self, offsets: Mapping[TopicPartition, CommitPosition], epoch: int, still_owned: OwnershipCheck
    ) -> None:
        """Commit in the background; `CommitCompleted` arrives in the inbox."""
        taken = dict(offsets)  # the caller may change its own before the answer
        since = self.generation_id  # in the same one the release's commit, which repeats it, follows
        group_commits.commit_offsets_async(
            self.client,
            taken,
            lambda: epoch == self.membership_epoch and (self.generation_id == since or still_owned(taken)),
            lambda error: self.inbox.append(CommitCompleted(taken, error)),
        )

    def stop(self) -> None:
        """Start to leave; the application serves `inbox` until `is_stopped`."""
        self._closing.set()
        self._wake_up.set()

    @property
    def is_stopped(self) -> bool:
        """Whether the member's thread has ended or was never started."""
        return not self._thread.is_alive()

    # -- the member's thread ----------------------------------------------------------------------

    def _run_member_loop(self) -> None:
        try:
            # A first round without the plan would be undone by the next.
            self._control_topics.wait_until_read()
            while not self._closing.is_set() or self._has_unconfirmed_partitions():
                self._try_iteration()
        except Exception as error:  # noqa: BLE001 - the application must get every error
            self.inbox.append(MembershipEnded(to_membership_error(error, self._settings)))
        finally:
            self._leave_and_close()

    def _try_iteration(self) -> None:
        try:
            self._run_iteration()
        except KafkaPythonError as error:
            # An unreachable broker is retriable: it may return. An unknown error answers each SyncGroup
            # while one member's metadata is too large for the broker to store the group.
            if not error.retriable and not isinstance(error, UnknownError):
                raise
            hint = OVERSIZED_GROUP_HINT if isinstance(error, UnknownError) else ""
            log.warning("group %s: %s%s; retrying", self._settings.group, describe_error(error), hint)
            self._closing.wait(RECONNECT_DELAY_S)

    def _run_iteration(self) -> None:
        if self._fenced.is_set():  # rule 5: joining would fence the other consumer in turn
            raise FencedInstanceIdError
        if not self._drained_leave.stays_away(self.client, self._control_topics.plan):
            self._take_part()
        self._wake_up.wait(self._choose_iteration())
        self._wake_up.clear()

    def _take_part(self) -> None:
        limit, group = self._settings.max_poll_interval, self._settings.group
        overdue = self._clock.monotonic() - self._last_poll_at > limit
        if overdue and not self._poll_overdue:
            text = "no poll for %.1f s (max.poll.interval.ms): leaving group %s until the next poll"
            log.warning(text, limit, group)
            coordinator.leave_group(self.client, "max.poll.interval.ms exceeded")
        self._poll_overdue = overdue
        if not overdue:
            self._follow_plan()
            self._log_missing_topics()
            # The end of a join discards a request to rejoin, so keep it until then.
            if self._rejoin_requested.is_set() and not coordinator.is_joining(self.client):
                self._rejoin_requested.clear()
                coordinator.request_rejoin(self.client)
            if not self._begin_released_partitions():
                coordinator.poll_coordinator(self.client, JOIN_STEP_TIMEOUT_S)

    def _begin_released_partitions(self) -> bool:
        """Read promised partitions that have been released; return whether a due join waits for more."""
        watch, now = self._assignor.release_watch, self._clock.monotonic()
        if watch is None or coordinator.is_joining(self.client):
            return False
        if self._closing.is_set():
            watch.promised = frozenset()
        if watch.takes_second_round(now, self._settings.max_poll_interval):
            log.warning("no release of %d promised partitions: requesting a rebalance", len(watch.promised))
            coordinator.request_rejoin(self.client)
        if begun := coordinator.begin_released(watch, self.client, now):
            self.inbox.append(PartitionsAssigned(begun, self.membership_epoch))
            if not (watch.promised or watch.is_only_round):
                # At once: `_rejoin_requested` would outlast a join that is due, and cost a third round.
                # Otherwise the former owner confirms the release, by its next join or by a commit.
                coordinator.request_rejoin(self.client)
        return watch.delays_join(self._clock.monotonic(), is_due=coordinator.must_join(self.client))

    def _has_unconfirmed_partitions(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        watch = self._assignor.release_watch
        return watch is not None and watch.is_unconfirmed(self._clock.monotonic(), partitions)

    def _choose_iteration(self) -> float:
        if self._drained_leave.is_away:  # until a plan arrives
            return IDLE_ITERATION_S
        # Joins take two rounds; between them the next step must not wait for a whole iteration.
        if not self._poll_overdue and (self._rejoin_requested.is_set() or coordinator.must_join(self.client)):
            return JOIN_ITERATION_S
        now = self._clock.monotonic()
        if (watch := self._assignor.release_watch) is not None and watch.list_awaited(now):
            return max(JOIN_ITERATION_S, watch.wait(now))
        if self._poll_overdue or self.is_rebalancing or not coordinator.is_settled(self.client):
            return MEMBER_ITERATION_S
        limit = self._settings.max_poll_interval  # rule 3; kafka-python, too, leaves a group without polls
        overdue_in = self._last_poll_at + limit - now
        return max(JOIN_ITERATION_S, min(IDLE_ITERATION_S, limit / POLLS_PER_INTERVAL, overdue_in))

    @property
    def plan(self) -> GroupPlan | None:
        """The plan in force; None without one, or before it has been read."""
        return self._control_topics.plan

    @property
    def decision_fault(self) -> str:
        """Why the plan or the leader's heuristic could not decide the last rebalance; empty if it did."""
        return self._assignor.fault

    def _follow_plan(self) -> None:
        if (plan := self._control_topics.plan) is None:
            return
        # The plan in force at the first join is part of that round's decision.
        if not self._assignor.assignment_count:
            self._plan_follower.adopt_existing_plan(plan)
        elif self._is_leading() and self._plan_follower.follow_if_due(plan, self._clock.monotonic()):
            log.info("plan %d of group %s: %s", plan.epoch, plan.group, "; ".join(plan.reasons))
            self._rejoin_requested.set()

    def _is_leading(self) -> bool:
        # The broker does not tell a returned static member that it leads: KIP-814 needs JoinGroup 9, and
        # kafka-python speaks 7 (rule 5).
        returned = self._settings.is_static and self._assignor.assignment_count == 1
        return returned or coordinator.is_leader(self.client)

    def _log_missing_topics(self) -> None:
        if (now := self._clock.monotonic()) < self._next_topic_lookup_at:
            return
        self._next_topic_lookup_at = now + MISSING_TOPIC_LOOKUP_INTERVAL_S
        missing = coordinator.find_missing_topics(self.client, self._topic_names)
        for warning in self._missing_topics.describe_new(missing):
            log.warning("%s", warning)

    def _on_stable_heartbeat(self, sent_at: float) -> None:
        self._last_stable_at = sent_at

    def _on_leaving(self) -> None:
        self._lost_at = inf  # ends the lease before other members read; `_on_lost` follows

    def _on_lost(self) -> None:
        self._lost_at = self._clock.monotonic()

    def _build_leader_view(self) -> LeaderView:
        view = self._control_topics.build_leader_view()
        self._round_view = view  # a newer plan may arrive before the round ends
        return replace(view, members_overdue=self._plan_follower.is_overdue(view.plan))

    def _on_round(self, outcome: RebalanceRound) -> None:
        self._plan_follower.record_rebalance(self._round_view.plan, len(outcome.snapshot.member_ids))
        log_round(outcome)

    def _leave_and_close(self) -> None:
        try:
            self.client.close(autocommit=False, timeout_ms=5000)
        except Exception as error:  # noqa: BLE001 - best effort; the session timeout does the rest
            log.warning("leaving group %s failed: %s", self._settings.group, error)
        self._control_topics.stop()


def _connect_member(
    settings: ConsumerSettings, assignor: TimedAssignor, listener: coordinator.MembershipListener
) -> Any:
    # The group elects a protocol that all members list, so both are listed while a group is changed.
    known = {one.name: one for one in (assignor, OwnershipStickyAssignor(assignor))}
    assignors = [known[name] for name in settings.assignors]
    fixed = {"enable_auto_commit": False, "bootstrap_timeout_ms": BOOTSTRAP_TIMEOUT_MS}
    config = {**settings.kafka_python_config, **fixed}
    # kafka-python retries a rejected login until its timeout, without a reason.
    check_connection(settings.librdkafka_config)
    try:
        return coordinator.create_member_client(config, assignors, assignor.name, listener)
    except (KafkaTimeoutError, KafkaConnectionError) as error:
        diagnose_connection(settings.librdkafka_config)
        raise BrokerUnreachableError(settings.bootstrap) from error
