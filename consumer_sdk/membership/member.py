"""The group member: joins, heartbeats, leads, commits with its generation; never fetches.

Threads: the member's own thread drives joins; kafka-python's I/O thread heartbeats and runs the
listener; the application's thread takes events from `inbox` and commits. The rules:

1. Partitions are released only after the application acknowledged the `Revoked` event, or was lost
   first.
2. While the listener waits for that, heartbeats go on (the wait is a coroutine on the I/O thread).
3. An application that has not polled for `max.poll.interval.ms` is taken for dead: the member
   leaves the group, so that its partitions find a new owner, and joins again when the application
   is back (KIP-62).
4. Only the leader acts on a new plan; `following` has the rules.
5. A static member (`group.instance.id`, KIP-345) stays in the group when it closes; one that comes
   back within its session gets what it had without a rebalance, and is not told whether it led. So
   until its first rebalance it acts on a plan that is newer than its return. If another consumer
   takes its name it stops with an error: it must not take the name back.
"""

import logging
import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from threading import Event, Thread
from typing import Any, Final

from kafka import KafkaConsumer
from kafka.consumer.subscription_state import (
    AsyncConsumerRebalanceListener,  # pyright: ignore[reportAttributeAccessIssue] # stubs of v2
)
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.errors import (
    FencedInstanceIdError,
    GroupAuthorizationFailedError,
    InconsistentGroupProtocolError,
    KafkaConnectionError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)
from kafka.errors import KafkaError as KafkaPythonError

from trimtab.assignor.clients.kafka_python import TrimtabAssignor
from trimtab.assignor.clients.leader_plugin import log_round, placement_data
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.leader import Round, View
from trimtab.common.clock import Clock
from trimtab.common.control_topics.values import GroupPlan
from trimtab.common.kafka_security.preflight import diagnose, knock
from trimtab.consumer_sdk.consumer.settings import Settings
from trimtab.consumer_sdk.errors import BrokerUnreachable, MembershipFailed, NotAllowed
from trimtab.consumer_sdk.membership import coordinator
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopics
from trimtab.consumer_sdk.membership.events import (
    Assigned,
    Committed,
    Failed,
    Lost,
    MembershipEvent,
    Position,
    Revoked,
)
from trimtab.consumer_sdk.membership.lease import Lease
from trimtab.consumer_sdk.membership.plan_follower import Following

log = logging.getLogger("trimtab.consumer_sdk")

TURN: Final = 0.05
"""Seconds of one turn of the member's loop: how late it can notice a new plan or the end."""

TURN_DUE: Final = 0.001
"""The same while there is a join to do."""

JOINING: Final = 1.0
"""Seconds for one step of a join; less than a metadata update takes would never let it end."""

CATCH_UP: Final = 3.0
"""Seconds that the first join may wait for the control topics: better than deciding blind."""

BOOTSTRAP_MS: Final = 10_000
"""How long the first connection may take, in ms."""

RETRY: Final = 0.5
"""Seconds until the next try after the broker could not be reached."""

LOOK_AGAIN: Final = 1.0
"""Seconds between two looks for a subscribed topic that does not exist yet."""

ACK_POLL: Final = 0.002
"""Seconds between two looks for the application's acknowledgement; adds to every handover."""


