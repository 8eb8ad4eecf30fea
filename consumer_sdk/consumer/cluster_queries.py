"""Queries of a consumer to its cluster and group, with confluent-kafka's results."""

from collections.abc import Sequence
from typing import Any

from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as RawPartition

from trimtab.common.clock import Clock
from trimtab.consumer_sdk.client.client_adapters import encode_group_metadata
from trimtab.consumer_sdk.client.membership_events import MembershipEnded, PartitionsLost
from trimtab.consumer_sdk.client.offset_reset import OffsetReset, OffsetResetHandler
from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.consumer.partition_state import PartitionState
from trimtab.consumer_sdk.errors import ConsumerClosedError
from trimtab.consumer_sdk.membership.membership import Membership


class ClusterQueries:
    """Methods of `Consumer` that neither read nor commit."""

    _clock: Clock
    _closed: bool
    _data_plane: DataConsumer
    _member: Membership | None  # another thread's close() or unsubscribe() may set None at any time
    _offset_resets: OffsetResetHandler
    _partitions: PartitionState
    _settings: ConsumerSettings

    def assignment(self) -> list[RawPartition]:
        """Return the partitions that are being read."""
        return list(self._data_plane.assignment())

    def consumer_group_metadata(self) -> bytes:
        """Return this membership for a producer's `send_offsets_to_transaction` (KIP-447).

        From the first call on, the offsets of this consumer are taken to be committed in transactions,
        so a release commits none. Waits, for at most 6 s, while the last commit of a former owner of some
        partition may still arrive, which would undo the transaction's offset. Raises KafkaException,
        ILLEGAL_GENERATION, if the group removed this member and its partitions are not assigned again.
        """
        self._check_not_closed()
        self._partitions.transactional = True
        member = self._member
        generation, member_id = member.read_generation() if member else (-1, "")
        # After the read: a later membership may own none of the partitions that were consumed.
        if member is not None and not member.is_current(self._partitions.membership_epoch):
            raise KafkaException(KafkaError(KafkaError.ILLEGAL_GENERATION, "removed from the group"))
        instance = self._settings.group_instance_id
        return encode_group_metadata(self._settings.group, generation, member_id, instance)

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """Use these at the next login of each connection; those that exist stay."""
        self._data_plane.set_sasl_credentials(username, password)
        self._settings.set_sasl_credentials(username, password)
        if (member := self._member) is not None:
            member.set_sasl_credentials(username, password)

    def holds_lease(self) -> bool:
        """Return whether the records returned so far are of partitions that no other member reads."""
        member = self._member
        if member is None:  # assign() without a subscription: no other reader, no lease
            return bool(self._partitions.owned)
        return member.holds_lease() and not self._has_lost_partitions(member)

    def _has_lost_partitions(self, member: Membership) -> bool:
        """Return whether a membership has ended since the last event; call it after `holds_lease`."""
        # A membership that was lost and renewed holds a lease, but not on the same partitions. The loss is
        # in the inbox before the join that renews the lease, so it is not missed between the two calls.
        return any(isinstance(event, PartitionsLost | MembershipEnded) for event in tuple(member.inbox))

    def drain(self) -> None:
        """Request an empty assignment; this consumer stays in the group, idle."""
        if (member := self._member) is not None:
            member.drain()

    def cluster_id(self, timeout: float = -1) -> str:
        """Return the id of the cluster."""
        return str(self._data_plane.cluster_id(timeout))

    def memberid(self) -> str | None:
        """Return the member id assigned by the broker; None before the first join."""
        self._check_not_closed()
        return (member.member_id or None) if (member := self._member) else None

    def generation_id(self) -> int:
        """Return the last known generation of the group; -1 outside the group."""
        return member.generation_id if (member := self._member) else -1

    def committed(self, partitions: Sequence[RawPartition], timeout: float = -1) -> list[RawPartition]:
        """Return the group's committed offsets."""
        return list(self._data_plane.committed(list(partitions), timeout=timeout))

    def position(self, partitions: Sequence[RawPartition]) -> list[RawPartition]:
        """Return the offsets of the next records to read."""
        return list(self._data_plane.position(list(partitions)))

    def list_topics(self, topic: str | None = None, timeout: float = -1) -> Any:
        """Return the cluster's metadata."""
        return self._data_plane.list_topics(topic or None, timeout)

    def get_watermark_offsets(
        self,
        partition: RawPartition,
        timeout: float = -1,
        cached: bool = False,  # noqa: FBT001, FBT002 - confluent-kafka's signature
    ) -> tuple[int, int] | None:
        """Return a partition's low and high watermark, `cached` those of the last fetch; None on timeout."""
        # confluent-kafka returns None, although its types say otherwise.
        found: tuple[int, int] | None = self._data_plane.get_watermark_offsets(
            partition, timeout=timeout, cached=cached
        )
        return found

    def pop_offset_resets(self) -> list[OffsetReset]:
        """Return the offset resets since the last call."""
        return self._offset_resets.pop_resets()

    def batch_max_age_s(self) -> float | None:
        """Return the plan's `batch_max_age_s`; None without a plan or a value."""
        plan = member.plan if (member := self._member) else None
        return plan.batch_max_age_s if plan else None

    def decision_fault(self) -> str:
        """Return why the plan or the leader's heuristic could not decide the last rebalance; else ""."""
        return member.decision_fault if (member := self._member) else ""

    def offsets_for_times(
        self, partitions: Sequence[RawPartition], timeout: float = -1
    ) -> list[RawPartition]:
        """Return the first offsets at or after the times in the partitions' offset fields (ms)."""
        return list(self._data_plane.offsets_for_times(list(partitions), timeout=timeout))

    def _record_poll(self, member: Membership) -> None:
        member.record_poll()

    def _wait_without_records(self, seconds: float) -> None:
        if self._member is not None:
            self._member.wait(seconds)
        elif seconds > 0:
            self._clock.sleep(seconds)

    def _check_not_closed(self) -> None:
        if self._closed:
            raise ConsumerClosedError("the consumer was used after close(); create a new one")
