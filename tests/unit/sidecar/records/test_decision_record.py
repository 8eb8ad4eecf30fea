"""Decision records: a ring of keys, and one record for equal decisions."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from support.ticking import Ticking
from trimtab.assignor.model import Move, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.decision.condition import ConditionType, build_condition
from trimtab.sidecar.decision.decision import (
    MAX_LISTED_MOVES,
    DecisionMetrics,
    ScalingAction,
    ScalingDecision,
)
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.model.observation import ObservedMember
from trimtab.sidecar.records.decision_record import (
    RECORD_SLOTS,
    DecisionRecord,
    RecordTerms,
    SidecarIdentity,
    build_decision_record,
    merge_decision_record,
)
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.plan_outcome import PartitionElsewhere, PlanOutcome
from trimtab.sidecar.records.sample_record import SampleRecord
from trimtab.sidecar.records.season_record import SeasonRecord
from trimtab.sidecar.reporting.decision_log import MAX_QUEUED_RECORDS, DecisionRecorder
from trimtab.sidecar.settings.settings import load_settings

ME = SidecarIdentity("id", "host", 7, 1.7e9, 3)
TERMS = RecordTerms("g", 10.0, 100.0, 0.9)
A = TopicPartition("t", 0)


def report(time: float = 100.0, reason: str = "3 is right", *, moved: int = 0) -> IterationReport:
    """An iteration that holds and observed this number of moves."""
    decision = ScalingDecision(
        ScalingAction.HOLD,
        (reason,),
        DecisionMetrics(required_rate=50.0, planned_replicas=3, desired_replicas=3),
    )
    changed = tuple(PartitionMove(TopicPartition("t", n), "a", "b") for n in range(moved))
    loads = {c.partition: PartitionLoad(10.0) for c in changed}
    readers = (ObservedMember("id", "a", frozenset({A})), ObservedMember("id2", "b"))
    return IterationReport(
        time, decision, loads, 7,
        is_group_known=True, decision_seconds=0, iteration_seconds=0, members=readers,
        observed_moves=changed,
    )  # fmt: skip


def record(time: float = 100.0, reason: str = "3 is right", *, moved: int = 0) -> DecisionRecord:
    return build_decision_record(report(time, reason, moved=moved), TERMS)


OUTCOME = PlanOutcome(
    7, 3, 4, 0.6, 0.91, 1,
    is_settled=True,
    elsewhere=(PartitionElsewhere("t", 0, "x", "a", "x left"),),
    consumer_by_place={"+1": "c"},
)  # fmt: skip


def scaled_out() -> IterationReport:
    """An iteration that starts two replicas and expects a move."""
    target = PlanTarget(4, ("a",), 1, {"t": (2,)})
    plan = GroupPlan("g", 8, 100.0, 5, "steady", 100.0, draining=("x",), target=target)
    moves = (Move(A, "a", "+1", 40.0, "a is too full"),)
    numbers = DecisionMetrics(
        required_rate=200.0, planned_replicas=3, desired_replicas=5, r_score=0.4, moves=1
    )
    decision = ScalingDecision(
        ScalingAction.SCALE_UP, ("3 -> 5: required",), numbers, plan, 2, expected_moves=moves
    )
    return replace(report(), decision=decision, plan_outcome=OUTCOME)


def test_record_survives_encoding() -> None:
    """Metrics, reasons, outcome, expected and observed moves are decoded as encoded."""
    for made in (record(moved=2), build_decision_record(scaled_out(), TERMS)):
        again = DecisionRecord.decode(made.encode())
        assert again == made
        assert again.encode() == made.encode()


def test_record_has_decision_and_observation() -> None:
    """It has the plan's count, the expected moves and the partitions of each instance."""
    made = build_decision_record(scaled_out(), TERMS)
    assert (made.action, made.replicas, made.draining, made.replicas_to_start) == (
        ScalingAction.SCALE_UP,
        5,
        ("x",),
        2,
    )
    assert [(m.source, m.target, m.load_bytes_per_s) for m in made.expected_moves] == [("a", "+1", 40.0)]
    assert (made.revision, made.outcome) == (4, OUTCOME)
    assert made.partitions_by_instance == {"a": 1, "b": 0}
    assert made.usable_capacity == pytest.approx(90.0)


