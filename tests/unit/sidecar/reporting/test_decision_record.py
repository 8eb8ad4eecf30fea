"""Verdicts as they are kept: round and round, one record for turns that say the same."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from trimtab.assignor.model import Move, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.decision.decision import (
    MAX_LISTED_MOVES,
    DecisionMetrics,
    ScalingAction,
    ScalingDecision,
)
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.measurement.observation import ObservedMember
from trimtab.sidecar.reporting.decision_log import MAX_QUEUED_RECORDS, DecisionRecorder
from trimtab.sidecar.reporting.decision_record import (
    RECORD_SLOTS,
    DecisionRecord,
    RecordTerms,
    SidecarIdentity,
    build_decision_record,
    merge_decision_record,
)
from trimtab.sidecar.reporting.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import load_settings

ME = SidecarIdentity("id", "host", 7, 1.7e9, 3)
TERMS = RecordTerms("g", 10.0, 100.0, 0.9)
A = TopicPartition("t", 0)


def report(time: float = 100.0, reason: str = "3 is right", *, moved: int = 0) -> IterationReport:
    """A turn that holds, after so many moves."""
    verdict = ScalingDecision(
        ScalingAction.HOLD,
        (reason,),
        DecisionMetrics(needed_rate=50.0, planned_replicas=3, desired_replicas=3),
    )
    changed = tuple(PartitionMove(TopicPartition("t", n), "a", "b") for n in range(moved))
    speeds = {c.partition: PartitionLoad(10.0) for c in changed}
    readers = (ObservedMember("id", "a", frozenset({A})), ObservedMember("id2", "b"))
    return IterationReport(
        time, verdict, speeds, 7,
        is_group_known=True, decision_seconds=0, iteration_seconds=0, members=readers,
        observed_moves=changed,
    )  # fmt: skip


def record(time: float = 100.0, reason: str = "3 is right", *, moved: int = 0) -> DecisionRecord:
    return build_decision_record(report(time, reason, moved=moved), TERMS)


def scaled_out() -> IterationReport:
    """A turn that starts two replicas, from which a move is expected."""
    plan = GroupPlan("g", 8, 100.0, 5, "steady", 100.0, draining=("x",))
    moves = (Move(A, "a", "+1", 40.0, "a is too full"),)
    numbers = DecisionMetrics(needed_rate=200.0, planned_replicas=3, desired_replicas=5, r_score=0.4, moves=1)
    verdict = ScalingDecision(
        ScalingAction.SCALE_UP, ("3 -> 5: needed",), numbers, plan, 2, expected_moves=moves
    )
    return replace(report(), decision=verdict)


def test_a_record_comes_back_as_it_was() -> None:
    """Numbers, reasons, expected and seen moves survive the topic."""
    for made in (record(moved=2), build_decision_record(scaled_out(), TERMS)):
        again = DecisionRecord.decode(made.encode())
        assert again == made
        assert again.encode() == made.encode()


def test_a_record_holds_what_was_asked_and_seen() -> None:
    """The plan's count, the moves expected of it, and who reads how much."""
    made = build_decision_record(scaled_out(), TERMS)
    assert (made.action, made.replicas, made.draining, made.replicas_to_start) == (
        ScalingAction.SCALE_UP,
        5,
        ("x",),
        2,
    )
    assert [(m.source, m.target, m.load_bytes_per_s) for m in made.expected_moves] == [("a", "+1", 40.0)]
    assert made.partitions_by_instance == {"a": 1, "b": 0}
    assert made.usable_capacity == pytest.approx(90.0)


def test_a_group_has_so_many_keys_and_no_more() -> None:
    """However long a sidecar runs, a compacted topic keeps a bounded number of records."""
    last: DecisionRecord | None = None
    keys: set[str] = set()
    for turn in range(3 * RECORD_SLOTS):
        last = merge_decision_record(last, record(turn * 10.0, f"reason {'x' * (turn % 2)}"))
        keys.add(last.key)
    assert len(keys) == RECORD_SLOTS
    assert {json.loads(key)[0] for key in keys} == {"g"}


def test_turns_that_say_the_same_are_one_record() -> None:
    """Figures may differ; the first time stays, the newest numbers and reasons count."""
    one = merge_decision_record(None, record(100.0, "cooldown for another 25 s; needed 1.2 MB/s"))
    two = merge_decision_record(one, record(110.0, "cooldown for another 15 s; needed 900 kB/s"))
    assert (two.number, two.time, two.until, two.iterations) == (one.number, 100.0, 110.0, 2)
    assert two.reasons == ("cooldown for another 15 s; needed 900 kB/s",)
    assert two.key == one.key


@pytest.mark.parametrize(
    "other",
    [
        record(110.0, "the group is rebalancing"),
        replace(record(110.0), action=ScalingAction.ADOPT),
        replace(record(110.0), metrics=DecisionMetrics(planned_replicas=3, desired_replicas=4)),
        replace(record(110.0), draining=("a",)),
        replace(record(110.0), replicas=4),
        replace(record(110.0), author=ME),
    ],
)
def test_what_says_something_else_is_another_record(other: DecisionRecord) -> None:
    """Another action, count, drain or reason is a record of its own."""
    one = merge_decision_record(None, record(100.0))
    assert merge_decision_record(one, other).number == one.number + 1


