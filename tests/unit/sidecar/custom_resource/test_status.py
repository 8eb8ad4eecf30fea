"""The status of a resource, and when it is written."""

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from support.ticking import Ticking
from trimtab.sidecar.custom_resource.resource_source import ResourceEntry, ResourceSource
from trimtab.sidecar.custom_resource.resource_status import build_status, find_condition, is_write_due
from trimtab.sidecar.custom_resource.scaler_resource import ResourceProblem, ScalerResource
from trimtab.sidecar.custom_resource.status_writer import (
    MAX_QUEUED_EVENTS,
    GroupReports,
    ResourceStatusWriter,
)
from trimtab.sidecar.decision.condition import ConditionType, build_condition
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.errors import KubernetesUnavailableError
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.settings.group_list import GroupListSettings, load_settings_of_groups
from trimtab.sidecar.targets.kubernetes.scaling_events import ScalingEvent

METRICS = DecisionMetrics(
    write_rate=1.5e6, required_rate=1.6e6, running_replicas=2, planned_replicas=3, desired_replicas=3
)
AWAY = (build_condition(ConditionType.REQUESTS_FAILED, "Errors", "no answer", "mend it"),)
BROKEN = ResourceProblem("InvalidSettings", "min=9 is above max=3")


def resource(uid: str = "u", status: Any = None, **spec: Any) -> ScalerResource:
    fields = {"group": "lake", "capacity": "2 MB/s", **spec}
    return ScalerResource("shop", uid, uid, 4, "2026-11-25T00:00:00Z", fields, status or {})


def report(
    action: ScalingAction = ScalingAction.HOLD, reason: str = "2 is right", **more: Any
) -> IterationReport:
    decision = ScalingDecision(action, (reason,), METRICS, is_advice=more.pop("advice", False))
    made = IterationReport(
        1.7e9, decision, {}, 1, is_group_known=True, decision_seconds=0.0, iteration_seconds=0.0
    )
    return replace(made, **more)


def status_of(one: ScalerResource, *args: Any, now: float = 1.7e9, scaling: Any = None) -> dict[str, Any]:
    problem, last = args
    return build_status(one, problem, last, scaling, now)


def reason_of(status: dict[str, Any], kind: str = "Ready") -> tuple[str, str]:
    found = find_condition(status, kind)
    return found["status"], found["reason"]


def test_conditions_tell_what_is_wrong() -> None:
    """Each cause has its reason, in both conditions."""
    one = resource()
    cases = [
        (BROKEN, None, ("False", "InvalidSettings"), ("True", "InvalidSettings")),
        (None, None, ("Unknown", "Starting"), ("Unknown", "Starting")),
        (None, report(), ("True", "Managed"), ("False", "AsExpected")),
        (None, report(advice=True), ("True", "AdviceOnly"), ("False", "AsExpected")),
        (None, report(conditions=AWAY), ("True", "Managed"), ("True", "RequestsFailed")),
        (
            None,
            report(is_group_known=False, errors=("no answer",), conditions=AWAY),
            ("False", "GroupUnknown"),
            ("True", "RequestsFailed"),
        ),
    ]
    for problem, last, ready, degraded in cases:
        status = status_of(one, problem, last)
        assert (reason_of(status), reason_of(status, "Degraded")) == (ready, degraded)
        assert status["observedGeneration"] == find_condition(status, "Ready")["observedGeneration"] == 4


def test_figures_are_readable_and_unknown_ones_are_removed() -> None:
    """Counts are numbers, the load has units, and what is unknown is None, which removes the field."""
    status = status_of(resource(), None, report())
    assert [status[name] for name in ("replicas", "plannedReplicas", "desiredReplicas")] == [2, 3, 3]
    assert status["load"] == {"required": "1.6 MB/s", "written": "1.5 MB/s", "backlog": None, "fullest": None}


