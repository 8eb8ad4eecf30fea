"""The sidecar's endpoints over HTTP: health, readiness, metrics, decisions."""

import json
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection

import pytest
from prometheus_client.parser import text_string_to_metric_families

from support.page.paged import create_web_server
from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.condition import ConditionType, build_condition
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.errors import StartupError
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.measurement.load_estimator import LearnedFigures
from trimtab.sidecar.measurement.record_cost import RecordCostStatus
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.plan_outcome import PlanOutcome

OUTCOME = PlanOutcome(7, 1, 5, 0.72, 0.87, 2, is_settled=True)


class Served:
    def __init__(self) -> None:
        self.clock = Ticking(100.0, epoch=0.0)
        self.page = create_web_server(self.clock, "lake")
        self.port = self.page.start("127.0.0.1", 0)

    def get(self, path: str) -> tuple[int, str]:
        connection = HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def samples(self) -> dict[str, float]:
        text = self.get("/metrics")[1]
        return {
            s.name + "".join(f"|{v}" for k, v in sorted(s.labels.items()) if k != "group"): s.value
            for family in text_string_to_metric_families(text)
            for s in family.samples
        }


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    yield served
    served.page.stop()


def report(*, reachable: bool = True, handovers: tuple[float, ...] = ()) -> IterationReport:
    numbers = DecisionMetrics(
        write_rate=50.0, required_rate=60.0, unknown_partitions=1, partitions=2,
        running_replicas=2, planned_replicas=3, desired_replicas=3,
        recommended_replicas=4, max_fill=0.5, r_score=0.25, moves=2, consumption_rate=45.0,
        overdue_backlog_bytes=7.0, p99_freshness_s=9.0, planned_fill=0.88,
    )  # fmt: skip
    return IterationReport(
        time=100.0,
        decision=ScalingDecision(ScalingAction.SCALE_UP, ("2 -> 3",), numbers, replicas_to_start=1),
        write_rates={
            TopicPartition("t", 0): PartitionLoad(50.0, 5.0, 500.0, 50),
            TopicPartition("t", 1): PartitionLoad(),
        },
        epoch=7,
        is_group_known=reachable,
        decision_seconds=0.02,
        iteration_seconds=0.2,
        handovers={TopicPartition("t", n): seconds for n, seconds in enumerate(handovers)},
        observed_moves=(PartitionMove(TopicPartition("t", 0), "a", "b"),) * 2,
        capacity=100.0,
        plan_outcome=OUTCOME,
        learned_capacities={"worker-1": 80.0},
        conditions=(
            build_condition(ConditionType.SCALE_UP_SUSPENDED, "NoEffect", "no more is read", "look"),
        ),
        learned=LearnedFigures(RecordCostStatus(41, 200.0, 9e6, 0.12, is_used=True)),
        errors=() if reachable else ("group lake: no answer",),
    )


def test_metrics_show_the_reports(served: Served) -> None:
    """Gauges show the last report, counters and histograms all; unknown values have no sample."""
    served.page(report(handovers=(0.15, 0.4)))
    served.page(report())
    found = served.samples()
    expected = {
        "trimtab_write_rate_bytes_per_second|0|t": 50.0,
        "trimtab_backlog_bytes|0|t": 500.0,
        "trimtab_replicas": 2.0,
        "trimtab_consumed_bytes_per_second": 45.0,
        "trimtab_overdue_backlog_bytes": 7.0,
        "trimtab_estimated_freshness_seconds": 9.0,
        "trimtab_learned_capacity_bytes_per_second|worker-1": 80.0,
        "trimtab_condition|warning|ScaleUpSuspended": 1.0,
        "trimtab_learned_record_cost_bytes": 200.0,
        "trimtab_learned_record_cost_error_ratio": 0.12,
        "trimtab_learned_record_cost_used": 1.0,
        "trimtab_handler_capacity_bytes_per_second": 9e6,
        "trimtab_replicas_planned": 3.0,
        "trimtab_replicas_desired": 3.0,
        "trimtab_partitions_unknown": 1.0,
        "trimtab_r_score": 0.25,
        "trimtab_plan_epoch": 7.0,
        "trimtab_planned_fullest_consumer_ratio": 0.88,
        "trimtab_carried_out_r_score": 0.72,
        "trimtab_carried_out_moves": 5.0,
        "trimtab_carried_out_fullest_consumer_ratio": 0.87,
        "trimtab_partitions_off_plan": 2.0,
        "trimtab_moves_total": 4.0,
        "trimtab_moved_consumers_total": 2.0,
        "trimtab_decisions_total|scale-up": 2.0,
        "trimtab_handover_seconds_count": 2.0,
        "trimtab_handover_seconds_sum": 0.55,
        "trimtab_decision_seconds_count": 2.0,
    }
    assert {name: found.get(name) for name in expected} == pytest.approx(expected)
    assert "trimtab_write_rate_bytes_per_second|1|t" not in found


