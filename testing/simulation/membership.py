"""Stand-in for kafka-python's consumer: the parts that the member and its coordinator use.

The coordinator follows `kafka.coordinator` 3.0, including what the product works around: one
join task that outlasts a poll, heartbeats that are off during a join, `rejoining` that survives a
failed join (so the listener hears of a loss only before the first one), and an assignment that is
applied before the listener has given up the revoked partitions.

Each coroutine of its I/O thread is one thread here; they take turns where the real one awaits.
"""

# pyright: reportPrivateUsage=false
# one stand-in in several classes
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kafka.coordinator.base import Generation
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.coordinator.heartbeat import Heartbeat
from kafka.errors import (
    CommitFailedError,
    CoordinatorNotAvailableError,
    IllegalGenerationError,
    KafkaConnectionError,
    KafkaError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.membership.classic.coordinator import MemberCoordinator
from trimtab.consumer_sdk.membership.classic.received_assignment import withhold_promised
from trimtab.testing.simulation import broker, green
from trimtab.testing.simulation.broker import Answer, Group, Log
from trimtab.testing.simulation.event_loop import Manager, Net, run
from trimtab.testing.simulation.network import Handler, Network, UnreachableError

UNJOINED: Final = "unjoined"
REBALANCING: Final = "rebalancing"
STABLE: Final = "stable"

ERRORS: Final[dict[str, type[KafkaError]]] = {
    broker.UNKNOWN_MEMBER: UnknownMemberIdError,
    broker.ILLEGAL_GENERATION: IllegalGenerationError,
    broker.REBALANCING: RebalanceInProgressError,
    broker.MEMBER_ID_REQUIRED: RebalanceInProgressError,  # is tried again at once, just so
}
METADATA: Final = 2.0
"""Seconds between metadata updates."""

BACKOFF: Final = 0.1


@dataclass(slots=True)
class Cluster:
    """Parts of the simulation that a process can reach."""

    hub: green.Hub
    network: Network
    group: Group
    log: Log


class Metadata:
    """Partitions of the topics, as of the last update."""

    def __init__(self) -> None:
        self.known: dict[str, set[int]] = {}
        self.unauthorized_topics: frozenset[str] = frozenset()
        self.stale = green.Event()

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return self.known.get(topic)

    def request_update(self) -> None:
        self.stale.set()


class Subscription:
    """Subscribed topics and assigned partitions."""

    def __init__(self) -> None:
        self.subscription: set[str] | None = None
        self.listener: Any = None
        self.assigned: set[KafkaPartition] = set()

    def assigned_partitions(self) -> set[KafkaPartition]:
        return set(self.assigned)

    def assign_from_subscribed(self, partitions: Iterable[KafkaPartition]) -> None:
        self.assigned = set(partitions)


@dataclass(slots=True)
class JoinMember:
    """Member of a round, as the leader gets it."""

    member_id: str
    metadata: bytes


@dataclass(slots=True)
class ClientSettings:
    """Settings of one member; durations in seconds."""

    heartbeat: float
    session_timeout: float
    poll_interval: float
    name: str


class StandInCoordinator(ConsumerCoordinator):  # type: ignore[misc] # kafka-python has no types
    """Client side of the group; derives from the real one only to come after ours in the MRO."""

    def __init__(self, cluster: Cluster, settings: ClientSettings, assignor: Any) -> None:
        self.config = {"retry_backoff_ms": BACKOFF * 1000, "group_instance_id": None}
        self.heartbeat = Heartbeat(
            group_id=settings.name,
            heartbeat_interval_ms=settings.heartbeat * 1000,
            session_timeout_ms=settings.session_timeout * 1000,
            max_poll_interval_ms=settings.poll_interval * 1000,
        )
        self.rejoin_needed = True
        self.rejoining = False
        self.state = UNJOINED
        self._at = cluster
        self._settings = settings
        self._assignor = assignor
        self._metadata = Metadata()
        self._subscription = Subscription()
        self._generation: Any = Generation.NO_GENERATION  # its methods are not typed
        self._is_leader = False
        self._join: green.Future | None = None
        self._beats = False
        self._beating = green.Event()
        self._closed = False
        self._assigned_for: dict[str, set[int]] | None = None
        self._begun = False

    # -- the member's thread ----------------------------------------------------------------------

    def request_rejoin(self) -> None:
        self.rejoin_needed = True

    def poll(self, timeout_ms: float) -> bool:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Join if needed, for up to `timeout_ms` plus the duration of the listener."""
        if not self._begun:
            self._begun = True
            green.process().start(self._heartbeat_loop)
            green.process().start(self._metadata_loop)
        if self._subscription.subscription is None:
            return True
        if self.need_rejoin() and not self._join_group(self._at.hub.now + timeout_ms / 1000):
            return False
        self.heartbeat.poll()
        return True

    def maybe_leave_group(self, reason: str = "", timeout_ms: float = 0) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Leave, on the member's thread."""
        run(self.maybe_leave_group_async(reason, timeout_ms))

    async def maybe_leave_group_async(self, reason: str = "", timeout_ms: float = 0) -> None:  # noqa: ARG002 - the interface
        """Leave, even if the coordinator is unreachable."""
        member = self._generation.member_id
        if self.state != UNJOINED and member:
            with suppress(UnreachableError):
                self._at.network.call(lambda respond: self._at.group.leave(member, respond), twice=False)
        self.reset_generation()

    def close(self) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Revoke the assignment and leave."""
        owned = set(self._subscription.assigned)
        if owned:
            listener = self._subscription.listener
            lost = self._generation.is_lost()
            run((listener.on_partitions_lost if lost else listener.on_partitions_revoked)(owned))
            self._subscription.assigned = set()
        self._closed = True
        self._beating.set()
        self._metadata.stale.set()
        self.maybe_leave_group()

    # -- joining ----------------------------------------------------------------------------------

    def need_rejoin(self) -> bool:
        changed = self._assigned_for is not None and self._assigned_for != self._metadata.known
        return changed or self.rejoin_needed

    def _join_group(self, deadline: float) -> bool:
        while self.need_rejoin():
            if self._join is None or self._join.done():
                self._begin_join()
            assert self._join is not None
            if not self._join.ended(max(0.0, deadline - self._at.hub.now)):
                return False  # the next poll waits for the same join
            join, self._join = self._join, None
            try:
                assignment = join.result()
            except (UnknownMemberIdError, RebalanceInProgressError, IllegalGenerationError):
                continue
            except KafkaError as error:
                if not error.retriable and not isinstance(error, KafkaConnectionError):
                    raise
                if self._at.hub.now >= deadline:
                    return False
                self._at.hub.sleep(BACKOFF)
                continue
            self.rejoining = self.rejoin_needed = False
            self.state = STABLE
            self._beats = True
            self.heartbeat.reset_timeouts()
            self._beating.set()
            self._on_join_complete(assignment)
            return True
        return True

    def _begin_join(self) -> None:
        if not self.rejoining:
            self._on_join_prepare()
            self.rejoining = True
            self._beats = False
        future = self._join = green.Future()
        green.process().start(lambda: _settle(future, self._join_and_sync))

    def _on_join_prepare(self) -> None:
        lost = set(self._subscription.assigned)
        if self._generation.is_lost() and lost:
            run(self._subscription.listener.on_partitions_lost(lost))
            self._subscription.assigned = set()
        self._is_leader = False

    def _join_and_sync(self) -> bytes:
        self.state = REBALANCING
        at, settings, member = self._at, self._settings, self._generation.member_id
        subscription = self._assignor.metadata(self._subscription.subscription).encode()
        answer = self._ask(
            lambda respond: at.group.join(member, settings.name, subscription, respond), twice=False
        )
        if answer.error == broker.MEMBER_ID_REQUIRED:
            self.reset_generation(answer.member)
            raise RebalanceInProgressError("with the id that was given")
        if answer.error is not None:
            if answer.error == broker.UNKNOWN_MEMBER:
                self.reset_generation()
            raise ERRORS[answer.error]
        if self.state != REBALANCING:
            raise CoordinatorNotAvailableError
        self._generation = Generation(answer.generation, answer.member, self._assignor.name)
        given = None if answer.members is None else self._assign(answer)
        return self._sync(answer, given)

    def _assign(self, answer: Answer) -> dict[str, bytes]:
        members = [JoinMember(name, data) for name, data in (answer.members or {}).items()]
        self._metadata.request_update()
        self._is_leader = True
        self._assigned_for = {t: set(n) for t, n in self._metadata.known.items()}
        return self._perform_assignment(answer.member, self._assignor.name, members)

    def _perform_assignment(self, _leader: str, _name: str, members: list[Any]) -> dict[str, bytes]:
        assignments: dict[str, bytes] = self._assignor.assign(self._metadata, members)
        return assignments

    def _sync(self, joined: Answer, given: dict[str, bytes] | None) -> bytes:
        group = self._at.group
        answer = self._ask(
            lambda respond: group.sync(joined.member, joined.generation, given, respond), twice=False
        )
        if answer.error is None:
            return answer.assignment
        self.request_rejoin()
        if answer.error == broker.UNKNOWN_MEMBER:
            self.reset_generation()
        elif answer.error == broker.ILLEGAL_GENERATION:
            self.reset_generation(self._generation.member_id)
        raise ERRORS[answer.error]

    def _on_join_complete(self, data: bytes) -> None:
        if not self._is_leader:
            self._assigned_for = None
        assignment = ConsumerProtocolAssignment.decode(withhold_promised(data))
        fresh = {KafkaPartition(tp.topic, tp.partition) for tp in assignment.partitions()}
        owned = set(self._subscription.assigned)
        self._subscription.assigned = fresh
        self._assignor.on_assignment(assignment, self._generation.generation_id)
        listener = self._subscription.listener
        if owned - fresh:
            run(listener.on_partitions_revoked(owned - fresh))
        if fresh - owned:
            run(listener.on_partitions_assigned(fresh - owned))
        if owned - fresh:
            self.request_rejoin()

    def reset_generation(self, member_id: str = "") -> None:
        self._generation = Generation(-1, member_id, None)
        self.rejoin_needed = True
        self.state = UNJOINED

    def _ask(self, handler: Handler, *, twice: bool = True, given_up: bool = False) -> Answer:
        try:
            answer: Answer = self._at.network.call(handler, twice=twice, given_up=given_up)
        except UnreachableError as error:
            raise KafkaConnectionError(str(error)) from None
        return answer

    # -- the I/O thread ---------------------------------------------------------------------------

    def _heartbeat_loop(self) -> None:
        while not self._closed:
            if not self._beats:
                self._beating.clear()
                self._beating.wait()
            elif self.state != STABLE:
                self._beats = False
            elif self.heartbeat.poll_timeout_expired():
                run(self.maybe_leave_group_async())
            else:
                self._beat()

    def _beat(self) -> None:
        hub = self._at.hub
        self.heartbeat.sent_heartbeat()
        try:
            run(self._send_heartbeat_request())
        except RebalanceInProgressError:
            self.heartbeat.received_heartbeat()
        except KafkaError:
            self.heartbeat.fail_heartbeat()
        else:
            self.heartbeat.received_heartbeat()
        hub.sleep(max(0.01, self.heartbeat.time_to_next_heartbeat()))

    async def _send_heartbeat_request(self) -> None:
        at = self._generation
        answer = self._ask(lambda respond: self._at.group.heartbeat(at.member_id, at.generation_id, respond))
        if answer.error is None:
            return
        if answer.error == broker.REBALANCING:
            self.request_rejoin()
        elif answer.error == broker.ILLEGAL_GENERATION:
            self.reset_generation(self._generation.member_id)
        else:
            self.reset_generation()
        raise ERRORS[answer.error]

    def _metadata_loop(self) -> None:
        while not self._closed:
            names = set(self._subscription.subscription or ())
            with suppress(UnreachableError):
                self._metadata.known = self._at.network.call(partial(self._answer_metadata, names))
            self._metadata.stale.clear()
            self._metadata.stale.wait(METADATA)

    def _answer_metadata(self, names: Iterable[str], respond: Callable[[Any], None]) -> None:
        respond(self._list_partitions(names))

    def _list_partitions(self, names: Iterable[str]) -> dict[str, set[int]]:
        topics = {name: self._at.log.partitions(name) for name in names}
        return {name: numbers for name, numbers in topics.items() if numbers}

    # -- commits ----------------------------------------------------------------------------------

    async def ensure_coordinator_ready_async(self, timeout_ms: float) -> bool:  # noqa: ARG002 - the interface
        return True

    async def fetch_committed_offsets_async(self, partitions: Any, timeout_ms: float) -> Any:  # noqa: ARG002 - the interface
        """Return the group's committed offsets of these partitions."""
        group = self._at.group

        def read(respond: Callable[[Any], None]) -> None:
            found = {p: group.offsets.get(TopicPartition(p.topic, p.partition)) for p in partitions}
            respond({p: OffsetAndMetadata(*at, -1) for p, at in found.items() if at is not None})

        try:
            return self._at.network.call(read)
        except UnreachableError as error:
            raise KafkaConnectionError(str(error)) from None

    async def _send_offset_commit_request(self, offsets: Any) -> None:
        if self.state == UNJOINED:
            raise CommitFailedError
        if self.state != STABLE:
            raise RebalanceInProgressError("the client rejoins")
        generation = self._generation
        positions = {
            TopicPartition(p.topic, p.partition): (at.offset, at.metadata) for p, at in offsets.items()
        }
        answer = self._ask(
            lambda respond: self._at.group.commit(
                generation.member_id, generation.generation_id, positions, respond
            ),
            twice=False,
            given_up=True,
        )
        if answer.error is None:
            return
        if answer.error == broker.REBALANCING:
            self.request_rejoin()
            raise CommitFailedError(RebalanceInProgressError())
        self.reset_generation("" if answer.error == broker.UNKNOWN_MEMBER else generation.member_id)
        raise CommitFailedError(ERRORS[answer.error]())


def _settle(future: green.Future, operation: Callable[[], bytes]) -> None:
    try:
        future.set_result(operation())
    except KafkaError as error:
        future.set_exception(error)


class SimulatedCoordinator(MemberCoordinator, StandInCoordinator):
    """The product's overrides on top of the stand-in for kafka-python's coordinator."""


class Client:
    """`kafka.KafkaConsumer`, as far as `GroupMember`, `coordinator` and `group_commits` use it."""

    def __init__(self, cluster: Cluster, settings: ClientSettings, assignor: Any, listener: Any) -> None:
        self._coordinator = SimulatedCoordinator(listener, assignor.name, cluster, settings, assignor)
        self._cluster = self._coordinator._metadata
        self._net = Net()
        self._manager = Manager()

    def subscribe(self, topics: Any = None, pattern: Any = None, listener: Any = None) -> None:
        assert pattern is None, "names only, here"
        subscription = self._coordinator._subscription
        subscription.subscription, subscription.listener = set(topics), listener
        self._cluster.request_update()

    def partitions_when_leading(self, topic: str) -> set[int]:
        """Return the topic's partitions in the metadata on which the member led its last round."""
        return (self._coordinator._assigned_for or {}).get(topic, set())

    def close(self, autocommit: bool = False, timeout_ms: float = 0) -> None:  # noqa: ARG002, FBT001, FBT002 - the interface
        self._coordinator.close()
