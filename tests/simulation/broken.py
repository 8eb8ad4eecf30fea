"""Rules of the product, broken on purpose: the simulation must find each of them."""

# pyright: reportPrivateUsage=false
# what is broken here are private parts
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from confluent_kafka import OFFSET_INVALID

from trimtab.assignor.model import UNASSIGNED, BoolArray, IntArray, PackingProblem
from trimtab.assignor.rebalance import leader, plan_target
from trimtab.assignor.rebalance.cooperative import Ownership
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk.lake.changes import change_rows
from trimtab.consumer_sdk.lake.changes.change_formats import RecognizedChanges
from trimtab.consumer_sdk.lake.changes.keyed_changes import ChangeRows, KeyedChanges
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.lake.projection import keyed_projection
from trimtab.consumer_sdk.lake.writer import writer
from trimtab.consumer_sdk.lake.writer.partition_positions import PositionTracker
from trimtab.consumer_sdk.membership import lease
from trimtab.consumer_sdk.membership.classic import coordinator, group_commits, member
from trimtab.consumer_sdk.membership.release_watch import ReleaseWatch
from trimtab.sidecar.decision import decide
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.testing.simulation import fetching
from trimtab.testing.simulation.broker import Log
from trimtab.testing.simulation.fetching import Fetcher


def nothing_withheld() -> AbstractContextManager[Any]:
    """Assign a partition to its new owner before the old one has revoked it."""

    def stage(target: IntArray, _settled: Ownership) -> BoolArray:
        now: BoolArray = np.asarray(target != UNASSIGNED)
        return now

    return mock.patch.object(leader, "withhold_moving_partitions", stage)


def commits_without_a_generation() -> AbstractContextManager[Any]:
    """Commit like a consumer without a group, which the coordinator accepts from any client."""

    async def commit(consumer: Any, offsets: Any, _ours: Any) -> None:
        coordinator = consumer._coordinator
        wanted = {partition: (at.offset, at.metadata) for partition, at in offsets.items()}
        member = coordinator._generation.member_id

        def store(respond: Any) -> None:
            coordinator._at.group.store(member, wanted, respond)

        coordinator._ask(store)

    return mock.patch.object(group_commits, "_send_commit", commit)


def lease_for_ever() -> AbstractContextManager[Any]:
    """Keep the lease however long the coordinator is silent."""
    return mock.patch.object(lease.Lease, "is_valid", return_value=True)


def table_offsets_not_compared() -> AbstractContextManager[Any]:
    """Append a batch whatever the table's committed offsets are."""
    return mock.patch.object(CommittedOffsets, "find_conflicts", return_value=())


@contextmanager
def kafka_before_the_table() -> Generator[None]:
    """Commit a batch to Kafka before the table, and start at Kafka's offsets."""
    submit, assign = writer.LakeWriter._submit_batch, writer.LakeWriter.on_assign

    def early(self: Any, table: str) -> None:
        submit(self, table)
        spans: Mapping[Any, OffsetSpan] = self._flushes.in_flight[table].batch.spans
        self._commit_to_kafka({p: s.next for p, s in spans.items()}, asynchronous=True)

    def believing(self: Any, consumer: Any, partitions: Any) -> None:
        assign(self, consumer, partitions)
        for raw in consumer.committed(list(partitions)):
            position = self._positions._owned[writer.to_partition(raw)]
            if raw.offset != OFFSET_INVALID:
                position.next = raw.offset
                self._restart_partition(writer.to_partition(raw), raw.offset)

    with (
        mock.patch.object(writer.LakeWriter, "_submit_batch", early),
        mock.patch.object(writer.LakeWriter, "on_assign", believing),
    ):
        yield


def stopped_before_drained() -> AbstractContextManager[Any]:
    """Stop a draining replica although it owns partitions."""

    def stop(turn: Any) -> decide.DecisionStep | None:
        names = turn.model.draining
        return decide.DecisionStep(ScalingAction.STOP, ("at once",), stop_names=names) if names else None

    rules = tuple(stop if rule is decide._stop_drained_replicas else rule for rule in decide.DECISION_RULES)
    return mock.patch.object(decide, "DECISION_RULES", rules)


def losses_reported_before_a_join_only() -> AbstractContextManager[Any]:
    """Miss a membership lost during a join, as plain kafka-python does."""
    usual = coordinator.MemberCoordinator.reset_generation

    def reset(self: Any, *member: Any) -> None:
        rejoining = self.rejoining
        usual(self, *member)
        self.rejoining = rejoining

    return mock.patch.object(coordinator.MemberCoordinator, "reset_generation", reset)


def gaps_not_recorded() -> AbstractContextManager[Any]:
    """Skip deleted records without recording the gap in the tables."""
    return mock.patch.object(PositionTracker, "record_reset", return_value=None)


def read_on_after_leaving() -> AbstractContextManager[Any]:
    """Keep the old lease after leaving the group."""

    def may_read(self: Any) -> bool:
        known = self._lease.renew_by_heartbeat(*coordinator.read_heartbeat_times(self.client)).renew(
            self._assignor.joined_at
        )
        return bool(known.is_valid(self._clock.monotonic()))

    return mock.patch.object(member.GroupMember, "holds_lease", may_read)


