"""The invariants: checked with every step that could violate them, and once more at rest.

1. *Once*: a table gets a record at most once, with the produced value.
   A table of upserts is the replay of its records up to its offsets.
2. *All*: when a table's committed offset passes a record, the table has it, or records a gap: then
   the record had been deleted before it was read. Committed offsets never go back.
3. *Files*: a commit refers to no deleted file.
4. *One owner*: when a member takes over a partition, no other member still hands out its records;
   a member that lost a partition to another hands out nothing of it. It takes over what a round has given
   it, or has promised it where one member claimed the partition.
5. *Withheld*: the leader assigns no partition that another member holds.
6. *Commits*: the group accepts offsets of a partition only from its last assigned member, or from the one
   that began before the round that assigns it; from its first commit on it is the last. None is beyond the
   table's.
7. *Sidecar*: no replica that owns a partition is stopped; no plan exceeds the limits, and no
   more replicas are started than they allow.
8. *History*: what consumers and tables got has none of the anomalies of `history.anomalies`.
9. *Plan*: a leader whose plan has a target assigns or promises exactly that, but for the repairs that
   `planned` allows; its consumers are replicas that were started.
10. *At rest*: after the faults, every remaining record is in the tables, every partition has an
   owner, that of the plan's target, and the group is stable and stays so.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from history.anomalies import Anomaly, find_anomalies
from simulation.keyed import replay_changes
from simulation.lake import Content, Row, Snapshot
from simulation.planned import decode_round, find_deviations, find_misplaced, leaves_joiners_idle
from simulation.recording import Recorder
from simulation.worker import Worker
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.plan_follower import PlanKey
from trimtab.assignor.rebalance.user_data import AssignmentUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk.lake.interfaces import StagedFiles
from trimtab.consumer_sdk.lake.offsets.offset_gaps import TableGaps
from trimtab.consumer_sdk.membership.classic.received_assignment import withhold_promised
from trimtab.testing.simulation.broker import Group, Log

Wanted = Callable[[str, bytes], bool]
"""Whether a table is to have the record with this value."""


@dataclass(slots=True)
class Checks:
    """State of the invariants; `fail` receives the first violation."""

    group: str
    table: str
    log: Log
    workers: Mapping[str, Worker]
    wanted: Wanted
    fail: Callable[[str], None]
    marks: Callable[[TopicPartition], int | None]
    given: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    promised: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    begun: dict[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])
    reader: dict[TopicPartition, tuple[str, int]] = field(
        default_factory=dict[TopicPartition, tuple[str, int]]
    )
    past: set[tuple[TopicPartition, str, int]] = field(default_factory=set[tuple[TopicPartition, str, int]])
    stints: dict[tuple[TopicPartition, str], int] = field(
        default_factory=dict[tuple[TopicPartition, str], int]
    )
    # plan and members of the rounds in which the target is left; later ones complete their decision
    decided_anew: set[tuple[PlanKey, frozenset[str]]] = field(
        default_factory=set[tuple[PlanKey, frozenset[str]]]
    )
    table_gaps: TableGaps = field(default_factory=TableGaps)
    begins: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    handed_out: int = 0
    handovers: int = 0
    begun_early: int = 0
    commits: int = 0
    gaps: int = 0
    recorder: Recorder = field(kw_only=True)

    # -- the lake ---------------------------------------------------------------------------------

    def added(self, content: Content, snapshot: Snapshot) -> None:
        """Check a snapshot before it becomes the newest."""
        self.commits += 1
        for row in snapshot.rows:
            self._row(content, row)
        before = content.marks.groups.get(self.group, {})
        after = snapshot.marks.groups.get(self.group, {})
        for partition, mark in before.items():
            if after.get(partition, -1) < mark:
                self.fail(
                    f"{content.name}: the mark of {partition} went back from {mark} to {after.get(partition)}"
                )
        self._gaps(content, snapshot)
        for partition, mark in after.items():
            start = max(before.get(partition, 0), self._begin(content, snapshot, partition))
            if not content.keyed:
                self._complete(content, snapshot.gaps, partition, start, mark)

    def landed(self, content: Content) -> None:
        """Check the partitions of a table of upserts that its newest snapshot advances."""
        before, after = (snapshot.marks.groups.get(self.group, {}) for snapshot in content.snapshots[-2:])
        self.replayed(content, {p: mark for p, mark in after.items() if mark != before.get(p)})

    def replayed(self, content: Content, marks: Mapping[TopicPartition, int]) -> None:
        """Check that the rows of partitions are the replay of their records up to these marks.

        A table may lack rows of records that retention deleted before the group began to read.
        """
        found = content.read_rows()
        for partition, mark in marks.items():
            gaps = content.gaps.missing_offsets(self.group, partition).ranges
            records = self.log.records[partition].items()
            held = ((o, v) for o, v in records if o < mark and not any(a <= o < b for a, b in gaps))
            due = {*replay_changes(partition.partition, held).items()}
            rows = [(row.key, row.offset) for row in found if row.partition == partition]
            lacking = {row for row in due.difference(rows) if row[1] >= self.begins[partition]}
            surplus = Counter(rows) - Counter(due)
            if lacking or surplus:
                self.fail(
                    f"{content.name}: {partition} lacks {sorted(lacking)}, has {sorted(surplus)} too many"
                )

    def missing(self, content: Content, staged: StagedFiles) -> None:
        """Report that a commit refers to deleted files."""
        self.fail(f"{content.name}: the commit of {staged.attempt} names files that were deleted")

    def _row(self, content: Content, row: Row) -> None:
        key = (row.partition, row.offset)
        content.seen[key] += 1
        if content.seen[key] > 1:
            self.fail(f"{content.name}: doubled: {row.partition} offset {row.offset}")
        if self.log.records[row.partition].get(row.offset) != row.value:
            self.fail(f"{content.name}: {row.partition} offset {row.offset} is another record")

    def _begin(self, content: Content, snapshot: Snapshot, partition: TopicPartition) -> int:
        """Return the offset from which the group reads a partition; earlier records are not its own.

        It is in the topic's own table, which is always first, and holds after retention.
        """
        if content.name != self.table or partition in self.begins:
            return self.begins.get(partition, self.log.lows[partition])
        found = [row.offset for row in snapshot.rows if row.partition == partition]
        first = min(found, default=snapshot.marks.groups[self.group][partition])
        return self.begins.setdefault(partition, min(self.log.lows[partition], first))

    def _gaps(self, content: Content, snapshot: Snapshot) -> None:
        """Check the recorded gaps of a table: deleted records, of which it has none."""
        if snapshot.gaps is content.gaps:
            return
        for partition, missing in snapshot.gaps.groups[self.group].items():
            self.gaps += 1
            if missing.ranges[-1].next > self.log.lows[partition]:
                self.fail(f"{content.name}: {missing.ranges[-1]} of {partition} can be read")
            for first, end in missing.ranges:
                for offset in self._between(partition, first, end):
                    if content.seen[partition, offset]:
                        self.fail(f"{content.name}: has {offset} of {partition}, which is a gap")
        if content.name == self.table:
            self.table_gaps = snapshot.gaps

    def _complete(
        self, content: Content, gaps: TableGaps, partition: TopicPartition, start: int, end: int
    ) -> None:
        """Find records that a table lacks; a table created later has the topic's gaps."""
        lacks = [found.missing_offsets(self.group, partition).ranges for found in (gaps, self.table_gaps)]
        for offset in self._between(partition, start, end):
            value = self.log.records[partition][offset]
            if (
                self.wanted(content.name, value)
                and not content.seen[partition, offset]
                and not any(first <= offset < end for first, end in chain(*lacks))
            ):
                self.fail(f"{content.name}: lost: {partition} offset {offset}, the mark is {end} now")

    def _between(self, partition: TopicPartition, start: int, end: int) -> Sequence[int]:
        offsets = self.log.sorted[partition]
        return offsets[bisect_left(offsets, start) : bisect_left(offsets, end)]

    # -- the group --------------------------------------------------------------------------------

    def assigned(self, group: Group, given: Mapping[str, bytes]) -> None:
        """Check a leader's assignments when they arrive."""
        self._planned(group, given)
        self._accept_claims(group)
        self.promised.clear()
        self.begun.clear()
        for member, data in given.items():
            if member in group.members:
                assignment = ConsumerProtocolAssignment.decode(withhold_promised(data))
                client = group.members[member].client
                for tp in assignment.partitions():
                    self._give(member, client, TopicPartition(tp.topic, tp.partition))
                told = AssignmentUserData.decode(assignment.user_data)
                for topic, numbers in told.promised if told.starts_at_release else ():
                    self.promised |= dict.fromkeys((TopicPartition(topic, n) for n in numbers), member)

    def _accept_claims(self, group: Group) -> None:
        """Note the members that have begun what they were promised, and claimed it when they joined."""
        for member in group.members.values():
            sent = ConsumerProtocolSubscription.decode(member.subscription)
            claimed = (TopicPartition(tp.topic, n) for tp in sent.owned_partitions for n in tp.partitions)
            self.given |= {p: member.id for p in claimed if self.promised.get(p) == member.id}

    def _planned(self, group: Group, given: Mapping[str, bytes]) -> None:
        leader = self.workers[group.members[group.leader].client]
        view = leader.round_view()
        if view is None or view.plan is None or set(group.members) != set(given):
            return
        plan, seen = view.plan, decode_round(group, given, view.plan.draining)
        measured = any(view.load.write_rates.get(p) is not None for p in self.log.records)
        decision = PlanKey.of_plan(plan), seen.eligible
        if leaves_joiners_idle(plan, seen.eligible, measured=measured):
            self.decided_anew.add(decision)
        anew = decision in self.decided_anew
        for deviation in find_deviations(plan, seen, leader.knew_partition, anew=anew):
            self.fail(f"{leader.name} led plan {plan.epoch}: {deviation}")

    def _give(self, member: str, client: str, partition: TopicPartition) -> None:
        holder = self._holder(partition, client)
        if holder is not None:
            self.fail(f"{partition} was given to {member} while {holder} holds it")
        self.given[partition] = member

    def _holder(self, partition: TopicPartition, but: str) -> str | None:
        for worker in self.workers.values():
            others = worker.name != but and worker.alive
            if others and partition in worker.owned() and worker.reads():
                return worker.name
        return None

    def committed(self, member: str, partition: TopicPartition, offset: int) -> None:
        """Check an offset that the group accepts."""
        if self.begun.get(partition) == member:
            self.given[partition] = member
        if self.given.get(partition) != member:
            self.fail(f"{member} committed {partition}, which was given to {self.given.get(partition)}")
        mark = self.marks(partition)
        if mark is None or offset > mark:
            self.fail(f"{member} committed {partition} up to {offset}, its table is at {mark}")

    def took(self, worker: Worker, partitions: frozenset[TopicPartition]) -> None:
        """Check partitions that a worker takes over."""
        self.handovers += len(partitions)
        for partition in sorted(partitions):
            holder = self._holder(partition, worker.name)
            if holder is not None and worker.reads():
                self.fail(f"{worker.name} took {partition} over while {holder} reads it")
            self._begin_promised(worker, partition)
            key = (partition, worker.name)
            self.stints[key] = self.stints.get(key, 0) + 1

    def _begin_promised(self, worker: Worker, partition: TopicPartition) -> None:
        """Check that a round has given or promised the partition; note what begins before its round."""
        member = worker.member_id()
        if self.given.get(partition) == member:
            return
        if self.promised.get(partition) != member:
            if worker.reads():
                self.fail(f"{worker.name} took {partition} over, which it was neither given nor promised")
            return
        self.begun[partition] = member
        self.begun_early += 1

    def handed(self, worker: Worker, messages: Sequence[Any]) -> None:
        """Check records handed to a worker's application."""
        self.handed_out += len(messages)
        for partition in dict.fromkeys(message.at for message in messages):
            if partition not in worker.owned():
                self.fail(f"{worker.name} was handed {partition}, which is not its own")
            stint = self._stint(worker, partition)
            records = [m for m in messages if m.at == partition and m.error() is None]
            self.recorder.handed(*stint, partition, records)
            if (partition, *stint) in self.past:
                self.fail(f"{worker.name} was handed {partition} after {self.reader[partition][0]}")
            before = self.reader.get(partition)
            if before is not None and before != stint:
                self.past.add((partition, *before))
            self.reader[partition] = stint

    def started(
        self, worker: Worker, partition: TopicPartition, committed: int | None, offset: int | None
    ) -> None:
        """Record that a worker begins to read a partition, or goes back."""
        self.recorder.started(*self._stint(worker, partition), partition, committed, offset)

    def _stint(self, worker: Worker, partition: TopicPartition) -> tuple[str, int]:
        return worker.name, self.stints.get((partition, worker.name), 0)

    # -- at rest ----------------------------------------------------------------------------------

    def unread(self) -> list[str]:
        """Return the partitions with records missing in the topic's table."""
        return [
            f"{partition} is read up to {self.marks(partition)} of {offsets[-1] + 1}"
            for partition, offsets in sorted(self.log.sorted.items())
            if offsets and max(self.marks(partition) or 0, self.log.lows[partition]) <= offsets[-1]
        ]

    def misplaced(self, plan: GroupPlan | None) -> list[str]:
        """Return the shares of the plan's consumers that are not with one worker each."""
        alive = [worker for worker in self.workers.values() if worker.alive]
        owners = {partition: worker.name for worker in alive for partition in worker.owned()}
        names = frozenset(worker.name for worker in alive)
        if plan is None or plan.target is None or (PlanKey.of_plan(plan), names) in self.decided_anew:
            return []
        return list(find_misplaced(plan.target, owners, names))

    def unowned(self) -> list[str]:
        """Return the partitions with no reader, or with more than one."""
        owners: dict[TopicPartition, list[str]] = {p: [] for p in self.log.records}
        for worker in self.workers.values():
            if worker.alive and worker.reads():
                for partition in worker.owned():
                    owners[partition].append(worker.name)
        return [f"{p} has {o or 'no owner'}" for p, o in sorted(owners.items()) if len(o) != 1]

    def find_anomalies(self, tables: Iterable[Content], *, settled: bool) -> list[Anomaly]:
        """Return the anomalies of everything that consumers and tables got."""
        reached: dict[TopicPartition, tuple[int, int]] = {}
        for partition, low in self.log.lows.items():
            begin = self.begins.get(partition, low)
            reached[partition] = begin, max(begin, self.marks(partition) or 0)
        history = self.recorder.build([*tables], self.group, reached, settled=settled)
        return find_anomalies(history)

    def incomplete(self, tables: Iterable[Content]) -> None:
        """Check again for records that no table has."""
        for content in tables:
            if content.keyed:
                self.replayed(content, content.marks.groups.get(self.group, {}))
                continue
            for partition in self.log.ends:
                mark = self.marks(partition) or 0
                start = self.begins.get(partition, 0)
                self._complete(content, content.gaps, partition, start, mark)