def test_times_stay_until_something_changes() -> None:
    """A condition keeps its time while its status does, a decision while its reasons do, figures aside."""
    first = status_of(resource(), None, report(reason="1.6 MB/s fits 2"))
    later = replace(report(reason="1.7 MB/s fits 2"), time=1.7e9 + 60)
    second = status_of(resource(status=first), None, later, now=1.7e9 + 60)
    assert find_condition(second, "Ready") == find_condition(first, "Ready")
    assert second["lastDecision"]["time"] == first["lastDecision"]["time"]
    assert second["lastDecision"]["reason"] == "1.7 MB/s fits 2"
    scaled = replace(report(ScalingAction.SCALE_UP, "2 -> 3"), time=1.7e9 + 90)
    third = status_of(resource(status=second), BROKEN, scaled, now=1.7e9 + 90, scaling=scaled)
    assert (
        find_condition(third, "Ready")["lastTransitionTime"]
        > find_condition(first, "Ready")["lastTransitionTime"]
    )
    assert third["lastDecision"]["time"] == third["lastScaling"]["time"] == "2023-11-14T22:14:50Z"


def test_figures_alone_are_written_seldom() -> None:
    """A condition, a count or another decision is written at once; figures after 30 s, no change never."""
    before = status_of(resource(), None, report(reason="1.6 MB/s fits 2"))
    stored = resource(status={**before, "load": {"required": "1.6 MB/s", "written": "1.5 MB/s"}})
    assert not is_write_due(stored.status, before, 1e9)
    figures = status_of(stored, None, report(reason="1.7 MB/s fits 2"))
    assert not is_write_due(stored.status, figures, 29.0)
    assert is_write_due(stored.status, figures, 30.0)
    assert is_write_due(stored.status, status_of(stored, None, report(reason="the load fits")), 0.0)
    assert is_write_due(stored.status, status_of(stored, BROKEN, None), 0.0)
    assert is_write_due(stored.status, {**figures, "replicas": 3}, 0.0)


@dataclass
class RecordingWriter:
    """Keeps what is written, as an API server does."""

    status: dict[str, Any] = field(default_factory=dict)
    events: list[tuple[str, str, bool]] = field(default_factory=list)
    fails: bool = False

    def write_status(self, resource: ScalerResource, status: Any) -> None:
        if self.fails:
            raise KubernetesUnavailableError("no answer")
        self.status[resource.uid] = dict(status)

    def create_event(self, resource: ScalerResource, event: ScalingEvent) -> None:
        self.events.append((resource.uid, event.reason, event.is_warning))


class Rig:
    """A status writer with the resources of a test."""

    def __init__(self, *resources: ScalerResource) -> None:
        self.resources = list(resources)
        self.api = RecordingWriter()
        self.source = ResourceSource(listed(), self._list)
        self.writer = ResourceStatusWriter(self.api, self.source.list_resource_entries, Ticking())

    def _list(self) -> list[ScalerResource]:
        return [replace(one, status=self.api.status.get(one.uid, one.status)) for one in self.resources]

    def entry(self, uid: str) -> ResourceEntry:
        (one,) = (e for e in self.source.list_resource_entries() or () if e.resource.uid == uid)
        return one

    def reason(self, uid: str) -> str:
        return str(find_condition(self.api.status[uid], "Ready")["reason"])

    def report(self, uid: str, made: IterationReport) -> None:
        settings = self.entry(uid).entry.settings
        assert settings is not None
        self.writer.build_reporter(settings)(made)


def listed(**more: Any) -> GroupListSettings:
    settings = load_settings_of_groups(None, {"bootstrap": "b:1", "custom-resources": True, **more})
    assert isinstance(settings, GroupListSettings)
    return settings


def test_a_bad_resource_is_refused_once_and_the_others_are_managed() -> None:
    """Its condition and one event name the setting; the other's status has its decision."""
    rig = Rig(resource("good"), resource("bad", group="clicks", min=9, max=3))
    rig.report("good", report(ScalingAction.SCALE_UP, "2 -> 3"))
    for _ in range(2):
        rig.writer.write_all({})
    assert (rig.reason("good"), rig.reason("bad")) == ("Managed", "InvalidSettings")
    assert sorted(rig.api.events) == [("bad", "InvalidSettings", True), ("good", "ScaledUp", False)]
    assert rig.api.status["good"]["lastScaling"]["action"] == "scale-up"