def test_number_of_keys_is_bounded() -> None:
    """A compacted topic keeps a bounded number of records of a group."""
    last: DecisionRecord | None = None
    keys: set[str] = set()
    for number in range(3 * RECORD_SLOTS):
        last = merge_decision_record(last, record(number * 10.0, f"reason {'x' * (number % 2)}"))
        keys.add(last.key)
    assert len(keys) == RECORD_SLOTS
    assert {json.loads(key)[0] for key in keys} == {"g"}


def test_equal_decisions_are_one_record() -> None:
    """Figures may differ; the first time and the newest metrics and reasons are kept."""
    one = merge_decision_record(None, record(100.0, "cooldown for another 25 s; required 1.2 MB/s"))
    two = merge_decision_record(one, record(110.0, "cooldown for another 15 s; required 900 kB/s"))
    assert (two.number, two.time, two.until, two.iterations) == (one.number, 100.0, 110.0, 2)
    assert two.reasons == ("cooldown for another 15 s; required 900 kB/s",)
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
def test_different_decision_is_another_record(other: DecisionRecord) -> None:
    """Another action, count, drain or reason begins a new record."""
    one = merge_decision_record(None, record(100.0))
    assert merge_decision_record(one, other).number == one.number + 1


def test_moves_are_summed_and_listed_up_to_a_limit() -> None:
    """All moves are counted with their load; only the first are listed."""
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
def test_malformed_record_is_rejected(spoil: Callable[[dict[str, Any]], object]) -> None:
    """A value of another version or shape raises InvalidPayloadError."""
    body = json.loads(record().encode())
    spoil(body)
    with pytest.raises(InvalidPayloadError, match="decision"):
        DecisionRecord.decode(json.dumps(body).encode())


def test_unknown_fields_are_ignored() -> None:
    """A record of a later sidecar, with more fields at every level, is decoded."""
    made = build_decision_record(scaled_out(), TERMS, ME)
    body = json.loads(made.encode())
    for part in (body, body["metrics"], body["author"], *body["expected_moves"]):
        part["added"] = 1
    assert made.expected_moves
    assert DecisionRecord.decode(json.dumps(body).encode()) == made


def test_record_of_the_version_before_is_read() -> None:
    """A record without outcome, revision and planned fill has none of them."""
    made = build_decision_record(scaled_out(), TERMS)
    body = json.loads(made.encode())
    del body["outcome"], body["revision"], body["metrics"]["planned_fill"]
    assert DecisionRecord.decode(json.dumps(body).encode()) == replace(made, outcome=None, revision=0)


def test_record_keeps_the_newest_outcome() -> None:
    """The same decision goes on while its plan is carried out; the target is not in the record."""
    one = merge_decision_record(None, record())
    done = build_decision_record(replace(report(110.0), plan_outcome=OUTCOME), TERMS)
    two = merge_decision_record(one, done)
    assert (two.number, two.outcome) == (one.number, OUTCOME)
    assert b'target":{' not in build_decision_record(scaled_out(), TERMS).encode()


class Archive:
    """Keeps records in memory; may block, or fail."""

    def __init__(self) -> None:
        self.kept: list[DecisionRecord] = []
        self.samples: list[SampleRecord] = []
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

    def read_samples(self) -> tuple[SampleRecord, ...]:
        return tuple(self.samples)

    def write_sample(self, record: SampleRecord) -> None:
        self.samples.append(record)

    def read_seasons(self) -> tuple[SeasonRecord, ...]:
        return ()

    def write_season(self, record: SeasonRecord) -> None:
        raise NotImplementedError


@pytest.fixture
def archive() -> Archive:
    return Archive()


@pytest.fixture
def recorder(archive: Archive) -> Iterator[DecisionRecorder]:
    settings = load_settings(None, {"bootstrap": "nowhere:1", "group": "g", "capacity": 100})
    made = DecisionRecorder(settings, archive, lambda: ME, Ticking())
    yield made
    archive.free.set()
    made.close()