def test_figures_of_the_last_plan_stay(served: Served) -> None:
    """Figures of the last plan, as decided and as carried out, stay; a standby forgets them.

    A plan that is under way replaces only the figures of the decision.
    """
    served.page(report())
    held = replace(report(), decision=ScalingDecision(ScalingAction.HOLD, (), DecisionMetrics()))
    under_way = replace(held, plan_outcome=replace(OUTCOME, epoch=8, r_score=0.1, is_settled=False))
    served.page(under_way)
    found = served.samples()
    assert (found["trimtab_r_score"], found["trimtab_carried_out_r_score"]) == (0.25, 0.72)
    served.page(replace(under_way, is_leader=False))
    served.page(under_way)
    assert not {"trimtab_r_score", "trimtab_carried_out_r_score"} & set(served.samples())


def test_decisions_leave_the_target_out(served: Served) -> None:
    """The page shows the plan and its outcome, not the 100,000 numbers of a target."""
    target = PlanTarget(1, ("a",), 0, {"t": (1,) * 1000})
    plan = GroupPlan("lake", 7, 0.0, 1, "steady", 100.0, target=target)
    done = report()
    served.page(replace(done, decision=replace(done.decision, plan=plan)))
    body = json.loads(served.get("/decisions")[1])[0]
    assert (body["plan"]["epoch"], body["plan"]["target"]) == (7, None)
    assert (body["plan_outcome"]["off_plan"], body["plan_outcome"]["r_score"]) == (2, 0.72)


def test_standby_exports_nothing_of_the_group(served: Served) -> None:
    """Partitions, moves and decisions are exported by the leader only, also after a takeover."""
    served.page(report())
    assert served.samples()["trimtab_is_leader"] == 1.0
    before = {name: value for name, value in served.samples().items() if "total" in name}
    served.page(replace(report(), is_leader=False))
    found = served.samples()
    assert found["trimtab_is_leader"] == 0.0
    assert not [name for name in found if name.startswith(("trimtab_write", "trimtab_replicas"))]
    assert {name: value for name, value in found.items() if "total" in name} == before


def test_health_needs_iterations(served: Served) -> None:
    """A loop without an iteration for too long is unhealthy."""
    assert served.get("/healthz")[0] == 200
    served.clock.now += 31
    assert served.get("/healthz")[0] == 503
    served.page(report())
    assert served.get("/healthz")[0] == 200


def test_readiness_needs_the_group(served: Served) -> None:
    """Ready means that the last iteration reached the group; else the reason is shown."""
    assert served.get("/readyz") == (503, "no iteration yet\n")
    served.page(report())
    assert served.get("/readyz")[0] == 200
    served.page(report(reachable=False))
    assert served.get("/readyz") == (503, "group lake: no answer\n")


def test_decisions_are_served(served: Served) -> None:
    """/decisions has the last ones with metrics, reasons and log line."""
    served.page(report())
    (kept,) = json.loads(served.get("/decisions")[1])
    assert kept["action"] == "scale-up"
    assert kept["reasons"] == ["2 -> 3"]
    assert kept["metrics"]["desired_replicas"] == 3
    assert kept["line"].startswith("scale-up: 2 -> 3")


def test_unknown_path_lists_the_known_ones(served: Served) -> None:
    """An unknown path is a 404 that lists the known ones."""
    status, text = served.get("/nothing")
    assert status == 404
    assert "/metrics" in text


def test_port_in_use_is_an_error(served: Served) -> None:
    """The error has the address and what to do."""
    with pytest.raises(StartupError, match=f"127.0.0.1:{served.port}.*choose another port"):
        create_web_server(served.clock).start("127.0.0.1", served.port)
