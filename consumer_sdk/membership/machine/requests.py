"""Requests of a member: their fields, and how long each waits for its answer."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from trimtab.assignor.rebalance.user_data import group_by_topic
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_protocol import apis
from trimtab.consumer_sdk.membership.machine.values import Commit, MemberOptions, MemberRequest, Protocols
from trimtab.consumer_sdk.membership.release_watch import LOOK_TIMEOUT_S

CONSUMER: Final = "consumer"  # protocol type
LEAVE_TIMEOUT_S: Final = 2.0  # without an answer the session timeout removes the member
JOIN_EXTRA_S: Final = 5.0  # Java's, beyond the rebalance timeout


class Identity(NamedTuple):
    """The member, as its coordinator knows it."""

    member_id: str
    generation: int


class RequestBuilder:
    """Builds the requests of one member."""

    def __init__(self, options: MemberOptions) -> None:
        self._options = options

    def find_coordinator(self, who: Identity, now: float) -> MemberRequest:
        """Return FindCoordinator, in the fields of all its versions."""
        group = self._options.group
        return self._build(apis.FIND_COORDINATOR, who, now, key=group, key_type=0, coordinator_keys=[group])

    def read_metadata(self, who: Identity, now: float, topics: list[dict[str, str]] | None) -> MemberRequest:
        """Return Metadata; None: of all topics."""
        return self._build(apis.METADATA, who, now, topics=topics)

    def join(self, who: Identity, now: float, protocols: Protocols) -> MemberRequest:
        """Return JoinGroup."""
        return self._build(
            apis.JOIN_GROUP,
            who,
            now,
            self._round_timeout,
            **self._identify(who),
            session_timeout_ms=round(self._options.session_timeout * 1000),
            rebalance_timeout_ms=round(self._options.rebalance_timeout * 1000),
            protocol_type=CONSUMER,
            protocols=[{"name": name, "metadata": data} for name, data in protocols],
        )

    def sync(
        self, who: Identity, now: float, protocol: str, assignments: Mapping[str, bytes]
    ) -> MemberRequest:
        """Return SyncGroup; only a leader has assignments."""
        return self._build(
            apis.SYNC_GROUP,
            who,
            now,
            self._round_timeout,
            **self._identify(who),
            protocol_type=CONSUMER,
            protocol_name=protocol,
            generation_id=who.generation,
            assignments=[{"member_id": one, "assignment": data} for one, data in assignments.items()],
        )

    def heartbeat(self, who: Identity, now: float) -> MemberRequest:
        """Return Heartbeat; no answer counts after the session timeout."""
        timeout = min(self._options.request_timeout, self._options.session_timeout)
        fields = {**self._identify(who), "generation_id": who.generation}
        return self._build(apis.HEARTBEAT, who, now, timeout, **fields)

    def leave(self, who: Identity, now: float, reason: str) -> MemberRequest:
        """Return LeaveGroup."""
        members = [{"member_id": who.member_id, "group_instance_id": None, "reason": reason}]
        group = self._options.group
        return self._build(apis.LEAVE_GROUP, who, now, LEAVE_TIMEOUT_S, group_id=group, members=members)

    def commit(self, who: Identity, now: float, commit: Commit) -> MemberRequest:
        """Return OffsetCommit."""
        topics = [
            {"name": topic, "partitions": [_write_offset(TopicPartition(topic, n), commit) for n in numbers]}
            for topic, numbers in group_by_topic(commit.offsets)
        ]
        return self._build(
            apis.OFFSET_COMMIT,
            who,
            now,
            subject=commit,
            **self._identify(who),
            generation_id_or_member_epoch=who.generation,
            topics=topics,
        )

    def look(self, who: Identity, now: float, awaited: Iterable[TopicPartition]) -> MemberRequest:
        """Return OffsetFetch of partitions whose release is awaited, in the fields of all its versions."""
        topics = [{"name": topic, "partition_indexes": list(n)} for topic, n in group_by_topic(awaited)]
        group = {"group_id": self._options.group, "topics": topics}
        return self._build(apis.OFFSET_FETCH, who, now, LOOK_TIMEOUT_S, **group, groups=[group])

    @property
    def _round_timeout(self) -> float:
        return max(self._options.request_timeout, self._options.rebalance_timeout + JOIN_EXTRA_S)

    def _identify(self, who: Identity) -> dict[str, Any]:
        return {
            "group_id": self._options.group,
            "member_id": who.member_id,
            "group_instance_id": self._options.group_instance_id,
        }

    def _build(
        self,
        api: apis.Api,
        who: Identity,
        now: float,
        timeout: float | None = None,
        subject: Any = None,
        **fields: Any,
    ) -> MemberRequest:
        until = now + (self._options.request_timeout if timeout is None else timeout)
        return MemberRequest(api, fields, now, until, who.generation, subject)


def _write_offset(partition: TopicPartition, commit: Commit) -> dict[str, Any]:
    at = commit.offsets[partition]
    return {
        "partition_index": partition.partition,
        "committed_offset": at.offset,
        "committed_metadata": at.metadata,
    }
