"""Queues: their backlog, and the decisions made from it."""

from dataclasses import replace
from typing import Any

import pytest

from support.policies import build_policy
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import SettingError
from trimtab.common.kmq_offset_metadata import OpenMessages, decode_open_messages
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.sidecar.decision.decide import make_decision
from trimtab.sidecar.decision.decision import ScalingAction, ScalingDecision, compute_totals
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.decision.scale_to_zero import is_active, is_idle
from trimtab.sidecar.diagnostics.explanation import build_explanation, explain_count, explain_placement
from trimtab.sidecar.diagnostics.group_status import LiveGroupSnapshot, build_group_status
from trimtab.sidecar.measurement.write_rate import OffsetReadings, SlidingWindow, WriteRateMeter
from trimtab.sidecar.model.hpa_behavior import ScalingPolicy, ScalingRules
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)
from trimtab.sidecar.model.queue_backlog import (
    InFlightMessages,
    QueueBacklog,
    compute_queue_backlog,
    decode_in_flight,
)
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordTerms, build_decision_record
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.reporting.group_conditions import GroupFacts, find_conditions
from trimtab.sidecar.settings.settings import load_settings

NOW = 10_000.0
P = TopicPartition("orders", 0)
POLICY = build_policy(
    placement=PlacementPolicy("steady", 100.0, 1.0, consolidate=True),
    min_replicas=0,
    max_replicas=8,
    scale_up=ScalingRules((ScalingPolicy(8),)),
    scale_down=ScalingRules((ScalingPolicy(8),)),
    cooldown=0,
    idle_after=60,
)
GIVEN: dict[str, Any] = {"bootstrap": "b:1", "group": "billing", "capacity": "1 kB/s"}


def shared(
    rate: float | None,
    workers: int,
    *,
    waiting: int | None = 0,
    draining: tuple[str, ...] = (),
    state: GroupState = GroupState.STABLE,
) -> Observation:
    """Return a share group on one partition, with the plan for its replicas that are not draining."""
    names = [f"w{number}" for number in range(workers)]
    load = PartitionLoad(rate, rate, float(waiting or 0), waiting, rate)
    return Observation(
        {P: load},
        ObservedGroup(state, tuple(ObservedMember(f"id-{n}", n) for n in names), is_share_group=True),
        tuple(ReplicaInstance(n, alive=True, started_at=float(i)) for i, n in enumerate(names)),
        GroupPlan("g", 7, NOW - 500, workers - len(draining), "steady", 100.0, 1.0, draining),
        queue=QueueBacklog(QueueKind.SHARE, waiting),
    )


def decide(seen: Observation, memory: DecisionMemory | None = None) -> ScalingDecision:
    settled = DecisionMemory(
        (TimestampedRecommendation(NOW - 50, len(seen.replicas or ())),), last_change=NOW - 500
    )
    return make_decision(seen, POLICY, memory or settled, NOW, "g")[0]


@pytest.mark.parametrize(("rate", "count"), [(40.0, 1), (101.0, 2), (500.0, 5), (5000.0, 8)])
def test_a_share_group_gets_the_workers_its_load_needs(rate: float, count: int) -> None:
    """One partition can have many workers: load / usable capacity of a worker."""
    decision = decide(shared(rate, 0, waiting=5))
    assert (decision.action, decision.replicas_to_start, decision.metrics.desired_replicas) == (
        ScalingAction.SCALE_UP,
        count,
        count,
    )
    assert decision.expected_moves == ()


def test_the_newest_worker_of_a_share_group_stops_at_once() -> None:
    """Nothing is handed over, so it stops in any state of the group."""
    decision = decide(shared(150.0, 4, waiting=5))
    assert decision.action is ScalingAction.DRAIN
    assert decision.plan is not None
    assert decision.plan.draining == ("w3", "w2")
    assert decision.plan.epoch == 7
    rebalancing = shared(150.0, 4, draining=("w3", "w2"), state=GroupState.REBALANCING)
    assert decide(rebalancing).replicas_to_stop == ("w2", "w3")


