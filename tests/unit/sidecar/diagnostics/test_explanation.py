"""Explanations by `trimtab explain`, from decision records."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from support.policies import build_policy
from trimtab.assignor.model import TopicPartition
from trimtab.cli.explain.run import parse_local_time
from trimtab.cli.main import main
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import SettingError
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction
from trimtab.sidecar.diagnostics.alternatives import compute_alternatives
from trimtab.sidecar.diagnostics.explanation import (
    AlternativeCount,
    build_explanation,
    explain_alternatives,
    explain_count,
    explain_placement,
)
from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot
from trimtab.sidecar.diagnostics.what_if import SOURCE_PUBLISHED, GroupBaseline
from trimtab.sidecar.measurement.record_cost import RecordCostStatus
from trimtab.sidecar.measurement.record_sizes import SizeStatus
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ObservedMember
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordedMove
from trimtab.sidecar.records.plan_outcome import PartitionElsewhere, PlanOutcome

NOW = 1_000_000.0
NUMBERS = DecisionMetrics(
    write_rate=200.0, required_rate=250.0, backlog_bytes=6000.0, partitions=6, running_replicas=3,
    planned_replicas=3, recommended_replicas=3,
    desired_replicas=3, max_fill=0.88,
)  # fmt: skip


def record(number: int, time: float, **given: Any) -> DecisionRecord:
    body: dict[str, Any] = {
        "group": "g", "number": number, "time": time, "until": time, "iterations": 1, "interval": 10.0,
        "epoch": 4, "action": ScalingAction.HOLD, "reasons": ("3 is right",), "metrics": NUMBERS,
        "capacity": 100.0, "headroom": 0.9,
    }  # fmt: skip
    return DecisionRecord(**{**body, **given})


STARTED = record(
    1,
    NOW - 60,
    action=ScalingAction.SCALE_UP,
    reasons=("2 -> 3: required 250 B/s at 90 B/s a consumer", "started w3"),
    metrics=replace(NUMBERS, r_score=0.4, moves=1),
    expected_moves=(RecordedMove("t", 1, "w1", "+1", 40.0, "w1 would be at 120% of its capacity"),),
)
MOVED = record(
    2,
    NOW - 50,
    observed_moves=(RecordedMove("t", 1, "w1", "w3", 40.0),),
    observed_move_count=1,
    observed_move_bytes_per_s=40.0,
    iterations=2,
)
HELD = record(3, NOW - 5, until=NOW - 5)
KEPT = (STARTED, MOVED, HELD)


def test_the_carrier_of_the_plans_is_named() -> None:
    """In a group of any client."""
    steered = replace(HELD, carrier=CarrierStatus(is_steering=True, text="leads the group"))
    assert "Plan carrier: leads the group." in count(steered)
    assert "Plan carrier" not in count(HELD)


def count(*kept: DecisionRecord) -> str:
    explanation = build_explanation(kept, None, 0)
    assert explanation is not None
    return " ".join(explain_count(explanation, NOW))


def placement(*kept: DecisionRecord) -> str:
    explanation = build_explanation(kept, None, 0)
    assert explanation is not None
    return " ".join(explain_placement(explanation, NOW))


def test_count_is_explained_with_its_figures() -> None:
    """It states counts, load, usable capacity and the reason of the last change."""
    text = count(*KEPT)
    for words in (
        "3 replicas running, 3 planned (epoch 4), 3 desired, as of 5 s ago.",
        "Write rate 200 B/s and backlog 6.0 kB need 250 B/s in total",
        "at 90 B/s per consumer (90% of 100 B/s) at least 3 consumers.",
        "The fullest consumer needs 88% of its capacity.",
        "60 s ago replicas are started: 2 -> 3: required 250 B/s at 90 B/s a consumer; started w3.",
    ):
        assert words in text
    assert "Limited by" not in text
    assert "no sidecar" not in text


def test_the_cost_of_records_is_named() -> None:
    """With a record cost, rates and backlogs are not bytes alone."""
    told = "Rates, backlogs and capacities count 150 B for each record (record-cost)."
    assert told in count(record(1, NOW, record_cost=150.0))
    assert "record-cost" not in count(record(1, NOW))


def test_a_learned_cost_is_told_with_its_proof() -> None:
    """Whether it is used, and how its predictions have done."""
    status = RecordCostStatus(41, 200.4, 9.1e6, 0.12, is_used=True)
    told = (
        "Record cost: 200 B a record; over 41 predictions its squared errors are 0.12 of the bytes-only "
        "model's; a consumer that only works handles 9.1 MB/s."
    )
    used = count(record(1, NOW, learned_record_cost=status))
    assert told in used
    unit = "learned capacities count records by that cost: not bytes on the wire."
    assert unit in used
    unused = replace(status, error_ratio=0.9, is_used=False)
    assert "not used; over 41 predictions" in count(record(1, NOW, learned_record_cost=unused))
    assert unit not in count(record(1, NOW, learned_record_cost=unused))
    early = count(record(1, NOW, learned_record_cost=RecordCostStatus(3)))
    assert "Record cost: not known after 3 predictions, it takes 30 of consumers" in early


def test_how_sizes_are_known_is_told() -> None:
    """With their error, and with what is missing for exact ones."""
    exact = replace(HELD, record_sizes=SizeStatus(4, 0, 0.034))
    assert "Record sizes: by the growth of the logs; standard error of the write rate 3.4%." in count(exact)
    sampled = replace(HELD, record_sizes=SizeStatus(0, 1, 0.2))
    assert "of 1 partition by samples alone; standard error of the write rate 20.0%. Describe" in count(
        sampled
    )
    assert "Record sizes" not in count(HELD)


def test_advice_is_told_as_advice() -> None:
    """Nothing was started: the last change is the one before, and no partition had to move."""
    reasons = ("advice only: nothing is scaled here", "3 -> 2: required 90 B/s at 90 B/s a consumer")
    advised = record(4, NOW - 1, action=ScalingAction.DRAIN, reasons=reasons, is_advice=True)
    text = count(*KEPT, advised)
    assert f"Last decision: drain: {'; '.join(reasons)}." in text
    assert "replicas are drained" not in text
    assert "60 s ago replicas are started: 2 -> 3" in text


def test_limits_are_named() -> None:
    """It states the recommendation, the count after limits and windows, and why nothing happens yet."""
    numbers = replace(NUMBERS, recommended_replicas=5, desired_replicas=4)
    waits = ("4 are wanted", "cooldown for another 12 s")
    text = count(record(3, NOW, metrics=numbers, reasons=waits))
    assert "The load recommends 5; limits, tolerance and windows make it 4." in text
    assert "Limited by: cooldown for another 12 s." in text


def test_indivisible_partitions_are_explained() -> None:
    """Partitions cannot be split, so the load may need more consumers than its sum."""
    assert "The load needs 4: partitions" in count(
        record(
            1, NOW, metrics=replace(NUMBERS, recommended_replicas=4, desired_replicas=4, planned_replicas=4)
        )
    )


def test_unknown_load_and_old_decision_are_stated() -> None:
    """Without a write rate there is no sum; an old decision is marked as old."""
    unknown = replace(NUMBERS, required_rate=None, write_rate=None, running_replicas=None, max_fill=None)
    text = count(record(1, NOW - 600, metrics=unknown))
    assert "The load is unknown" in text
    assert "? replicas running" in text
    assert "No decision for 10 min: no sidecar is active." in text


def test_observed_moves_explain_the_placement() -> None:
    """It lists observed moves with source, target, load and cost."""
    text = placement(*KEPT)
    assert "1 partition moved since" in text
    assert "40 B/s in total, R 0.40" in text
    assert "t-1 w1 -> w3 (40 B/s)" in text


def test_expected_moves_have_reasons() -> None:
    """Before moves are observed, it lists the expected ones with their reasons."""
    text = placement(STARTED)
    assert "1 partition had to move, R 0.40" in text
    assert "t-1 w1 -> +1 (40 B/s): w1 would be at 120% of its capacity" in text
    assert "No recorded decision moved a partition." in placement(HELD)


DONE = PlanOutcome(4, 2, 1, 0.4, 0.87, 0, is_settled=True, consumer_by_place={"+1": "w3"})
TOLD = replace(STARTED, revision=2, metrics=replace(NUMBERS, r_score=0.4, moves=1, planned_fill=0.88))


def test_plan_and_what_was_done_are_one_statement() -> None:
    """It gives what was planned and what was done; "+1" is the consumer that took the place."""
    text = placement(TOLD, replace(MOVED, outcome=DONE))
    assert (
        "1 partition had to move, R 0.40 (the moved load in consumer capacities), fullest consumer 88%. "
        "Done: 1 partition moved, R 0.40, fullest consumer 87%; as planned." in text
    )
    assert "t-1 w1 -> w3 (40 B/s): w1 would be at 120% of its capacity" in text
    assert "moved since" not in text
    assert "+1" not in text


def test_partitions_elsewhere_are_explained() -> None:
    """It lists what is not where the plan places it, and why; later moves are listed, too."""
    gone = PartitionElsewhere("t", 1, "w3", "w2", "w3 left")
    off = replace(DONE, off_plan=1, elsewhere=(gone,))
    died = replace(MOVED, number=3, time=NOW - 20, observed_moves=(RecordedMove("t", 1, "w3", "w2", 40.0),))
    text = placement(TOLD, MOVED, replace(died, outcome=off))
    assert "as planned" not in text
    assert "1 partition elsewhere (w3 left)." in text
    assert "t-1 is at w2, not w3: w3 left" in text
    assert "1 partition moved since 20 s ago" in text


def test_plan_that_waits_is_told_as_planned_only() -> None:
    """Before the consumer of a place has joined, nothing counts as done."""
    waits = PartitionElsewhere("t", 1, "+1", "w1", "+1 has yet to join")
    off = replace(DONE, is_settled=False, off_plan=1, elsewhere=(waits,), consumer_by_place={})
    text = placement(TOLD, replace(HELD, outcome=off))
    assert "Not carried out yet: 1 partition elsewhere (+1 has yet to join)." in text
    assert "t-1 w1 -> +1 (40 B/s)" in text


def test_outcome_of_another_plan_does_not_count() -> None:
    """An outcome belongs to its epoch and revision; records of earlier versions have none."""
    for other in (replace(DONE, revision=3), replace(DONE, epoch=5)):
        assert placement(TOLD, replace(MOVED, outcome=other)) == placement(TOLD, MOVED)


def test_explanation_as_of_a_time() -> None:
    """Only decisions that began before the time count; without one there is no explanation."""
    explanation = build_explanation(KEPT, NOW - 55, 5)
    assert explanation is not None
    assert explanation.decision == STARTED
    assert explanation.history == (STARTED,)
    assert build_explanation(KEPT, NOW - 61, 0) is None
    assert build_explanation((), None, 0) is None


def test_history_has_the_requested_length() -> None:
    """-n lists the newest decisions; the default is none."""
    explanation = build_explanation(KEPT, None, 2)
    assert explanation is not None
    assert [r.number for r in explanation.history] == [2, 3]
    assert (build_explanation(KEPT, None, 0) or explanation).history == ()


def test_alternatives_are_described() -> None:
    """It describes one consumer fewer and one more, and marks an overload."""
    less = AlternativeCount(2, 2, 80.0, 0.8, 1.25, fits=False)
    fewer, more = explain_alternatives((less, AlternativeCount(4, 1, 9.0, 0.1, 0.5, fits=True)), 3)
    assert fewer.startswith("2 (one fewer): 2 partitions would move, 80 B/s, R 0.80")
    assert fewer.endswith("maximum fill 125%, which is too high.")
    assert more.endswith("maximum fill 50%.")


P = tuple(TopicPartition("t", n) for n in range(4))
POLICY = build_policy()  # its placement is replaced by the plan's


def group(*, draining: tuple[str, ...] = (), speed: float = 30.0) -> GroupBaseline:
    """Two members with two partitions each, 60 of 100 B/s."""
    readers = tuple(ObservedMember(n, n, frozenset(P[i : i + 2])) for i, n in ((0, "a"), (2, "b")))
    loads = {p: PartitionLoad(speed) for p in P}
    plan = GroupPlan("g", 1, 0.0, 2, "steady", 100.0, 0.9, draining=draining)
    return GroupBaseline(ObservedGroup(GroupState.STABLE, readers), loads, SOURCE_PUBLISHED, plan)


def test_alternatives_use_the_leaders_placement() -> None:
    """One fewer overloads the rest, or fits with less load; one more fits."""
    fewer, more = compute_alternatives(group(), POLICY)
    assert (fewer.consumers, fewer.moves, fewer.fill, fewer.fits) == (1, 2, pytest.approx(1.2), False)
    assert (more.consumers, more.fits) == (3, True)
    assert compute_alternatives(group(speed=20.0), POLICY)[0].fits


def test_alternatives_need_a_stable_group() -> None:
    """There are none during a drain or rebalance, and none without a plan."""
    assert compute_alternatives(group(draining=("a",)), POLICY) == ()
    assert compute_alternatives(replace(group(), plan=None), POLICY) == ()
    assert compute_alternatives(replace(group(), group=ObservedGroup(GroupState.REBALANCING)), POLICY) == ()


ZONE = timezone(timedelta(hours=2))
NOON = datetime(2026, 3, 1, 12, 0, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("11:30", -0.5),
        ("12:30", -23.5),  # yesterday's
        ("2026-03-01T12:30", 0.5),
        ("2026-03-01 09:00:00+00:00", -1.0),
    ],
)
def test_times_are_local_and_past(text: str, hours: float) -> None:
    """A time without a date is the last such time; an explicit zone is respected."""
    assert parse_local_time(text, NOON) - NOON.timestamp() == pytest.approx(hours * 3600)


@pytest.mark.parametrize("text", ["soon", "25:00", "2026-13-01", ""])
def test_invalid_time_is_rejected(text: str) -> None:
    """The error shows how to write a time."""
    with pytest.raises(SettingError, match="14:32"):
        parse_local_time(text, NOON)


@pytest.fixture
def run_explain(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `trimtab explain` on these records."""

    def call(kept: tuple[DecisionRecord, ...], *words: str) -> tuple[int, str, str]:
        baseline = group()
        snapshot = LiveGroupSnapshot(
            NOW, baseline.group, baseline.write_rates, SOURCE_PUBLISHED, baseline.plan, kept
        )
        monkeypatch.setattr("trimtab.cli.explain.run._read_snapshot", lambda _: snapshot)
        code = main(["explain", "--bootstrap", "nowhere:1", "--group", "g", *words])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def test_command_prints_all_sections(run_explain: Any) -> None:
    """It prints count, placement, alternatives and, with -n, the last decisions."""
    code, out, _ = run_explain(KEPT, "-n", "2")
    assert code == 0
    for words in ("Why this count", "Why this placement", "Other counts", "The last decisions"):
        assert words in out


def test_command_prints_json(run_explain: Any) -> None:
    """JSON has the same values; for a past time it has no alternatives."""
    code, out, _ = run_explain(KEPT, "--format", "json")
    body = json.loads(out)
    assert code == 0
    assert (body["decision"]["action"], body["last_change"]["action"]) == ("hold", "scale-up")
    assert [other["consumers"] for other in body["alternatives"]] == [1, 3]
    at = datetime.fromtimestamp(NOW - 55, UTC).isoformat()
    assert json.loads(run_explain(KEPT, "--format", "json", "--at", at)[1])["alternatives"] == []


def test_missing_decisions_are_explained(run_explain: Any) -> None:
    """The error gives possible reasons, or the time of the oldest decision."""
    code, out, err = run_explain(())
    assert (code, out) == (1, "")
    assert "no decision of group 'g' is kept" in err
    code, _, err = run_explain(KEPT, "--at", "1970-01-02T00:00")
    assert code == 1
    assert "the oldest decision kept" in err