class Member:
    """One membership in a consumer group; made and used by `Consumer`."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.inbox: deque[MembershipEvent] = deque()
        self.tenure = 0  # changed on the client's I/O thread only, where commits look at it too
        self._settings = settings
        self._clock = clock
        self._control = ControlTopics(settings, clock)
        self._assignor = _TimedAssignor(
            clock,
            settings.heuristic,
            settings.capacity,
            instance=settings.instance,
            rack=settings.rack,
            view=self._view,
            on_round=self._on_round,
        )
        self.client = _connect(settings, self._assignor)
        coordinator.lead_on_bytes(self.client, self._assignor.name)
        watcher = coordinator.Watcher(self._on_calm, self._on_leaving, self._on_loss)
        coordinator.watch_membership(self.client, watcher)
        self._assignor.hasten = coordinator.beat_closely(self.client)
        self._fenced = Event()
        self._news = Event()  # set after what caused it: the thread's next turn comes at once
        coordinator.watch_heartbeats(self.client, self._news, self._fenced)
        self._lease = Lease(settings.session_timeout, clock.monotonic())
        self._calm = clock.monotonic()
        self._lost = -inf  # when; what the coordinator answered before counts no more
        self._closing = Event()
        self._rejoin = Event()
        self._absent = False
        self._polled = clock.monotonic()
        self._following = Following()
        self._led_by: GroupPlan | None = None
        self._names: frozenset[str] = frozenset()
        self._missing: set[str] = set()
        self._look_at = clock.monotonic() + LOOK_AGAIN
        self._thread = Thread(target=self._run, name=f"trimtab-{settings.instance}", daemon=True)

    # -- the application's side -------------------------------------------------------------------

    def start(self, topics: Sequence[str]) -> None:
        """Subscribe and begin to join; `topics` are names, or patterns that begin with "^"."""
        listener = _Listener(self)
        self._names = frozenset(t for t in topics if not t.startswith("^"))
        pattern = topic_pattern(topics)
        if pattern is None:
            self.client.subscribe(topics=list(topics), listener=listener)
        else:
            self.client.subscribe(pattern=pattern, listener=listener)
        if not self._thread.is_alive():
            self._control.start(topics)
            self._thread.start()
        self._rejoin.set()

    def polled(self) -> None:
        """Note that the application is alive."""
        self._polled = self._clock.monotonic()

    def may_read(self) -> bool:
        """Say whether the lease holds."""
        lease = self._lease.heard(*coordinator.contact(self.client))
        self._lease = lease.known(self._assignor.joined)
        round_ = Lease(self._settings.max_poll_interval, max(self._calm, self._assignor.joined))
        now = self._clock.monotonic()
        return self._lease.contact > self._lost and self._lease.valid(now) and round_.valid(now)

    @property
    def rebalancing(self) -> bool:
        """Whether a join is under way, or has just ended: partitions may come or go."""
        ended = self._clock.monotonic() - self._assignor.told < TURN
        return ended or coordinator.joining(self.client)

    @property
    def id(self) -> str:
        """The broker's id of this member; empty before the first join."""
        return coordinator.member_id(self.client)

    @property
    def generation(self) -> int:
        """The group's generation as we know it; -1 outside the group."""
        return coordinator.generation(self.client)

    def drain(self) -> None:
        """Ask the group to take everything from this member."""
        self._assignor.drain()
        self.rejoin()

    def rejoin(self) -> None:
        """Start a rebalance, after the one that may be under way."""
        self._rejoin.set()
        self._news.set()

    def commit(
        self, offsets: Mapping[TopicPartition, Position], tenure: int, timeout: float
    ) -> None:
        """Commit and wait up to `timeout` seconds. Raises kafka-python's errors."""
        coordinator.commit(self.client, offsets, timeout, lambda: tenure == self.tenure)

    def commit_async(self, offsets: Mapping[TopicPartition, Position], tenure: int) -> None:
        """Commit in the background; the outcome arrives in the inbox."""
        taken = dict(offsets)
        coordinator.commit_async(
            self.client,
            taken,
            lambda: tenure == self.tenure,
            lambda error: self.inbox.append(Committed(taken, error)),
        )

    def stop(self) -> None:
        """Begin to leave: the listener is told, `inbox` must be served until `stopped`."""
        self._closing.set()
        self._news.set()

    @property
    def stopped(self) -> bool:
        """Whether the member's thread has ended, or was never started."""
        return not self._thread.is_alive()

    # -- the member's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._control.wait(CATCH_UP)
            while not self._closing.is_set():
                self._try_turn()
        except Exception as error:  # noqa: BLE001 - whatever it was, the application must hear of it
            self.inbox.append(Failed(_explain(error, self._settings)))
        finally:
            self._end()

    def _try_turn(self) -> None:
        try:
            self._turn()
        except KafkaPythonError as error:
            if not _passing(error):
                raise
            log.warning("group %s: %s; trying again", self._settings.group, _name(error))
            self._closing.wait(RETRY)

    def _turn(self) -> None:
        if self._fenced.is_set():
            raise FencedInstanceIdError
        overdue = self._clock.monotonic() - self._polled > self._settings.max_poll_interval
        if overdue and not self._absent:
            log.warning(
                "no poll for %.1f s (max.poll.interval.ms): leaving group %s until it is back",
                self._settings.max_poll_interval,
                self._settings.group,
            )
            coordinator.leave(self.client, "the application does not poll")
        self._absent = overdue
        if not overdue:
            self._follow_plan()
            self._look_for_missing()
            if self._rejoin.is_set() and not coordinator.joining(self.client):
                self._rejoin.clear()
                coordinator.request_rejoin(self.client)
            coordinator.drive(self.client, JOINING)
        due = not overdue and (self._rejoin.is_set() or coordinator.must_join(self.client))
        self._news.wait(TURN_DUE if due else TURN)
        self._news.clear()

    @property
    def plan(self) -> GroupPlan | None:
        """The plan in force; None where there is none, or none has been read yet."""
        return self._control.plan

    def _follow_plan(self) -> None:
        plan = self._control.plan
        if plan is None:
            return
        if not self._assignor.rounds:
            self._following.found(plan)
        elif self._leads() and self._following.due(plan, self._clock.monotonic()):
            log.info("plan %d of group %s: %s", plan.epoch, plan.group, "; ".join(plan.reasons))
            self._rejoin.set()

    def _leads(self) -> bool:
        """Say whether we lead; a static member that came back may, and is not told (KIP-814)."""
        came_back = self._settings.static and self._assignor.rounds == 1
        return came_back or coordinator.is_leader(self.client)

    def _look_for_missing(self) -> None:
        now = self._clock.monotonic()
        if now < self._look_at:
            return
        self._look_at = now + LOOK_AGAIN
        missing = coordinator.look_for(self.client, self._names)
        for topic in sorted(missing - self._missing):
            log.warning("topic %r does not exist at %s; waiting", topic, self._settings.bootstrap)
        self._missing = missing

    def _on_calm(self, sent: float) -> None:
        self._calm = sent

    def _on_leaving(self) -> None:
        self._lost = inf  # before others read; an application that is back waits for our join

    def _on_loss(self) -> None:
        self._lost = self._clock.monotonic()

    def _view(self) -> View:
        view = self._control.view()
        self._led_by = view.plan  # a newer one may be read before the round has ended
        return view

    def _on_round(self, outcome: Round) -> None:
        self._following.decided(self._led_by, len(outcome.roll.ids))
        log_round(outcome)

    def _end(self) -> None:
        try:
            self.client.close(autocommit=False, timeout_ms=5000)
        except Exception as error:  # noqa: BLE001 - leaving is best effort; the session timeout does the rest
            log.warning("leaving group %s: %s", self._settings.group, error)
        self._control.stop()