def test_the_last_worker_of_a_share_group_stops_when_idle() -> None:
    """No message waits or is in flight for `idle_after`, and still none when it stops."""
    quiet = DecisionMemory(
        (TimestampedRecommendation(NOW - 50, 1),), last_change=NOW - 500, idle_since=NOW - 61
    )
    last = decide(shared(0.0, 1), quiet)
    assert last.plan is not None
    assert (last.action, last.plan.replicas) == (ScalingAction.DRAIN, 0)
    assert decide(shared(0.0, 1, waiting=1), quiet).action is ScalingAction.HOLD
    assert decide(shared(0.0, 1, waiting=None), quiet).action is ScalingAction.HOLD
    assert decide(shared(0.0, 1, draining=("w0",))).replicas_to_stop == ("w0",)
    assert decide(shared(0.0, 1, draining=("w0",), waiting=None)).replicas_to_stop == ()
    assert decide(shared(0.0, 1, draining=("w0",), waiting=3)).action is ScalingAction.CANCEL_DRAIN


def test_a_share_group_with_unknown_load_keeps_its_count() -> None:
    """Unknown is never zero."""
    assert decide(shared(None, 3)).reasons == ("no write rate is known",)


@pytest.mark.parametrize(
    ("note", "end", "found"),
    [
        (None, 0, InFlightMessages(OpenMessages(0, 0, 0), is_exact=True)),  # nothing was ever handed out
        (None, 4, InFlightMessages()),
        ('{"released":1.5}', 4, InFlightMessages()),
        (OpenMessages(4, 2, 1).encode(), 4, InFlightMessages(OpenMessages(4, 2, 1), is_exact=True)),
        (OpenMessages(4, 0, 0).encode(), 5, InFlightMessages(OpenMessages(4, 0, 0))),
        (OpenMessages(4, 0, 0).encode(), None, InFlightMessages(OpenMessages(4, 0, 0))),
    ],
)
def test_tracker_data_is_exact_without_unread_markers(
    note: str | None, end: int | None, found: InFlightMessages
) -> None:
    """An unread marker may record a delivered message."""
    assert decode_in_flight(note, end) == found


@pytest.mark.parametrize("note", ["", "\0", "[]", '{"read":1}', '{"read":"1"}', "null"])
def test_other_metadata_says_nothing_about_messages(note: str) -> None:
    """The consumer's own commit metadata has no message counts."""
    assert decode_open_messages(note) is None


def test_tracker_metadata_round_trips() -> None:
    """It also decodes with the NUL that a commit appends."""
    assert decode_open_messages(OpenMessages(12, 3, 4).encode() + "\0") == OpenMessages(12, 3, 4)


@pytest.mark.parametrize(
    ("work", "records"),
    [
        (InFlightMessages(OpenMessages(9, 0, 0), is_exact=True), 0),
        (
            InFlightMessages(OpenMessages(9, 0, 7), is_exact=True),
            0,
        ),  # its tracker brings it back when it is due
        (InFlightMessages(OpenMessages(9, 2, 7), is_exact=True), 2),
        (InFlightMessages(OpenMessages(9, 2, 0)), 2),
        (InFlightMessages(OpenMessages(9, 0, 0)), None),
        (InFlightMessages(), None),
    ],
)
def test_in_flight_messages_are_backlog(work: InFlightMessages, records: int | None) -> None:
    """An empty backlog is known only if the in-flight count is exact."""
    meter, readings = (
        WriteRateMeter(SlidingWindow(10, 5)),
        OffsetReadings((P,), {P: 8}, {P: 0}, {P: 8}, in_flight={P: work}),
    )
    for time in (0.0, 6.0):
        meter = meter.add_readings(time, readings)
    loads = meter.measure_partitions(readings)
    assert loads[P].backlog_records == records
    assert is_idle(loads) is (records == 0)
    assert is_active(loads) is bool(records)


