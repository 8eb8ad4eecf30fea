"""Everything private that we use of kafka-python 3; `tests/kafka/test_hooks.py` holds it.

Private, because the public interface can neither start a rebalance, nor join without fetching, nor
tell when the coordinator answered last, nor show the leader what the members sent, nor look out for
the second round of a move, nor tell that another consumer took our `group.instance.id`.
"""

# ruff: noqa: SLF001 - the reason is the module's docstring

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any, Final, NamedTuple

from kafka.coordinator.heartbeat import (
    Heartbeat,  # pyright: ignore[reportAttributeAccessIssue] # stubs of v2
)
from kafka.errors import (
    FencedInstanceIdError,
    IllegalGenerationError,
    KafkaError,
    TopicAuthorizationFailedError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.structs import OffsetAndMetadata
from kafka.structs import TopicPartition as KafkaPartition
from kafka.util import Timer  # pyright: ignore[reportAttributeAccessIssue] # stubs of v2

from trimtab.assignor.clients.leader_plugin import decode_subscriptions, subscribed_topics
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.consumer_sdk.membership.events import CommitPosition

COORDINATOR_LOOKUP_TIMEOUT_MS: Final = 5_000
"""How long a commit looks for the group's coordinator, in ms."""


FIRST_HEARTBEAT_MS: Final = 10
"""How soon after a join the first heartbeat follows, in ms; what a revocation takes at least."""

HEARTBEAT_INTERVAL_GROWTH: Final = 1.3
"""How much longer each wait is than the one before, up to heartbeat.interval.ms."""


class HeartbeatTimes(NamedTuple):
    """Times of the last heartbeat and of its answer, by `time.monotonic`."""

    sent_at: float
    received_at: float


def poll_coordinator(consumer: Any, timeout: float) -> None:
    """Join, rejoin and serve callbacks for up to `timeout` seconds; fetches nothing."""
    coordinator = consumer._coordinator
    if coordinator.rejoining:
        # A join that outlasts one step is forgotten, with the heartbeats off, when its cause was a
        # change of metadata: the leader's own assignment takes that cause away. So name it again.
        coordinator.request_rejoin()
    coordinator.poll(timeout_ms=timeout * 1000)


def read_heartbeat_times(consumer: Any) -> HeartbeatTimes:
    """Return when the coordinator was last in touch."""
    heartbeat = consumer._coordinator.heartbeat
    return HeartbeatTimes(heartbeat.last_send, heartbeat.last_receive)


class AdaptiveHeartbeat(Heartbeat):  # type: ignore[misc] # kafka-python has no types
    """Heartbeats that, once hastened, follow closely, then ever less, up to the usual interval.

    A cooperative move takes two rounds, and members learn of the second by a heartbeat. This way
    they wait for it a third as long as the revocation took at most, not a heartbeat's interval. It
    costs some twelve requests a member and move.
    """

    def __init__(self, configured: Heartbeat) -> None:
        super().__init__(**configured.config)
        self._configured_interval_ms: float = configured.config["heartbeat_interval_ms"]

    def shorten_interval(self) -> None:
        """Begin to follow closely."""
        self.config["heartbeat_interval_ms"] = min(FIRST_HEARTBEAT_MS, self._configured_interval_ms)

    def sent_heartbeat(self) -> None:
        """Wait longer for the next one."""
        super().sent_heartbeat()
        longer = self.config["heartbeat_interval_ms"] * HEARTBEAT_INTERVAL_GROWTH
        self.config["heartbeat_interval_ms"] = min(longer, self._configured_interval_ms)


def install_adaptive_heartbeat(consumer: Any) -> Callable[[], None]:
    """Return what makes heartbeats follow closely; made before the first join, called at its end.

    On the I/O thread, before the heartbeats go on.
    """
    coordinator = consumer._coordinator
    coordinator.heartbeat = AdaptiveHeartbeat(coordinator.heartbeat)
    hasten: Callable[[], None] = coordinator.heartbeat.shorten_interval
    return hasten


def watch_heartbeats(consumer: Any, rejoin_needed: Event, fenced: Event) -> None:
    """Set `rejoin_needed` when a heartbeat says that we must join again, or fails.

    `fenced` is set before when another consumer has taken our `group.instance.id` (KIP-345), where
    kafka-python only stops its heartbeats. Our membership is forgotten then, so that partitions
    count as lost and no commit is tried. Runs on the I/O thread.
    """
    coordinator = consumer._coordinator
    usual = coordinator._send_heartbeat_request

    async def beat() -> None:
        try:
            await usual()
        except FencedInstanceIdError:
            coordinator.reset_generation()
            fenced.set()
            rejoin_needed.set()
            raise
        except KafkaError:
            rejoin_needed.set()
            raise

    coordinator._send_heartbeat_request = beat


@dataclass(frozen=True, slots=True)
class MembershipListener:
    """Who is told, on the I/O thread, how it stands with the membership."""

    on_stable_heartbeat: Callable[
        [float], None
    ]  # a heartbeat found no rebalance; takes when it was sent
    on_leaving: Callable[
        [], None
    ]  # the group is about to be left: by us, or by kafka-python itself
    on_lost: Callable[[], None]  # it is over; the listener hears of it later


def watch_membership(consumer: Any, listener: MembershipListener) -> None:
    """Tell how it stands with the membership, and the listener of every loss.

    kafka-python asks whether the membership is lost only before the first try of a join. A later
    try that is answered with "unknown member" would begin a new membership, in which what was owned
    in the old one counts as ours: given up by a commit that takes the new owner's offsets back, or
    kept.
    """
    coordinator = consumer._coordinator
    beat, reset = coordinator._send_heartbeat_request, coordinator.reset_generation
    leave = coordinator.maybe_leave_group_async

    async def watched_beat() -> None:
        sent = coordinator.heartbeat.last_send
        await beat()  # raises where a rebalance is under way
        listener.on_stable_heartbeat(sent)

    async def watched_leave(*reason: Any, **named: Any) -> None:
        listener.on_leaving()
        await leave(*reason, **named)

    def watched_reset(*member: Any, **named: Any) -> None:
        listener.on_lost()
        reset(*member, **named)
        coordinator.rejoining = False  # so that the next try prepares anew

    coordinator._send_heartbeat_request = watched_beat
    coordinator.maybe_leave_group_async = watched_leave
    coordinator.reset_generation = watched_reset


def is_joining(consumer: Any) -> bool:
    """Say whether a join is under way, whose end would wipe out a request to rejoin."""
    return bool(consumer._coordinator.rejoining)


def must_join(consumer: Any) -> bool:
    """Say whether the next `poll_coordinator` has a join to do."""
    return bool(consumer._coordinator.need_rejoin())


def request_rejoin(consumer: Any) -> None:
    """Start a rebalance at the next `poll_coordinator`; lost if a join is under way."""
    consumer._coordinator.request_rejoin()


def is_leader(consumer: Any) -> bool:
    """Say whether this member made the group's last assignment."""
    return bool(consumer._coordinator._is_leader)


def member_id(consumer: Any) -> str:
    """Return the id that the broker gave us; empty before the first join."""
    return str(consumer._coordinator._generation.member_id)


def generation_id(consumer: Any) -> int:
    """Return the group's generation as we know it; -1 outside the group."""
    return int(consumer._coordinator._generation.generation_id)


def find_missing_topics(consumer: Any, topics: Iterable[str]) -> set[str]:
    """Return those of `topics` that the metadata does not hold, and ask for news if there are.

    Raises TopicAuthorizationFailedError for those that we may not see.
    """
    cluster = consumer._cluster
    if hidden := cluster.unauthorized_topics.intersection(topics):
        raise TopicAuthorizationFailedError(hidden)
    missing = {t for t in topics if not cluster.partitions_for_topic(t)}
    if missing:
        cluster.request_update()
    return missing


@dataclass
class RawSubscriptions:
    """Stands in for all members that joined, while kafka-python keeps its books."""

    subscriptions: Mapping[str, MemberSubscription]
    metadata: Any  # their topics, as kafka-python knows a subscription
    member_id: str = ""


def lead_on_raw_subscriptions(consumer: Any, protocol: str) -> None:
    """Give the assignor of `protocol` one `RawSubscriptions` in place of the decoded members.

    kafka-python makes an integer object of every partition that a member owns. Its own interest
    ends with the topics, so it is shown a stand-in that subscribes to all of them.
    """
    coordinator = consumer._coordinator
    usual = coordinator._perform_assignment

    def perform(leader: str, name: str, members: Any) -> Any:
        if name != protocol:
            return usual(leader, name, members)
        subscriptions = decode_subscriptions({m.member_id: bytes(m.metadata) for m in members})
        topics = ConsumerProtocolSubscription(
            version=0, topics=sorted(subscribed_topics(subscriptions)), user_data=b""
        )
        return usual(leader, name, [RawSubscriptions(subscriptions, topics.encode())])

    coordinator._perform_assignment = perform


def leave_group(consumer: Any, reason: str) -> None:
    """Leave the group; the next `poll_coordinator` tells the listener what was lost and joins again."""
    consumer._coordinator.maybe_leave_group(reason=reason, timeout_ms=2000)


def sleep_on_event_loop(consumer: Any, seconds: float) -> Any:
    """Return an awaitable for the client's own event loop."""
    return consumer._net.sleep(seconds)


def commit_offsets(
    consumer: Any,
    offsets: Mapping[TopicPartition, CommitPosition],
    timeout: float,
    still_owned: Callable[[], bool],
) -> None:
    """Commit with the member's generation and wait; may be called from any thread.

    `still_owned` is asked on the I/O thread, just before the request is made. Raises kafka-python's
    errors.
    """
    timer = Timer(timeout * 1000)
    pause = Event()
    while True:
        try:
            consumer._net.run(_send_commit, consumer, offsets, still_owned)
        except KafkaError as error:
            if not error.retriable or timer.expired:
                raise
            pause.wait(consumer._coordinator.config["retry_backoff_ms"] / 1000)
        else:
            return


def commit_offsets_async(
    consumer: Any,
    offsets: Mapping[TopicPartition, CommitPosition],
    still_owned: Callable[[], bool],
    on_done: Callable[[Exception | None], None],
) -> None:
    """Commit with the member's generation; `on_done` runs on the I/O thread."""
    future = consumer._manager.call_soon(_send_commit, consumer, offsets, still_owned)

    def succeed(_nothing: Any) -> None:
        on_done(None)

    future.add_callback(succeed)
    future.add_errback(on_done)


async def _send_commit(
    consumer: Any, offsets: Mapping[TopicPartition, CommitPosition], still_owned: Callable[[], bool]
) -> None:
    coordinator = consumer._coordinator
    await coordinator.ensure_coordinator_ready_async(timeout_ms=COORDINATOR_LOOKUP_TIMEOUT_MS)
    if not still_owned():
        raise IllegalGenerationError("the partitions were lost before this commit")
    # up to the request nothing else runs on this thread: it carries the generation of `still_owned`
    await coordinator._send_offset_commit_request(_to_kafka_python_offsets(offsets))


def _to_kafka_python_offsets(
    offsets: Mapping[TopicPartition, CommitPosition],
) -> dict[KafkaPartition, OffsetAndMetadata]:
    return {
        KafkaPartition(*p): OffsetAndMetadata(at.offset, at.metadata, -1)
        for p, at in offsets.items()
    }