class _TimedAssignor(TrimtabAssignor):
    """Knows when the join was asked for that has been answered last: from then on we are known.

    `rounds` counts the assignments that it was told, `told` is when it was told the last; `hasten`
    is called when another round is to follow.
    """

    def __init__(self, clock: Clock, *settings: Any, **more: Any) -> None:
        super().__init__(*settings, **more)
        self._clock = clock
        self._asked = self.joined = clock.monotonic()
        self.told = -inf
        self.rounds = 0
        self.hasten: Callable[[], None] = lambda: None

    def metadata(self, topics: Iterable[str]) -> Any:
        """Note the time; this is called just before each JoinGroup is sent."""
        self._asked = self._clock.monotonic()
        return super().metadata(topics)

    def on_assignment(self, assignment: Any, generation: int) -> None:
        """Take that time as the contact; this is called when SyncGroup was answered."""
        self.joined = self._asked
        self.told = self._clock.monotonic()
        self.rounds += 1
        if placement_data(assignment.user_data).more:
            self.hasten()
        super().on_assignment(assignment, generation)

    def assign(self, cluster: Any, members: Sequence[Any]) -> dict[str, bytes]:
        """Lead on what the members sent."""
        everybody: coordinator.Everybody = members[0]
        return self.lead(cluster, everybody.subscriptions)