def test_the_backlog_as_text() -> None:
    """It has the messages waiting, in flight and awaiting redelivery, with "?" for unknown."""
    loads = {P: PartitionLoad(backlog_records=5)}
    known = compute_queue_backlog(
        QueueKind.KMQ, loads, {P: InFlightMessages(OpenMessages(1, 2, 3), is_exact=True)}
    )
    assert str(known) == "3 messages waiting, 2 in flight, 3 awaiting redelivery"
    assert (
        str(compute_queue_backlog(QueueKind.KMQ, loads, {P: InFlightMessages()}))
        == "? messages waiting, ? in flight"
    )
    assert str(compute_queue_backlog(QueueKind.SHARE, loads)) == "5 messages waiting or in flight"
    numbers = compute_totals(replace(shared(1.0, 1), queue=known))
    assert numbers.queue_summary == str(known)
    assert f", {known}" in replace(decide(shared(1.0, 1)), metrics=numbers).format_line()


def test_a_queue_on_a_consumer_group_reports_its_partition_limit() -> None:
    """A worker beyond the number of partitions would read nothing."""
    readers = (ObservedMember("1", "w0", frozenset({P})),)
    seen = replace(
        shared(90.0, 1, waiting=5),
        group=ObservedGroup(GroupState.STABLE, readers),
        queue=QueueBacklog(QueueKind.KMQ, 5, 0, 0),
    )
    facts = GroupFacts(seen, POLICY, decide(seen), DecisionMemory(), NOW)
    (limit,) = (one for one in find_conditions(facts) if one.type == "ScaleUpLimited")
    assert limit.message.startswith("kmq allows one worker per partition, and the topic has 1")


def test_a_share_group_has_no_placement_to_explain() -> None:
    """`explain` shows the messages to handle, and that the broker distributes them."""
    decision = decide(shared(150.0, 2, waiting=5))
    report = IterationReport(NOW, decision, {}, 7, True, 0.0, 0.0)  # noqa: FBT003 - reachable
    record = build_decision_record(report, RecordTerms("g", 10.0, 100.0, 1.0))
    found = build_explanation([DecisionRecord.decode(record.encode())], None, 0)
    assert found is not None
    assert "kind share: 5 messages waiting or in flight" in " ".join(explain_count(found, NOW))
    assert explain_placement(found, NOW)[0].startswith(
        "The broker delivers messages of every partition to every worker"
    )


def test_top_shows_each_worker_of_a_share_group() -> None:
    """No worker owns a partition, and no partition counts as unowned."""
    seen = shared(90.0, 3)
    made = build_group_status(LiveGroupSnapshot(NOW, seen.group, seen.write_rates, "given", seen.plan))
    assert made.unowned_partitions == 0
    assert [(r.name, r.load.required_rate) for r in made.consumers] == [("w0", 30), ("w1", 30), ("w2", 30)]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"queue": "kmq"}, "queue=kmq needs the name of its one topic"),
        ({"queue": "share", "topics": "a,b"}, "one topic"),
        ({"queue": "share", "topics": "^a"}, "one topic"),
        ({"queue-markers": "m"}, "only kmq has markers"),
        ({"queue": "share", "topics": "a", "learn-capacity": True}, "queue=share has none"),
        ({"queue": "sqs", "topics": "a"}, "'kmq', 'ordered' or 'share'"),
    ],
)
def test_contradicting_queue_settings_are_rejected(given: dict[str, Any], message: str) -> None:
    """Each error names the setting and its correction."""
    with pytest.raises(SettingError, match=message):
        load_settings(None, {**GIVEN, **given})


@pytest.mark.parametrize(("kind", "reset"), [("kmq", "earliest"), ("share", "latest")])
def test_the_start_offset_of_a_queue(kind: str, reset: str) -> None:
    """As in `open_queue`, kmq starts at the earliest message, share at the broker's group setting."""
    assert load_settings(None, {**GIVEN, "queue": kind, "topics": "a"}).offset_reset == reset
    assert load_settings(None, {**GIVEN, "queue": kind, "topics": "a"}).markers_topic == "a.billing.markers"
