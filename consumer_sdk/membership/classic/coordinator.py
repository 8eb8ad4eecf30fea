"""Private parts of kafka-python 3 that membership uses; pinned by `tests/kafka/group/test_coordinator.py`.

Those of commits are in `group_commits`.

kafka-python's public interface cannot start a rebalance, join without fetching, report when the
coordinator last answered, hand the leader the raw subscriptions, shorten the heartbeat interval
before the second round of a move, or report a fenced `group.instance.id`. Another member's odd topics
end its leader, a leader's odd assignment ends its members, and a group's change of protocol makes them
drop their partitions.
"""

# ruff: noqa: SLF001 - the reason is the module's docstring

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

from kafka import KafkaConsumer
from kafka.coordinator.consumer import ConsumerCoordinator
from kafka.errors import (
    BrokerResponseError,
    FencedInstanceIdError,
    InvalidCommitOffsetSizeError,
    KafkaError,
    OffsetMetadataTooLargeError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription
from kafka.structs import TopicPartition as KafkaPartition
from kafka.util import WeakMethod, ensure_valid_topic_name

from trimtab.assignor.clients.kafka_python import ConsumerSubscription, read_consumer_subscription
from trimtab.assignor.clients.leader_plugin import decode_subscriptions, subscribed_topics
from trimtab.assignor.rebalance.consumer_protocol import MemberSubscription
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.commit_metadata import parse_release
from trimtab.consumer_sdk.membership.classic.adaptive_heartbeat import AdaptiveHeartbeat
from trimtab.consumer_sdk.membership.classic.received_assignment import (
    EMPTY_ASSIGNMENT,
    is_readable_assignment,
    withhold_promised,
)
from trimtab.consumer_sdk.membership.release_watch import LOOK_TIMEOUT_S, ReleaseWatch

log = logging.getLogger("trimtab.consumer_sdk")
# An error at each refresh, ten times a second: `missing_topics` logs one for all.
logging.getLogger("kafka.cluster").addFilter(lambda record: "not found in cluster" not in str(record.msg))
# A step of 0.1 s, as on a busy machine: nobody who uses a consumer can act on it.
logging.getLogger("kafka.net.selector").addFilter(
    lambda record: "blocking the event" not in record.getMessage()
)

PARTITION_ERRORS: Final[dict[int, str]] = {  # of a commit, which the broker gives one by one
    error.errno: error.message
    for error in (
        InvalidCommitOffsetSizeError,
        OffsetMetadataTooLargeError,
        TopicAuthorizationFailedError,
        UnknownTopicOrPartitionError,
    )
}
LEAVE_TIMEOUT_MS: Final = 2_000  # without an answer the session timeout removes the member


class HeartbeatTimes(NamedTuple):
    """Times of the last heartbeat and of its answer, by `SystemClock.monotonic`."""

    sent_at: float
    received_at: float


@dataclass(frozen=True, slots=True)
class MembershipListener:
    """Callbacks of the coordinator; all run on kafka-python's I/O thread."""

    on_stable_heartbeat: Callable[[float], None]  # a heartbeat, sent at this time, found no rebalance
    on_leaving: Callable[[], None]  # the member, or kafka-python itself, is about to leave the group
    on_lost: Callable[[], None]  # the membership ended; the rebalance listener is called later
    on_rejoin_needed: Callable[[], None]  # possibly: after a failed request, a loss, or new metadata
    on_fenced: Callable[[], None]  # another consumer took the group.instance.id; `on_rejoin_needed` follows
    # Whether commits of these partitions have to wait for the end of a round.
    is_unconfirmed: Callable[[Iterable[TopicPartition]], bool] = lambda _partitions: False


class RefusedPartitionsError(BrokerResponseError):  # type: ignore[misc] # kafka-python has no types
    """The broker refuses these partitions' offsets, and has committed the others of the request."""

    def __init__(self, refused: Mapping[TopicPartition, int]) -> None:
        self.errno = min(refused.values())  # kafka-python has one class for each code
        super().__init__(f"{PARTITION_ERRORS[self.errno]}: {', '.join(map(str, sorted(refused)))}")


@dataclass
class RawSubscriptions:
    """All members of a round, in the shape of one member of kafka-python."""

    subscriptions: Mapping[str, MemberSubscription]
    metadata: Any  # their topics, encoded as kafka-python expects a subscription
    member_id: str = ""


class MemberCoordinator(ConsumerCoordinator):  # type: ignore[misc] # kafka-python has no types
    """kafka-python's coordinator, reporting to `listener`; `protocol` is our assignor's name."""

    _REBALANCE_LISTENER_WARN_SECS = inf  # ours waits for the application, and blocks no event loop

    def __init__(self, listener: MembershipListener, protocol: str, *positional: Any, **config: Any) -> None:
        self._membership_listener = listener  # first: kafka-python's constructor handles metadata
        super().__init__(*positional, **config)
        self._raw_protocol = protocol
        self._is_fenced = False
        self.skips_next_rejoin = False
        self.waiting_commits: list[object] = []  # in order
        self.open_commits = 0  # without an answer yet
        self.doubtful_generation = -1  # the last one in which a commit failed, which may yet take effect
        self.heartbeat: Any = AdaptiveHeartbeat(self.heartbeat)

    async def _send_heartbeat_request(self) -> None:
        sent_at = self.heartbeat.last_send  # the lease counts from here, not from the answer
        try:
            await super()._send_heartbeat_request()  # pyright: ignore[reportAttributeAccessIssue]
        except FencedInstanceIdError:
            self._is_fenced = True  # first: the reset generation would make a join due
            # kafka-python only stops heartbeating. Reset the generation, so that partitions count as lost
            # and no commit is tried (KIP-345).
            self.reset_generation()
            self._membership_listener.on_fenced()
            self._membership_listener.on_rejoin_needed()
            raise
        except KafkaError:
            self._membership_listener.on_rejoin_needed()
            raise
        self._membership_listener.on_stable_heartbeat(sent_at)

    async def _do_join_and_sync_async(self) -> Any:
        if self._is_fenced:  # a join would fence the other consumer, whose join would fence this one again
            raise FencedInstanceIdError
        return await super()._do_join_and_sync_async()  # pyright: ignore[reportAttributeAccessIssue]

    def _handle_offset_commit_response(self, offsets: Any, send_time: float, response: Any) -> None:
        # kafka-python raises the first error of a partition, without its name. That of a deleted topic is
        # retriable for it; Kafka's other clients end the commit, since the other partitions are committed.
        answers = {TopicPartition(topic, n): code for topic, found in response.topics for n, code in found}
        refused = {partition: code for partition, code in answers.items() if code in PARTITION_ERRORS}
        others = [(p.topic, [(p.partition, code)]) for p, code in answers.items() if p not in refused]
        super()._handle_offset_commit_response(offsets, send_time, SimpleNamespace(topics=others))  # pyright: ignore[reportAttributeAccessIssue]
        if refused:
            raise RefusedPartitionsError(refused)

    async def maybe_leave_group_async(self, *positional: Any, **named: Any) -> None:
        """Report the departure, then leave."""
        # Before the request: once the group knows, other members read, so the lease must be over.
        self._membership_listener.on_leaving()
        await super().maybe_leave_group_async(*positional, **named)  # pyright: ignore[reportAttributeAccessIssue]

    def request_rejoin(self) -> None:
        """Start a rebalance at the next poll, unless the round that revoked partitions is the only one."""
        if self.skips_next_rejoin:
            self.skips_next_rejoin = False
        else:
            super().request_rejoin()

    def reset_generation(self, member_id: str = "") -> None:
        """Report the loss and make the next attempt to join prepare again."""
        current: Any = self
        if member_id and member_id == current._generation.member_id and current.is_dynamic_member():
            # ILLEGAL_GENERATION to a member that the group knows: a group of both protocols has become a
            # classic one, at a later generation than this member has joined. It has lost nothing: the
            # rebalance that follows waits for it. (A static member may have missed a rebalance instead.)
            self.request_rejoin()
            return
        self._membership_listener.on_lost()
        super().reset_generation(member_id)
        # kafka-python checks for a lost membership before the first attempt of a join only. A later
        # attempt, answered with UNKNOWN_MEMBER_ID, would carry the partitions of the old membership
        # into the new one: kept, or released by a commit that rewinds the new owner's offsets.
        self.rejoining = False
        self._membership_listener.on_rejoin_needed()

    def _perform_assignment(self, leader_id: str, protocol: str, members: Any) -> Any:
        # kafka-python decodes each owned partition into an integer object, but needs the topics
        # only. One stand-in that subscribes to all topics keeps the subscriptions in bytes.
        if protocol != self._raw_protocol:
            return super()._perform_assignment(leader_id, protocol, members)  # pyright: ignore[reportAttributeAccessIssue]
        subscriptions = decode_subscriptions({m.member_id: bytes(m.metadata) for m in members})
        topics = sorted(filter(_is_topic_name, subscribed_topics(subscriptions)))
        metadata = ConsumerProtocolSubscription(version=0, topics=topics, user_data=b"").encode()
        everyone = [RawSubscriptions(subscriptions, metadata)]
        return super()._perform_assignment(leader_id, protocol, everyone)  # pyright: ignore[reportAttributeAccessIssue]

    def _handle_metadata_update(self, cluster: Any) -> None:
        # kafka-python ignores an update with a denied topic, so that new partitions remain unknown. A
        # leader asks for the topics of all members: another member's must not do that.
        denied, cluster.unauthorized_topics = cluster.unauthorized_topics, set()
        try:
            super()._handle_metadata_update(cluster)  # pyright: ignore[reportAttributeAccessIssue]
        finally:
            cluster.unauthorized_topics = denied  # `find_missing_topics` reports this member's own
            self._membership_listener.on_rejoin_needed()  # perhaps: of new topics and partitions

    async def _on_join_complete_async(
        self, generation: int, member_id: str, protocol: str, assignment: bytes
    ) -> None:
        self.skips_next_rejoin = False  # a revocation before the join (of a topic left) requests none
        # kafka-python ends with a decoding error; a hostile leader would end all members.
        if not is_readable_assignment(assignment):
            text = "the leader's assignment is unreadable: %r; reading nothing until the next rebalance"
            log.warning(text, bytes(assignment[:80]))
            assignment = EMPTY_ASSIGNMENT
        elif protocol == self._raw_protocol:  # another assignor promises nothing, and its data is its own
            assignment = withhold_promised(assignment)
        await super()._on_join_complete_async(generation, member_id, protocol, assignment)  # pyright: ignore[reportAttributeAccessIssue]


def _is_topic_name(name: str) -> bool:
    try:
        ensure_valid_topic_name(name)
    except ValueError:  # kafka-python raises it in the leader if any member subscribes to such a name
        return False
    return True


def create_member_client(
    config: Mapping[str, Any], assignors: Sequence[Any], protocol: str, listener: MembershipListener
) -> Any:
    """Return a KafkaConsumer that joins by a `MemberCoordinator`; `protocol` is our assignor's name.

    Raises KafkaTimeoutError and KafkaConnectionError if no broker answers.
    """
    client = KafkaConsumer(**config, partition_assignment_strategy=list(assignors))
    client._net.run(_replace_coordinator, client, protocol, listener)  # pyright: ignore[reportAttributeAccessIssue]
    return client


async def _replace_coordinator(client: Any, protocol: str, listener: MembershipListener) -> None:
    # KafkaConsumer has no parameter for the coordinator's class. On the I/O thread, since a
    # metadata update there iterates over the cluster's listeners.
    client._cluster.remove_listener(WeakMethod(client._coordinator._handle_metadata_update))
    client._coordinator = MemberCoordinator(
        listener,
        protocol,
        client._client,
        client._subscription,
        metrics=client._metrics,
        assignors=client.config["partition_assignment_strategy"],
        **client.config,
    )


def shorten_heartbeat_interval(consumer: Any) -> None:
    """Send the next heartbeats at short intervals; call on the I/O thread, at the end of a join."""
    consumer._coordinator.heartbeat.shorten_interval()


def read_subscription(consumer: Any) -> ConsumerSubscription:
    """Return the partitions that the client owns, since which generation, and its topics."""
    return read_consumer_subscription(consumer._coordinator)


def poll_coordinator(consumer: Any, timeout: float) -> None:
    """Join, rejoin and run callbacks for up to `timeout` seconds, without fetching."""
    coordinator = consumer._coordinator
    if coordinator.rejoining:
        # kafka-python forgets a join that outlasts one poll, with heartbeats off, if a metadata
        # change caused it: the leader's own assignment removes that cause. So restore it.
        coordinator.request_rejoin()
    coordinator.poll(timeout_ms=timeout * 1000)


def read_heartbeat_times(consumer: Any) -> HeartbeatTimes:
    """Return the times of the last heartbeat and of the last answer."""
    heartbeat = consumer._coordinator.heartbeat
    return HeartbeatTimes(heartbeat.last_send, heartbeat.last_receive)


def is_joining(consumer: Any) -> bool:
    """Return whether a join is in progress; its end discards a rejoin request."""
    return bool(consumer._coordinator.rejoining)


def must_join(consumer: Any) -> bool:
    """Return whether the next `poll_coordinator` will join."""
    return bool(consumer._coordinator.need_rejoin())


def is_settled(consumer: Any) -> bool:
    """Return whether the member is in the group and its last heartbeat did not fail."""
    return generation_id(consumer) >= 0 and not consumer._coordinator.heartbeat.heartbeat_failed


def request_rejoin(consumer: Any) -> None:
    """Start a rebalance at the next `poll_coordinator`; has no effect during a join."""
    consumer._coordinator.request_rejoin()


def is_leader(consumer: Any) -> bool:
    """Return whether this member computed the group's last assignment."""
    return bool(consumer._coordinator._is_leader)


def member_id(consumer: Any) -> str:
    """Return the id assigned by the broker; empty before the first join."""
    return str(consumer._coordinator._generation.member_id)


def generation_id(consumer: Any) -> int:
    """Return the last known generation of the group; -1 outside the group."""
    return int(consumer._coordinator._generation.generation_id)


def read_generation(consumer: Any) -> tuple[int, str]:
    """Return generation and member id of one membership: (-1, "") before the first join."""
    generation = consumer._coordinator._generation  # read once: a join replaces it
    return int(generation.generation_id), str(generation.member_id)


def set_sasl_credentials(consumer: Any, username: str, password: str) -> None:
    """Use these for connections made from now on."""
    consumer._manager.config |= {"sasl_plain_username": username, "sasl_plain_password": password}


def find_missing_topics(consumer: Any, topics: Iterable[str]) -> set[str]:
    """Return the topics without metadata; request a metadata update if there are any.

    Raises TopicAuthorizationFailedError for topics without the right to describe them.
    """
    cluster = consumer._cluster
    if denied := cluster.unauthorized_topics.intersection(topics):
        raise TopicAuthorizationFailedError(denied)
    missing = {t for t in topics if not cluster.partitions_for_topic(t)}
    if missing:
        cluster.request_update()
    return missing


def leave_group(consumer: Any, reason: str) -> None:
    """Leave the group; the next `poll_coordinator` reports the lost partitions and joins again."""
    consumer._coordinator.maybe_leave_group(reason=reason, timeout_ms=LEAVE_TIMEOUT_MS)


def sleep_on_event_loop(consumer: Any, seconds: float) -> Any:
    """Return an awaitable sleep for the client's event loop."""
    return consumer._net.sleep(seconds)


def begin_released(watch: ReleaseWatch, client: Any, now: float) -> frozenset[TopicPartition]:
    """Claim and return the promised partitions that have been released, if it is time to look."""
    awaited = watch.take_look(now)
    if not awaited:
        return frozenset()
    try:
        found = find_released(client, awaited, watch.token, LOOK_TIMEOUT_S)
    except KafkaError:  # without the coordinator no round ends either
        return frozenset()
    released = watch.promised.intersection(found)
    if released and not claim_partitions(client, released, watch.generation):
        return frozenset()
    watch.record_look(found, released, now)
    return released


def find_released(
    consumer: Any, partitions: Iterable[TopicPartition], token: str, timeout: float
) -> dict[TopicPartition, bool]:
    """Return which partitions' last commit releases them in the round of this token; True: confirmed."""
    wanted = [KafkaPartition(*p) for p in sorted(partitions)]
    fetch = consumer._coordinator.fetch_committed_offsets_async
    found = consumer._net.run(fetch, wanted, timeout * 1000)
    releases = {TopicPartition(p.topic, p.partition): parse_release(at.metadata) for p, at in found.items()}
    return {p: release.is_confirmed for p, release in releases.items() if release.token == token}


def claim_partitions(consumer: Any, partitions: Iterable[TopicPartition], generation: int) -> bool:
    """Own these partitions, too, unless a join has begun since the generation; return whether they are."""
    claimed = {KafkaPartition(*p) for p in partitions}
    return bool(consumer._net.run(_claim_partitions, consumer._coordinator, claimed, generation))


async def _claim_partitions(group: Any, claimed: set[KafkaPartition], generation: int) -> bool:
    # On the I/O thread, where a membership ends. The application may have left a topic since the promise.
    left = {p.topic for p in claimed}.difference(group._subscription.subscription or ())
    if left or group.rejoining or group._generation.generation_id != generation:
        return False
    claimed.update(group._subscription.assigned_partitions())
    group._subscription.assign_from_subscribed(sorted(claimed))
    return True


def skip_rejoin(consumer: Any) -> None:
    """Stay in this round after a revocation; call on the I/O thread, in the rebalance listener."""
    consumer._coordinator.skips_next_rejoin = True
