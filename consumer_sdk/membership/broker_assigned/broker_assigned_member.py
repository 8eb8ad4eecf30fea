"""Group member of the new protocol (KIP-848): librdkafka joins and heartbeats, the broker assigns.

It has `member.GroupMember`'s interface. There is one client, which fetches as well, and no thread that
joins: events arrive while the application's thread calls `consume` or `wait`. The rules:

1. Partitions are released only after the application acknowledges the `PartitionsRevoked` event, lost
   ones after `PartitionsLost`; the broker assigns none to this member before.
2. Commits are sent in their order under `plane.access` by a thread of their own, for which a signal
   handler inside `consume` cannot wait: it sends them itself. The broker accepts a commit of a member's
   current epoch for partitions that the member has just released. So a release waits for the
   commit that is under way, and before each try the partitions must still be held.
   librdkafka's call has no timeout. While a commit waits for a silent coordinator, nothing else here
   waits longer than `RELEASE_WAIT_S`, and a departure ends after `LEAVE_TIMEOUT_S`: the partitions are lost.
3. The lease counts from the last answered heartbeat that librdkafka's statistics prove, from the answer
   that assigned partitions, and from polls. After a lost membership or a missed `max.poll.interval.ms`
   only contacts sent later count.
4. The broker knows the session timeout and is asked every minute, since an admin may change it;
   `session.timeout.ms` can only shorten the lease.
5. A static member (`group.instance.id`) keeps its partitions when it leaves, until its session ends.
6. librdkafka leaves a group without polls after `max.poll.interval.ms`. Where a thread of ours polls for an
   application that does not, `leave_if_overdue` does so; the next recorded poll joins again.
7. A drain leaves in order, and for good: the next owners get what has been released and committed.
"""

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from threading import Event, Thread
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.kafka_security.preflight import check_connection, diagnose_connection
from trimtab.consumer_sdk.client.client_adapters import name_partitions
from trimtab.consumer_sdk.client.membership_events import (
    CommitCompleted,
    CommitPosition,
    EventInbox,
    MembershipEnded,
    MembershipEvent,
    OwnershipCheck,
    PartitionsAssigned,
    PartitionSet,
    PartitionsLost,
    PartitionsRevoked,
)
from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.errors import (
    BrokerUnreachableError,
    GroupMembershipError,
    UnsupportedByProtocolError,
)
from trimtab.consumer_sdk.membership.broker_assigned.commit_thread import CommitThread
from trimtab.consumer_sdk.membership.broker_assigned.group_data_plane import GroupDataPlane
from trimtab.consumer_sdk.membership.broker_assigned.group_timeouts import (
    SESSION_TIMEOUT_INTERVAL_S,
    read_session_timeout,
)
from trimtab.consumer_sdk.membership.broker_assigned.membership_errors import to_membership_error
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.consumer_sdk.membership.lease import Lease

log = logging.getLogger("trimtab.consumer_sdk")

CONNECT_TIMEOUT_S: Final = 10.0
COMMIT_RETRY_S: Final = 0.05  # until a heartbeat has told the new member epoch
COMMIT_ASYNC_TIMEOUT_S: Final = 30.0
LEAVE_TIMEOUT_S: Final = 5.0  # then the session timeout does the rest
RELEASE_WAIT_S: Final = 0.5  # for a commit that is under way; the next poll tries again


