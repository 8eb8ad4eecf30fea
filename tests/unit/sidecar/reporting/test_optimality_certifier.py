"""Certificates are computed on a thread and never delay the loop."""

import json
from dataclasses import replace
from threading import Event
from typing import Any

import pytest
from paged import create_web_server
from prometheus_client.parser import text_string_to_metric_families

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.errors import InvalidProblemError, SettingError
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.measurement.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)
from trimtab.sidecar.reporting import optimality_certifier
from trimtab.sidecar.reporting.iteration_report import IterationReport
from trimtab.sidecar.reporting.optimality_certifier import (
    MAX_CERTIFIED_PARTITIONS,
    DecisionCertifier,
    TimedCertificate,
)
from trimtab.sidecar.settings.settings import SidecarSettings, load_settings

GIVEN = {"bootstrap": "nowhere:1", "group": "g", "capacity": 100.0, "headroom": 1.0, "heuristic": "mbf"}


def settings(**more: Any) -> SidecarSettings:
    return load_settings(None, {**GIVEN, "certify": True, **more})


def observation(*loads: float | None) -> Observation:
    """Two replicas that own alternate partitions."""
    names = [TopicPartition("t", n) for n in range(len(loads))]
    readers = tuple(ObservedMember(f"id{m}", f"w{m}", frozenset(names[m::2])) for m in range(2))
    return Observation(
        {p: PartitionLoad(bytes_per_s=s) for p, s in zip(names, loads, strict=True)},
        ObservedGroup(GroupState.STABLE, readers),
        tuple(ReplicaInstance(f"w{m}", alive=True, started_at=0.0) for m in range(2)),
        GroupPlan("g", 1, 0.0, 2, "mbf", 100.0),
    )


def certified() -> TimedCertificate:
    made = DecisionCertifier(settings(), SystemClock())
    assert made.offer_observation(observation(60.0, 50.0, 40.0, 30.0))
    made.wait_for_certificate(30)
    assert made.last_certificate is not None
    return made.last_certificate


def test_heuristics_placement_is_certified() -> None:
    """The certificate is complete and has its heuristic and move cost."""
    made = certified()
    assert (made.move_cost, made.heuristic) == (0.5, settings().heuristic)
    assert made.certificate.complete
    assert 2 <= made.certificate.lower_bound <= made.certificate.value


def test_offer_never_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offer during a certification is dropped at once; closing cancels it."""
    begun, go = Event(), Event()

    def slow(*_: Any, left: Any, **__: Any) -> Any:
        begun.set()
        go.wait(30)
        assert left() == 0.0
        raise InvalidProblemError("cut short")

    monkeypatch.setattr(optimality_certifier, "certify_sizes", slow)
    made = DecisionCertifier(settings(), SystemClock())
    assert made.offer_observation(observation(60.0))
    assert begun.wait(30)
    assert not made.offer_observation(observation(60.0))
    made._stop.set()
    go.set()
    made.close()
    assert made.last_certificate is None


def test_solver_failure_costs_only_the_certificate(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """An error is logged once, and the next offer is accepted."""

    def broken(*_: Any, **__: Any) -> Any:
        raise MemoryError("no room")

    monkeypatch.setattr(optimality_certifier, "certify_sizes", broken)
    made = DecisionCertifier(settings(), SystemClock())
    for _ in range(2):
        assert made.offer_observation(observation(60.0))
        made.wait_for_certificate(30)
    assert [r.getMessage() for r in caplog.records] == ["no certificate: MemoryError('no room')"]


def test_uncertifiable_observations_are_skipped() -> None:
    """No plan, no known write rate, or too many partitions: nothing is started."""
    made = DecisionCertifier(settings(), SystemClock())
    assert not made.offer_observation(replace(observation(60.0), plan=None))
    assert not made.offer_observation(observation(None, None))
    assert not made.offer_observation(observation(*[1.0] * (MAX_CERTIFIED_PARTITIONS + 1)))


def test_endpoints_show_the_certificate() -> None:
    """/certificate and /metrics have the gap; before the first certificate there is none."""
    page = create_web_server()
    assert page.handle_path("/certificate")[2] == b"null"
    made = certified()
    decision = ScalingDecision(ScalingAction.HOLD, ("",), DecisionMetrics())
    report = IterationReport(
        0.0, decision, {}, 1, is_group_known=True, decision_seconds=0, iteration_seconds=0
    )
    page(replace(report, certificate=made))
    body = json.loads(page.handle_path("/certificate")[2])
    assert body["certificate"]["gap"] == pytest.approx(made.certificate.gap)
    families = text_string_to_metric_families(page.handle_path("/metrics")[2].decode())
    shown = {s.name: s.value for family in families for s in family.samples}
    assert shown["trimtab_optimum_lower_bound"] == pytest.approx(made.certificate.lower_bound)
    assert shown["trimtab_optimality_gap_ratio"] == pytest.approx(made.certificate.gap)


@pytest.mark.parametrize(("name", "value"), [("certify_timeout", 0), ("move_cost", "0 s")])
def test_limits_must_be_positive(name: str, value: object) -> None:
    """Time limit and move cost must be above 0."""
    with pytest.raises(SettingError, match=name.replace("_", "-")):
        settings(**{name: value})