def test_a_group_that_does_not_open_is_told() -> None:
    """What the manager says of a group is its resource's condition."""
    rig = Rig(resource())
    rig.writer.write_all({"lake": "deployment lake is not in namespace shop"})
    assert rig.reason("u") == "NotManaged"
    assert rig.api.events == [("u", "NotManaged", True)]


def test_a_standby_writes_nothing() -> None:
    """The sidecar that manages the group writes its status."""
    rig = Rig(resource())
    rig.report("u", report(is_leader=False))
    rig.writer.write_all({})
    assert not rig.api.status


def test_a_resource_of_another_shard_is_left_to_its_sidecar() -> None:
    """Neither its status nor its refusal is written here."""
    rig = Rig(
        resource("ours"), resource("theirs", group="clicks"), resource("bad", group="etl", min=9, max=3)
    )
    rig.writer.start(dict, lambda group: group == "lake", 3600.0)
    rig.report("ours", report())
    rig.writer.write_all({})
    rig.writer.close()
    assert rig.api.status.keys() == {"ours"}
    assert not rig.api.events


def test_a_report_of_earlier_settings_is_not_used() -> None:
    """After a change the status is Starting until the first iteration with the new settings."""
    rig = Rig(resource())
    rig.report("u", report())
    rig.resources = [replace(rig.resources[0], generation=5, spec={"group": "lake", "capacity": "3 MB/s"})]
    rig.writer.write_all({})
    assert rig.reason("u") == "Starting"
    assert rig.api.status["u"]["observedGeneration"] == 5


def test_an_outage_of_the_api_server_loses_no_event() -> None:
    """A status that could not be written is written by the next try, and so are the events since."""
    rig = Rig(resource())
    settings = rig.entry("u").entry.settings
    assert settings is not None
    reporter = rig.writer.build_reporter(settings)
    reporter(report(ScalingAction.SCALE_UP, "2 -> 3"))
    rig.api.fails = True
    rig.writer.write_all({})
    reporter(report(ScalingAction.DRAIN, "3 -> 2"))
    rig.api.fails = False
    rig.writer.write_all({})
    assert rig.api.events == [("u", "ScaledUp", False), ("u", "Draining", False)]


def test_a_refused_workload_has_one_event_and_no_status() -> None:
    """Each other problem is an event; a managed workload has those of its scalings already."""
    good = replace(resource("good"), kind="Deployment")
    bad = replace(resource("bad", group="clicks", min=9, max=3), kind="StatefulSet")
    rig = Rig(good, bad)
    rig.report("good", report(ScalingAction.SCALE_UP, "2 -> 3"))
    for _ in range(2):
        rig.writer.write_all({})
    assert rig.api.events == [("bad", "InvalidSettings", True)]
    rig.resources[1] = replace(bad, spec={**bad.spec, "min": 1})
    for problems in ({"clicks": "deployment is away"}, {}, {"clicks": "deployment is away"}):
        rig.writer.write_all(problems)
        rig.writer.write_all(problems)
    assert rig.api.events[1:] == [("bad", "NotManaged", True), ("bad", "NotManaged", True)]
    assert not rig.api.status


def test_a_full_queue_loses_its_oldest_event_only() -> None:
    """An event that arrives while another is sent neither removes one nor sends one twice."""
    settings = Rig(resource()).entry("u").entry.settings
    assert settings is not None
    reports = GroupReports(settings)

    def scale(number: int) -> None:
        reports(report(ScalingAction.SCALE_UP, f"scaling {number}"))

    sent: list[str] = []

    def send(event: ScalingEvent) -> None:
        if not sent:
            scale(MAX_QUEUED_EVENTS + 1)
        sent.append(event.message)

    def refuse(event: ScalingEvent) -> None:
        scale(MAX_QUEUED_EVENTS)
        raise KubernetesUnavailableError(event.message)

    for number in range(MAX_QUEUED_EVENTS):
        scale(number)
    with pytest.raises(KubernetesUnavailableError, match="scaling 0"):
        reports.send_events(refuse)
    reports.send_events(send)
    assert sent == [f"scaling {number}" for number in range(1, MAX_QUEUED_EVENTS + 2)]