class BrokerAssignedMember:
    """One membership in a consumer group of the new protocol; created and used by `Consumer`."""

    def __init__(self, settings: ConsumerSettings, clock: Clock, plane: GroupDataPlane) -> None:
        self.inbox: deque[MembershipEvent] = EventInbox(plane.wake)
        self.membership_epoch = 0
        self._settings = settings
        self._clock = clock
        self._plane = plane
        if plane.is_abandoned:
            silent = "the coordinator was silent when this consumer left, and librdkafka may wait for it"
            raise GroupMembershipError(f"group {settings.group}: {silent}; create this consumer again")
        _check_broker(settings, plane)
        self._session_timeout = read_session_timeout(settings)
        self._ask_session_timeout_at = clock.monotonic() + SESSION_TIMEOUT_INTERVAL_S
        self._control_topics = ControlTopicReader(replace(settings, write_rate_topic=""), clock)
        self._commits = CommitThread()
        self._queued_commits: deque[_Commit] = deque()  # popped under `plane.access`, once they are answered
        self._held: PartitionSet = frozenset()  # assigned by the group, not yet released
        self._release_due = False
        self._last_poll_at = self._joining_since = self._assigned_contact = clock.monotonic()
        self._lost_at = -inf
        self._started = False
        self._failed = False
        self._leaving_since = inf
        self._unsubscribed = False
        self._draining = False
        self._topics: Sequence[str] = ()
        self._is_away = False  # rule 6

    # -- joining and leaving ----------------------------------------------------------------------

    def start(self, topics: Sequence[str]) -> None:
        """Subscribe and start to join; `topics` are names, or patterns that begin with "^"."""
        if not self._started:
            self._started = True
            self._control_topics.start()
            self._plane.on_error = self._on_error
        self._topics = topics
        if not (self._draining or self._is_away):
            self._plane.join(topics, self._on_assigned, self._on_revoked, self._on_lost)

    def wait(self, seconds: float) -> None:
        """Run librdkafka's callbacks for this time, without records."""
        if not self._plane.access.wait_until_free(seconds):
            self._give_up_if_overdue()
            return
        self._leave_if_due()
        self._release_if_due()
        self._plane.serve(seconds)

    def stop(self) -> None:
        """Start to leave; the application serves `inbox` and calls `wait` until `is_stopped`."""
        self._leaving_since = self._clock.monotonic()
        if self._plane.access.wait_until_free(RELEASE_WAIT_S):  # else `wait` does it
            self._unsubscribe_once_joined()

    @property
    def is_stopped(self) -> bool:
        """Whether the group has been left."""
        if not self._unsubscribed or self._held:
            return False
        if not self._is_leave_overdue() and self._plane.read_generation() > 0:
            return False
        self._commits.end(RELEASE_WAIT_S)
        self._control_topics.stop()
        return True

    def drain(self) -> None:
        """Start to leave; a static member cannot: raises UnsupportedByProtocolError."""
        if self._settings.is_static:
            raise UnsupportedByProtocolError(
                "drain(): the broker keeps the partitions of a group.instance.id that leaves, until its "
                "session ends; let a sidecar's plan drain it (docs/any-client.md), or omit group.instance.id"
            )
        self._draining = True  # the next poll leaves: in its thread callbacks may run
        self._plane.wake()

    def _leave_if_due(self) -> None:
        if (self._draining or self._leaving_since < inf) and not self._unsubscribed:
            self._unsubscribe_once_joined()

    def _unsubscribe_once_joined(self) -> None:
        # librdkafka does not leave while its first heartbeat is under way: the session would go on.
        is_outside = not self._started or self._failed or self._is_away
        if is_outside or self._plane.read_generation() > 0 or self._is_leave_overdue():
            self._unsubscribed = True
            with suppress(KafkaException):  # after a fatal error there is no subscription
                self._plane.unsubscribe()

    def _give_up_if_overdue(self) -> None:
        if self._is_leave_overdue() and (self._held or not self._unsubscribed):
            log.warning(
                "group %s: the coordinator does not answer a commit: leaving without it; the group removes "
                "this consumer after its session timeout",
                self._settings.group,
            )
            self._unsubscribed = True
            self._plane.is_abandoned = True
            self._on_lost(self._held)

    def _is_leave_overdue(self) -> bool:
        return self._clock.monotonic() - self._leaving_since > LEAVE_TIMEOUT_S

    # -- callbacks of librdkafka ------------------------------------------------------------------

    def _on_assigned(self, partitions: PartitionSet) -> None:
        self._held |= partitions
        # The answer was to a heartbeat sent after the last membership had ended (rule 1).
        self._assigned_contact = max(self._assigned_contact, self._joining_since)
        self.inbox.append(PartitionsAssigned(partitions, self.membership_epoch))

    def _on_revoked(self, partitions: PartitionSet) -> None:
        if self._is_away:  # the application is late: others may have what it still processes
            self._on_lost(partitions)
            return
        self.inbox.append(PartitionsRevoked(partitions, _Release(lambda: self._release(partitions))))

    def _on_lost(self, partitions: PartitionSet) -> None:
        # Before the event: commits compare it and are refused from now on.
        self.membership_epoch += 1
        self._lost_at = self._clock.monotonic()
        self.inbox.append(PartitionsLost(partitions, _Release(lambda: self._release(partitions))))

    def _release(self, partitions: PartitionSet) -> None:
        self._held -= partitions  # refuses later commits (rule 2)
        self._release_due = True
        self._release_if_due()

    def _release_if_due(self) -> None:
        # If a commit is under way, or Ctrl-C interrupts a release, the next poll makes it.
        if self._release_due and self._plane.access.wait_until_free(RELEASE_WAIT_S):
            self._joining_since = self._clock.monotonic()
            self._plane.release()
            self._release_due = False

    def _on_error(self, error: KafkaError) -> bool:
        if error.code() == KafkaError._MAX_POLL_EXCEEDED:  # noqa: SLF001 - its public name
            log.warning("group %s: %s: leaving it until the next poll", self._settings.group, error.str())
            return True
        ended = to_membership_error(error, self._settings)
        if ended is not None:
            self._failed = True
            self.inbox.append(MembershipEnded(ended))
        return ended is not None

    # -- lease ------------------------------------------------------------------------------------

    def record_poll(self) -> None:
        """Record that the application polled."""
        now = self._clock.monotonic()
        if not Lease(self._settings.max_poll_interval, self._last_poll_at).is_valid(now):
            self._lost_at = now  # librdkafka may have left the group meanwhile, which an event will tell
        self._last_poll_at = now
        self._release_if_due()
        self._leave_if_due()
        self._return_if_away()
        if now >= self._ask_session_timeout_at:
            self._ask_session_timeout_at = now + SESSION_TIMEOUT_INTERVAL_S
            # A thread: a silent broker takes seconds, and so does the end of the client that asks.
            Thread(target=self._ask_session_timeout, name="trimtab-session-timeout", daemon=True).start()

    def leave_if_overdue(self) -> None:
        """Leave until the next recorded poll, if it is late (rule 6)."""
        limit = self._settings.max_poll_interval
        is_overdue = self._clock.monotonic() - self._last_poll_at > limit
        if is_overdue and not self._is_away and self._plane.read_generation() > 0:
            text = "no poll for %.1f s (max.poll.interval.ms): leaving group %s until the next poll"
            log.warning(text, limit, self._settings.group)
            self._is_away = True
            self._plane.unsubscribe()

    def _return_if_away(self) -> None:
        if self._is_away and not self._held and self._plane.read_generation() <= 0:
            self._is_away = False
            self._joining_since = self._clock.monotonic()
            self.start(self._topics)

    def _ask_session_timeout(self) -> None:
        self._session_timeout = read_session_timeout(self._settings, self._session_timeout)

    def holds_lease(self) -> bool:
        """Return whether records may be handed out."""
        heartbeats = self._plane.heartbeats
        session = Lease(self._session_timeout, max(self._assigned_contact, heartbeats.last_contact))
        # The broker also reassigns partitions that are not released within the rebalance timeout.
        stable = max(self._assigned_contact, heartbeats.last_stable_contact)
        limit = self._settings.max_poll_interval
        leases = (session, Lease(limit, stable), Lease(limit, self._last_poll_at))
        now = self._clock.monotonic()  # last: the process may have been frozen since the other reads
        return session.last_contact > self._lost_at and all(lease.is_valid(now) for lease in leases)

    @property
    def is_rebalancing(self) -> bool:
        """Whether an event waits for the application."""
        return bool(self.inbox)

    @property
    def member_id(self) -> str:
        """Member id; empty before the first join."""
        return (self._plane.memberid() or "") if self.generation_id > 0 else ""  # librdkafka chooses it

    @property
    def generation_id(self) -> int:
        """Last known member epoch; -1 outside the group."""
        epoch = self._plane.read_generation()
        return epoch if epoch > 0 else -1

    def read_generation(self) -> tuple[int, str]:
        """Return member epoch and member id; (-1, "") outside the group."""
        return (epoch, self.member_id) if (epoch := self.generation_id) > 0 else (-1, "")

    @property
    def release_token(self) -> str:
        """Return none: only a round of the classic protocol has one."""
        return ""

    def is_current(self, epoch: int) -> bool:
        """Return whether partitions assigned in this epoch are still this member's."""
        return epoch == self.membership_epoch and (self.generation_id > 0 or not self._held)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these at the next login of each connection; the plane has got them."""
        self._control_topics.set_sasl_credentials(username, password)

    @property
    def plan(self) -> GroupPlan | None:
        """The plan in force; None without one, or before it has been read."""
        return self._control_topics.plan

    @property
    def decision_fault(self) -> str:
        """Empty: no member decides."""
        return ""

    # -- commits ----------------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, CommitPosition],
        epoch: int,
        timeout: float,
        still_owned: OwnershipCheck = lambda _partitions: True,
    ) -> None:
        """Commit and wait up to `timeout` seconds. Raises KafkaException."""
        commit = self._queue_commit(offsets, epoch, timeout, still_owned)
        try:
            if self._plane.access.is_interrupted_here:
                self._send_commits_until(commit)
            else:  # librdkafka's call has no timeout, and Ctrl-C does not end it
                self._send_in_background(commit)
            commit.answer.result(timeout)
        except FutureTimeoutError:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from None  # noqa: SLF001 - as above
        finally:  # one that is under way ends before the release
            self._drop_commit(commit)

    def confirm_release(self, last: Mapping[TopicPartition, CommitPosition], epoch: int, at: float) -> None:
        """Do nothing: the broker waits for the release."""

    def commit_async(
        self, offsets: Mapping[TopicPartition, CommitPosition], epoch: int, _still_owned: OwnershipCheck
    ) -> None:
        """Commit in the background, what is held (rule 2); `CommitCompleted` arrives in the inbox."""
        taken = dict(offsets)  # the caller may change its own before the answer
        commit = self._queue_commit(taken, epoch, COMMIT_ASYNC_TIMEOUT_S)
        self._send_in_background(commit)
        commit.answer.add_done_callback(lambda done: self.inbox.append(_to_completed(taken, done)))

    def _queue_commit(
        self,
        offsets: Mapping[TopicPartition, CommitPosition],
        epoch: int,
        timeout: float,
        still_owned: OwnershipCheck = lambda _partitions: True,
    ) -> "_Commit":
        requested = [RawPartition(*p, at.offset, at.metadata.rstrip("\0")) for p, at in offsets.items()]
        partitions = frozenset(offsets)

        def is_allowed() -> bool:
            return epoch == self.membership_epoch and self._held >= partitions and still_owned(partitions)

        commit = _Commit(requested, self._clock.monotonic() + timeout, is_allowed)
        self._queued_commits.append(commit)
        return commit

    def _send_in_background(self, commit: "_Commit") -> None:
        is_taken = self._commits.submit(partial(self._send_commits_until, commit))
        if not is_taken:  # another thread has left the group meanwhile
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "the group was left"))

    def _send_commits_until(self, commit: "_Commit") -> None:
        """Send the queued commits until this one is answered, or dropped."""
        while commit in self._queued_commits:
            with self._plane.access:
                is_answered = not self._queued_commits or self._send_commit(self._queued_commits[0])
            if not is_answered:
                self._clock.sleep(COMMIT_RETRY_S)

    def _send_commit(self, commit: "_Commit") -> bool:
        """Return whether it is answered, and not to be sent again."""
        error = self._try_commit(commit)
        # The broker has begun a new epoch of this member, of which the next heartbeat tells.
        if _is_stale(error) and self._clock.monotonic() < commit.deadline:
            return False
        if not commit.answer.done():  # else a signal handler has sent it meanwhile, to commit after it
            commit.answer.set_exception(error) if error else commit.answer.set_result(None)
        self._drop_commit(commit)
        return True

    def _drop_commit(self, commit: "_Commit") -> None:
        with suppress(ValueError):
            self._queued_commits.remove(commit)

    def _try_commit(self, commit: "_Commit") -> Exception | None:
        if not commit.is_allowed():
            lost = "the partitions were lost before this commit"
            return KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, lost))
        try:
            committed: Any = self._plane.commit(offsets=commit.requested, asynchronous=False)
        except KafkaException as error:
            return name_partitions(error.args[0], commit.requested)
        except Exception as error:  # noqa: BLE001 - its caller raises it, who may be another thread
            return error
        refused = [p for p in committed if p.error is not None]
        return name_partitions(refused[0].error, refused) if refused else None


@dataclass(eq=False, frozen=True, slots=True)
class _Commit:
    """Commit that is queued until it is answered."""

    requested: list[RawPartition]
    deadline: float
    is_allowed: Callable[[], bool]  # asked before each try
    answer: Future[None] = field(default_factory=Future[None])


class _Release(Event):
    """Acknowledgement of an event: the first `set` releases its partitions."""

    def __init__(self, release: Callable[[], None]) -> None:
        super().__init__()
        self._release = release

    def set(self) -> None:
        """Release the partitions."""
        if not self.is_set():
            super().set()
            self._release()


def _is_stale(error: Exception | None) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() == KafkaError.STALE_MEMBER_EPOCH


def _to_completed(offsets: dict[TopicPartition, CommitPosition], done: "Future[None]") -> CommitCompleted:
    error = done.exception()
    return CommitCompleted(offsets, error if isinstance(error, Exception) else None)


def _check_broker(settings: ConsumerSettings, plane: GroupDataPlane) -> None:
    check_connection(settings.librdkafka_config)  # librdkafka retries a rejected login for ever
    try:
        plane.cluster_id(CONNECT_TIMEOUT_S)
        plane.list_topics(settings.plan_topic or None, timeout=CONNECT_TIMEOUT_S)
    except KafkaException as error:
        diagnose_connection(settings.librdkafka_config)
        raise BrokerUnreachableError(settings.bootstrap) from error