class _Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc] # kafka-python has no types
    """Passes rebalance callbacks on to the inbox; runs on kafka-python's I/O thread."""

    def __init__(self, member: Member) -> None:
        self._member = member

    async def on_partitions_assigned(self, assigned: Any) -> None:
        self._member.inbox.append(Assigned(_partitions(assigned), self._member.tenure))

    async def on_partitions_revoked(self, revoked: Any) -> None:
        event = Revoked(_partitions(revoked))
        if not event.partitions:
            return
        self._member.inbox.append(event)
        while not event.done.is_set():
            await coordinator.sleep(self._member.client, ACK_POLL)

    async def on_partitions_lost(self, lost: Any) -> None:
        self._member.tenure += 1
        self._member.inbox.append(Lost(_partitions(lost)))


def topic_pattern(topics: Sequence[str]) -> str | None:
    """Return one pattern for a mix of names and "^patterns", or None where there are names only."""
    if not any(t.startswith("^") for t in topics):
        return None
    parts = [t if t.startswith("^") else f"^{re.escape(t)}$" for t in topics]
    return "|".join(f"(?:{part})" for part in parts)


def _connect(settings: Settings, assignor: TrimtabAssignor) -> Any:
    """Return kafka-python's member. Raises BrokerUnreachable, LoginRefused, TlsFailed."""
    older = [CooperativeStickyAssignor()] if settings.upgrading else []
    own: dict[str, Any] = {
        "enable_auto_commit": False,
        "bootstrap_timeout_ms": BOOTSTRAP_MS,
        "partition_assignment_strategy": [assignor, *older],
    }
    knock(settings.data)
    try:
        return KafkaConsumer(**settings.control, **own)
    except (KafkaTimeoutError, KafkaConnectionError) as error:
        diagnose(settings.data)
        raise BrokerUnreachable(settings.bootstrap) from error


def _passing(error: KafkaPythonError) -> bool:
    """Say whether trying again can help: brokers that are away come back."""
    return bool(error.retriable) or isinstance(error, KafkaConnectionError)


def _name(error: Exception) -> str:
    text = str(error)
    kind = type(error).__name__
    return text if text.startswith(kind) else f"{kind}: {text}".rstrip(": ")


def _explain(error: Exception, settings: Settings) -> MembershipFailed:
    who = f"group {settings.group}, instance {settings.instance}"
    if isinstance(error, GroupAuthorizationFailedError):
        return NotAllowed(f"{who}: may not be in the group; grant Read on group {settings.group}")
    if isinstance(error, TopicAuthorizationFailedError):
        hidden = ", ".join(sorted(map(str, error.args[0] if error.args else ())))
        return NotAllowed(f"{who}: may not see topic {hidden}; grant Read on topic {hidden}")
    hint = ""
    if isinstance(error, FencedInstanceIdError):
        hint = (
            "; another consumer of this group has taken the same group.instance.id: "
            "give each its own"
        )
    if isinstance(error, InconsistentGroupProtocolError):
        hint = (
            "; its members use another assignor: stop them first, or upgrade one by one with "
            'partition.assignment.strategy="trimtab,cooperative-sticky"'
        )
    return MembershipFailed(f"{who}: {_name(error)}{hint}")


def _partitions(partitions: Any) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(tp.topic, tp.partition) for tp in partitions)