def test_moves_add_up_and_only_the_first_are_named() -> None:
    """A record stays small however much moves; all are counted, with what they weigh."""
    made = merge_decision_record(merge_decision_record(None, record(moved=MAX_LISTED_MOVES)), record(moved=5))
    assert (len(made.observed_moves), made.observed_move_count) == (MAX_LISTED_MOVES, MAX_LISTED_MOVES + 5)
    assert made.observed_move_bytes_per_s == pytest.approx(10.0 * (MAX_LISTED_MOVES + 5))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda body: body.pop("metrics"),
        lambda body: body.update(action="dance"),
        lambda body: body.update(v=99),
        lambda body: body.update(observed_moves=[{"x": 1}]),
        lambda body: body.update(number="1"),
        lambda body: body.update(group=["g"]),
    ],
)
def test_what_is_no_record_is_named(spoil: Callable[[dict[str, Any]], object]) -> None:
    """A value of another version or shape is a InvalidPayloadError, which readers skip."""
    body = json.loads(record().encode())
    spoil(body)
    with pytest.raises(InvalidPayloadError, match="decision"):
        DecisionRecord.decode(json.dumps(body).encode())


def test_unknown_fields_of_a_record_are_ignored() -> None:
    """A record of a later sidecar, with fields added in it and in its parts, is read."""
    made = build_decision_record(scaled_out(), TERMS, ME)
    body = json.loads(made.encode())
    for part in (body, body["metrics"], body["author"], *body["expected_moves"]):
        part["added"] = 1
    assert made.expected_moves
    assert DecisionRecord.decode(json.dumps(body).encode()) == made


class Archive:
    """Keeps verdicts in memory; may be stuck, or broken."""

    def __init__(self) -> None:
        self.kept: list[DecisionRecord] = []
        self.reads = 0
        self.broken = False
        self.free = Event()
        self.free.set()

    def read_decisions(self) -> tuple[DecisionRecord, ...]:
        self.reads += 1
        return tuple(self.kept)

    def write_decision(self, record: DecisionRecord) -> None:
        self.free.wait(30)
        if self.broken:
            raise BrokerTimeoutError("not allowed")
        self.kept.append(record)


@pytest.fixture
def archive() -> Archive:
    return Archive()


@pytest.fixture
def recorder(archive: Archive) -> Iterator[DecisionRecorder]:
    settings = load_settings(None, {"bootstrap": "nowhere:1", "group": "g", "capacity": 100})
    made = DecisionRecorder(settings, archive, lambda: ME)
    yield made
    archive.free.set()
    made.close()


def test_each_turn_is_kept(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """Turns come in order, numbered from what was kept before."""
    archive.kept.append(replace(record(1.0, "of an earlier sidecar"), number=41))
    recorder(report(100.0))
    recorder(scaled_out())
    eventually(lambda: len(archive.kept) == 3)
    assert [r.number for r in archive.kept] == [41, 42, 43]
    assert archive.reads == 1


def test_a_turn_never_waits(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """A topic that does not answer holds no turn up; the newest verdicts are kept when it does."""
    archive.free.clear()
    for turn in range(10 * MAX_QUEUED_RECORDS):
        recorder(report(float(turn), f"reason {'x' * (turn % 2)}"))
    assert archive.kept == []
    archive.free.set()
    eventually(lambda: archive.kept and archive.kept[-1].until == 10 * MAX_QUEUED_RECORDS - 1)
    assert len(archive.kept) <= 2 * MAX_QUEUED_RECORDS


def test_what_is_wrong_is_said_once(
    recorder: DecisionRecorder, archive: Archive, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A topic that may not be written costs one line of the log, and keeps being tried."""
    archive.broken = True
    recorder(report(1.0))
    recorder(report(2.0))
    eventually(lambda: caplog.records)
    archive.broken = False
    recorder(report(3.0))
    eventually(lambda: archive.kept)
    said = [r.getMessage() for r in caplog.records]
    assert said == ["decisions are not recorded; scaling continues: not allowed"]


def test_who_stands_by_keeps_nothing(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """A sidecar that takes over reads what the leader before it kept, and goes on from there."""
    recorder(report(1.0))
    eventually(lambda: len(archive.kept) == 1)
    recorder(replace(report(2.0), is_leader=False))
    archive.kept.append(replace(record(3.0, "of the other"), number=9))
    recorder(report(4.0))
    eventually(lambda: len(archive.kept) == 3)
    assert archive.kept[-1].number == 10
    assert archive.reads == 2


def test_who_ends_says_so(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """The last verdict is left once more, under the same key, with its author and its end."""
    recorder(report(1.0))
    eventually(lambda: archive.kept)
    recorder.close()
    (made, end) = archive.kept
    assert end == replace(made, is_final=True)
    assert (made.author, end.key) == (ME, made.key)


def test_who_stood_by_ends_in_silence(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """The verdict of another one that leads is not marked as ended."""
    recorder(report(1.0))
    eventually(lambda: archive.kept)
    recorder(replace(report(2.0), is_leader=False))
    recorder.close()
    assert [r.is_final for r in archive.kept] == [False]