def aborted_records_handed_out() -> AbstractContextManager[Any]:
    """Give aborted records to readers of committed ones."""
    usual = Log._add

    def add(self: Log, partition: Any, value: bytes, *, readable: bool) -> None:
        del readable
        usual(self, partition, value, readable=True)

    return mock.patch.object(Log, "_add", add)


def records_fetched_again() -> AbstractContextManager[Any]:
    """Fetch the last record of an answer once more, which the writer drops: the tables are right."""
    usual = Fetcher._read

    def read(self: Any, partition: Any, most: int) -> Any:
        messages = usual(self, partition, most)
        if len(messages) > 1:
            self._positions[partition] = messages[-1].number
        return messages

    return mock.patch.object(Fetcher, "_read", read)


def first_record_passed_over() -> AbstractContextManager[Any]:
    """Begin one offset later than asked for."""
    usual = Fetcher.incremental_assign

    def assign(self: Any, partitions: Any) -> None:
        usual(self, partitions)
        for raw in partitions:
            if raw.offset >= 0:
                self._positions[fetching._key(raw)] += 1

    return mock.patch.object(Fetcher, "incremental_assign", assign)


def one_partition_not_carried_out() -> AbstractContextManager[Any]:
    """Leave the first partition with its owner, whatever the plan's target says."""
    usual = plan_target.repair_placement

    def repair(problem: PackingProblem, planned: IntArray, *members: Any, **options: Any) -> IntArray:
        bins = usual(problem, planned, *members, **options)
        bins[:1] = np.where(problem.owner[:1] != UNASSIGNED, problem.owner[:1], bins[:1])
        return bins

    return mock.patch.object(plan_target, "repair_placement", repair)


def repairs_move_owned_partitions() -> AbstractContextManager[Any]:
    """Place what an absent consumer was to read anew, although it has an owner."""
    usual = plan_target.repair_placement

    def repair(problem: PackingProblem, planned: IntArray, *members: Any, **options: Any) -> IntArray:
        owner = np.where(planned == UNASSIGNED, UNASSIGNED, problem.owner).astype(np.int32)
        return usual(replace(problem, owner=owner), planned, *members, **options)

    return mock.patch.object(plan_target, "repair_placement", repair)


def places_given_by_name() -> AbstractContextManager[Any]:
    """Give places to joiners by name, whatever they read already."""
    return mock.patch.object(plan_target, "_match_by_overlap")


def revision_ignored() -> AbstractContextManager[Any]:
    """Rebalance for new epochs only, and complete decisions on an older target."""
    usual = leader.compute_decision_fingerprint

    def compute(members: Any, index: Any, plan: GroupPlan | None, policy: Any, **more: Any) -> str:
        return usual(members, index, plan and replace(plan, target=None), policy, **more)

    return mock.patch.object(leader, "compute_decision_fingerprint", compute)


def first_change_of_a_key_counts() -> AbstractContextManager[Any]:
    """Reduce a batch to the first change of each key, where the last one counts."""
    usual = keyed_projection.reduce_changes

    def reduce(changes: ChangeRows, key_columns: Sequence[str]) -> KeyedChanges:
        backwards = np.arange(changes.rows.num_rows)[::-1]
        turned = ChangeRows(changes.rows.take(backwards), changes.deletes.take(backwards))
        return usual(turned, key_columns)

    return mock.patch.object(keyed_projection, "reduce_changes", reduce)


def moved_rows_stay() -> AbstractContextManager[Any]:
    """Leave the row of the old key where an update changes a row's key."""

    def find(changes: RecognizedChanges, _key_columns: Sequence[str]) -> BoolArray:
        return np.zeros(len(changes.upserts), np.bool_)

    return mock.patch.object(change_rows, "_find_moved_keys", find)


def begun_before_the_release() -> AbstractContextManager[Any]:
    """Begin promised partitions at any last commit of their owner, which may read on."""

    def find(_client: Any, partitions: Any, _token: str, _timeout: float) -> Any:
        return dict.fromkeys(partitions, False)

    return mock.patch.object(coordinator, "find_released", find)


def confirmed_with_commits_in_doubt() -> AbstractContextManager[Any]:
    """Confirm a release although an earlier commit may yet take effect."""

    async def confirm(client: Any, last: Any, still_member: Callable[[], bool]) -> bool:
        await group_commits._send_commit(client, last, still_member)
        return True

    return mock.patch.object(group_commits, "_confirm_release", confirm)


def confirmation_not_awaited() -> AbstractContextManager[Any]:
    """Commit what was begun at its release before the former owner has confirmed that."""
    return mock.patch.object(ReleaseWatch, "is_unconfirmed", return_value=False)


REPEATED_COMMITS = (confirmed_with_commits_in_doubt, confirmation_not_awaited)
"""Rules that only histories of repeated commits find soon."""

BROKEN: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    broken.__name__: broken
    for broken in (
        nothing_withheld,
        begun_before_the_release,
        commits_without_a_generation,
        lease_for_ever,
        table_offsets_not_compared,
        kafka_before_the_table,
        stopped_before_drained,
        losses_reported_before_a_join_only,
        gaps_not_recorded,
        read_on_after_leaving,
        aborted_records_handed_out,
        records_fetched_again,
        first_record_passed_over,
        one_partition_not_carried_out,
        repairs_move_owned_partitions,
        places_given_by_name,
        revision_ignored,
        first_change_of_a_key_counts,
        moved_rows_stay,
    )
}
