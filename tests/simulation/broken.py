"""Rules of our code, broken on purpose: the simulation is worth what it finds of them."""

# pyright: reportPrivateUsage=false
# what is broken here are private parts
from collections.abc import Callable, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest import mock

import numpy as np
from confluent_kafka import OFFSET_INVALID

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray
from trimtab.assignor.rebalance import leader
from trimtab.assignor.rebalance.cooperative import Ownership
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.lake.writer import writer
from trimtab.consumer_sdk.lake.writer.partition_positions import PositionTracker
from trimtab.consumer_sdk.membership import coordinator, lease, member
from trimtab.sidecar.decision import decide
from trimtab.sidecar.decision.decision import ScalingAction


def nothing_withheld() -> AbstractContextManager[Any]:
    """Hand a partition to its new owner although the old one has not revoked it."""

    def stage(target: IntArray, _settled: Ownership) -> BoolArray:
        now: BoolArray = np.asarray(target != UNASSIGNED)
        return now

    return mock.patch.object(leader, "withhold_moving_partitions", stage)


def commits_without_a_generation() -> AbstractContextManager[Any]:
    """Commit as a consumer without a group does: the coordinator takes it from anybody."""

    async def commit(consumer: Any, offsets: Any, _ours: Any) -> None:
        coordinator = consumer._coordinator
        wanted = {partition: (at.offset, at.metadata) for partition, at in offsets.items()}
        member = coordinator._generation.member_id

        def store(respond: Any) -> None:
            coordinator._at.group.store(member, wanted, respond)

        coordinator._ask(store)

    return mock.patch.object(coordinator, "_send_commit", commit)


def lease_for_ever() -> AbstractContextManager[Any]:
    """Believe in the membership however long the coordinator has been silent."""
    return mock.patch.object(lease.Lease, "is_valid", return_value=True)


def marks_not_compared() -> AbstractContextManager[Any]:
    """Add a batch whatever the table's marks are."""
    return mock.patch.object(CommittedOffsets, "find_conflicts", return_value=())


@contextmanager
def kafka_before_the_table() -> Generator[None]:
    """Tell Kafka of a batch before the table has it, and start from what Kafka was told."""
    submit, assign = writer.LakeWriter._submit_batch, writer.LakeWriter.on_assign

    def early(self: Any, table: str) -> None:
        submit(self, table)
        spans: Mapping[Any, OffsetSpan] = self._in_flight.batch.spans
        self._commit_to_kafka({p: s.next for p, s in spans.items()}, asynchronous=True)

    def believing(self: Any, consumer: Any, partitions: Any) -> None:
        assign(self, consumer, partitions)
        for raw in consumer.committed(list(partitions)):
            position = self._positions._owned[writer._to_topic_partition(raw)]
            if raw.offset != OFFSET_INVALID:
                position.next = raw.offset
                self._restart_partition(writer._to_topic_partition(raw), raw.offset)

    with (
        mock.patch.object(writer.LakeWriter, "_submit_batch", early),
        mock.patch.object(writer.LakeWriter, "on_assign", believing),
    ):
        yield


def stopped_before_drained() -> AbstractContextManager[Any]:
    """Stop a draining replica whatever it still owns."""

    def stop(turn: Any) -> decide.DecisionStep | None:
        names = turn.model.draining
        return (
            decide.DecisionStep(ScalingAction.STOP, ("at once",), stop_names=names)
            if names
            else None
        )

    rules = tuple(
        stop if rule is decide._stop_drained_replicas else rule for rule in decide.DECISION_RULES
    )
    return mock.patch.object(decide, "DECISION_RULES", rules)


def losses_told_before_a_join_only() -> AbstractContextManager[Any]:
    """Hear of a membership that is lost during a join as little as kafka-python tells."""
    usual = coordinator.MemberCoordinator.reset_generation

    def reset(self: Any, *member: Any) -> None:
        rejoining = self.rejoining
        usual(self, *member)
        self.rejoining = rejoining

    return mock.patch.object(coordinator.MemberCoordinator, "reset_generation", reset)


def gaps_not_told() -> AbstractContextManager[Any]:
    """Go on behind deleted records without a word to the tables."""
    return mock.patch.object(PositionTracker, "record_reset", return_value=None)


def read_on_after_leaving() -> AbstractContextManager[Any]:
    """Read on after the group was left, for as long as the lease of before would have lasted."""

    def may_read(self: Any) -> bool:
        known = self._lease.renew_by_heartbeat(
            *coordinator.read_heartbeat_times(self.client)
        ).renew(self._assignor.joined_at)
        return bool(known.is_valid(self._clock.monotonic()))

    return mock.patch.object(member.GroupMember, "holds_lease", may_read)


BROKEN: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    broken.__name__: broken
    for broken in (
        nothing_withheld,
        commits_without_a_generation,
        lease_for_ever,
        marks_not_compared,
        kafka_before_the_table,
        stopped_before_drained,
        losses_told_before_a_join_only,
        gaps_not_told,
        read_on_after_leaving,
    )
}