def test_every_iteration_is_recorded(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """Records are written in order and continue the stored numbers."""
    archive.kept.append(replace(record(1.0, "of an earlier sidecar"), number=41))
    recorder(report(100.0))
    recorder(scaled_out())
    eventually(lambda: len(archive.kept) == 3)
    assert [r.number for r in archive.kept] == [41, 42, 43]
    assert archive.reads == 1


class ShownHistory:
    """Notes what it is to show, and has a sample at each time."""

    def __init__(self) -> None:
        self.shown: list[tuple[list[int], list[int]]] = []
        self.samples = iter([build_sample(2), build_sample(3)])

    def restore(self, decisions: Sequence[DecisionRecord], recorded: Sequence[SampleRecord]) -> None:
        self.shown.append(([r.number for r in decisions], [r.slot for r in recorded]))

    def take_sample_record(self) -> SampleRecord | None:
        return next(self.samples, None)


def build_sample(slot: int) -> SampleRecord:
    return SampleRecord("g", slot, 1.0, 100.0, DecisionMetrics(), {}, (), "", "", "")


def test_the_history_of_before_the_start_is_shown(archive: Archive, eventually: Any) -> None:
    """What the topic has goes to the page's history, once, before the first record is written."""
    archive.kept.append(replace(record(1.0, "of an earlier sidecar"), number=41))
    archive.samples.append(build_sample(1))
    settings = load_settings(None, {"bootstrap": "nowhere:1", "group": "g", "capacity": 100})
    history = ShownHistory()
    made = DecisionRecorder(settings, archive, lambda: ME, Ticking(), history)
    made(report(100.0))
    made(scaled_out())
    eventually(lambda: len(archive.kept) == 3)
    made.close()
    assert history.shown == [([41], [1])]
    assert [sample.slot for sample in archive.samples] == [1, 2, 3]


def test_conditions_of_before_the_start_are_given_once(
    recorder: DecisionRecorder, archive: Archive, eventually: Any
) -> None:
    """They are those of the last record of another process, not this one's own."""
    stuck = replace(build_condition(ConditionType.PARTITIONS_STUCK, "NoCommits", "a", "b"), since=7.0)
    archive.kept.append(replace(record(1.0, "of an earlier sidecar"), conditions=(stuck,)))
    assert recorder.take_conditions() == ()
    for count in (2, 3):
        recorder(scaled_out() if count == 2 else report(100.0))
        eventually(lambda: len(archive.kept) == count)  # noqa: B023 - waited for here
        assert recorder.take_conditions() == ((stuck,) if count == 2 else ())


def test_iteration_never_waits(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """An unresponsive topic delays no iteration; then the newest records are written."""
    archive.free.clear()
    for number in range(10 * MAX_QUEUED_RECORDS):
        recorder(report(float(number), f"reason {'x' * (number % 2)}"))
    assert archive.kept == []
    archive.free.set()
    eventually(lambda: archive.kept and archive.kept[-1].until == 10 * MAX_QUEUED_RECORDS - 1)
    assert len(archive.kept) <= 2 * MAX_QUEUED_RECORDS


def test_write_failure_is_logged_once(
    recorder: DecisionRecorder, archive: Archive, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """An unwritable topic is logged once, and writing is retried."""
    archive.broken = True
    recorder(report(1.0))
    recorder(report(2.0))
    eventually(lambda: caplog.records)
    archive.broken = False
    recorder(report(3.0))
    eventually(lambda: archive.kept)
    messages = [r.getMessage() for r in caplog.records]
    assert messages == ["decisions are not recorded; scaling continues: not allowed"]


def test_standby_records_nothing(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """A sidecar that takes over continues the numbers of the previous leader."""
    recorder(report(1.0))
    eventually(lambda: len(archive.kept) == 1)
    recorder(replace(report(2.0), is_leader=False))
    archive.kept.append(replace(record(3.0, "of the other"), number=9))
    recorder(report(4.0))
    eventually(lambda: len(archive.kept) == 3)
    assert archive.kept[-1].number == 10
    assert archive.reads == 2


def test_shutdown_marks_the_last_record(
    recorder: DecisionRecorder, archive: Archive, eventually: Any
) -> None:
    """The last record is rewritten under its key as final."""
    recorder(report(1.0))
    eventually(lambda: archive.kept)
    recorder.close()
    (made, end) = archive.kept
    assert end == replace(made, until=Ticking().wall(), is_final=True)
    assert (made.author, end.key) == (ME, made.key)


def test_standby_marks_no_record(recorder: DecisionRecorder, archive: Archive, eventually: Any) -> None:
    """A standby does not mark the leader's record as final."""
    recorder(report(1.0))
    eventually(lambda: archive.kept)
    recorder(replace(report(2.0), is_leader=False))
    recorder.close()
    assert [r.is_final for r in archive.kept] == [False]
