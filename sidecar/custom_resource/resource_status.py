"""The status of a ConsumerGroupScaler. Pure.

1. `Ready` is True while the sidecar manages the group, False with the reason why it does not, and
   Unknown before its first iteration.
2. `Degraded` is True while the group has a condition, of the same type as everywhere (`Condition`). Each is
   listed, too, and stays with status False once it has ended.
3. A condition keeps its `lastTransitionTime` until its status changes; a decision its `time` until
   its action or its reasons change, figures aside.
4. Figures alone are written at most every `FIGURES_INTERVAL_S`: each write goes to all watchers.
"""

from collections.abc import Mapping
from typing import Any, Final

from trimtab.common.units import format_bytes, format_rate
from trimtab.sidecar.custom_resource.scaler_resource import ResourceProblem, ScalerResource
from trimtab.sidecar.decision.condition import ConditionType, get_cause, mask_figures
from trimtab.sidecar.decision.decision import DecisionMetrics
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.targets.kubernetes.api_client import format_timestamp

FIGURES_INTERVAL_S: Final = 30.0
MAX_MESSAGE_CHARS: Final = 1000

_STARTING: Final = ("Unknown", "Starting", "no iteration yet")
_TYPES: Final = frozenset(ConditionType)
_FIGURE_FIELDS: Final = frozenset({"load", "lastDecision", "conditions"})  # unless other than in figures
_COUNTS: Final = {
    "replicas": "running_replicas",
    "plannedReplicas": "planned_replicas",
    "desiredReplicas": "desired_replicas",
}


def build_status(
    resource: ScalerResource,
    problem: ResourceProblem | None,
    report: IterationReport | None,
    scaling: IterationReport | None,
    now: float,
) -> dict[str, Any]:
    """Return the status; `scaling` is the last report of a scaling, `now` in seconds since the epoch."""
    before = resource.status
    conditions = {
        "Ready": _judge_ready(problem, report),
        "Degraded": _judge_degraded(problem, report),
        **_list_earlier(before, is_known=problem is None and report is not None),
        **_list_conditions(report),
    }
    status: dict[str, Any] = {
        "observedGeneration": resource.generation,
        "conditions": [
            _build_condition(resource, kind, verdict, now) for kind, verdict in conditions.items()
        ],
    }
    if report is not None:
        metrics = report.decision.metrics
        status |= {field: getattr(metrics, name) for field, name in _COUNTS.items()}
        status["load"] = _build_load(metrics)
        status["lastDecision"] = _build_decision(report, before.get("lastDecision"))
    if scaling is not None:
        status["lastScaling"] = _build_decision(scaling, before.get("lastScaling"))
    return status


def is_write_due(before: Mapping[str, Any], status: Mapping[str, Any], age: float) -> bool:
    """Return whether to write a status, `age` seconds after the last write (rule 4)."""
    changed = {name for name, value in status.items() if _drop_nulls(value) != _drop_nulls(before.get(name))}
    has_other = _is_other_decision(before, status) or _mask_conditions(before) != _mask_conditions(status)
    if changed <= _FIGURE_FIELDS and not has_other:
        return bool(changed) and age >= FIGURES_INTERVAL_S
    return True


def find_condition(status: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return a condition; empty if the status has none of this kind."""
    found = (one for one in status.get("conditions") or () if one.get("type") == kind)
    return next(found, {})


def _judge_ready(problem: ResourceProblem | None, report: IterationReport | None) -> tuple[str, str, str]:
    if problem is not None:
        return "False", problem.reason, problem.message
    if report is None:
        return _STARTING
    if not report.is_group_known:
        return "False", "GroupUnknown", "; ".join(report.errors) or "the group could not be described"
    if report.decision.is_advice:
        return "True", "AdviceOnly", "the sidecar publishes plans; with this target nothing is scaled"
    return "True", "Managed", "the sidecar manages the group"


def _judge_degraded(problem: ResourceProblem | None, report: IterationReport | None) -> tuple[str, str, str]:
    if problem is not None:
        return "True", problem.reason, problem.message
    if report is None:
        return _STARTING
    if report.conditions:
        first, types = report.conditions[0], ", ".join(one.type for one in report.conditions)
        return "True", first.type, f"{types}: see the conditions of these types"
    return "False", "AsExpected", "the last iteration found no condition"


def _list_conditions(report: IterationReport | None) -> dict[str, tuple[str, str, str]]:
    found = () if report is None else report.conditions
    return {one.type: (one.status, one.reason, f"{one.message} -> {one.remedy}") for one in found}


def _list_earlier(before: Mapping[str, Any], *, is_known: bool) -> dict[str, tuple[str, str, str]]:
    """Return the conditions of the last status as ended; as unknown while the group is."""
    earlier = {one["type"]: one for one in before.get("conditions") or () if one.get("type") in _TYPES}
    if is_known:
        return dict.fromkeys(earlier, ("False", "Ended", "it does not hold any more"))
    held = {kind: one for kind, one in earlier.items() if one["status"] != "False"}
    return {kind: ("Unknown", one["reason"], one["message"]) for kind, one in held.items()}


def _build_condition(
    resource: ScalerResource, kind: str, verdict: tuple[str, str, str], now: float
) -> dict[str, Any]:
    status, reason, message = verdict
    known = find_condition(resource.status, kind)
    since = known.get("lastTransitionTime") if known.get("status") == status else None
    return {
        "type": kind,
        "status": status,
        "observedGeneration": resource.generation,
        "lastTransitionTime": since or format_timestamp(now),
        "reason": reason,
        "message": message[:MAX_MESSAGE_CHARS],
    }


def _build_load(metrics: DecisionMetrics) -> dict[str, str | None]:
    fill = metrics.max_fill
    return {
        "required": _format_known(metrics.required_rate, format_rate(metrics.required_rate)),
        "written": _format_known(metrics.write_rate, format_rate(metrics.write_rate)),
        "backlog": _format_known(metrics.backlog_bytes, format_bytes(metrics.backlog_bytes)),
        "fullest": _format_known(fill, "" if fill is None else f"{fill:.0%}"),
    }


def _format_known(value: float | None, text: str) -> str | None:
    return None if value is None else text  # None removes the field


def _build_decision(report: IterationReport, before: Mapping[str, Any] | None) -> dict[str, Any]:
    action, reason = report.decision.action.value, report.decision.reason_text[:MAX_MESSAGE_CHARS]
    time = format_timestamp(report.time)
    known = before or {}
    if _mask_figures(known) == _mask_figures({"action": action, "reason": reason}):
        time = known.get("time", time)
    return {"time": time, "action": action, "reason": reason}


def _is_other_decision(before: Mapping[str, Any], status: Mapping[str, Any]) -> bool:
    was, becomes = (body.get("lastDecision") or {} for body in (before, status))
    return _mask_figures(was) != _mask_figures(becomes)


def _mask_figures(decision: Mapping[str, Any]) -> tuple[Any, str]:
    return decision.get("action"), mask_figures(decision.get("reason", ""))


def _mask_conditions(status: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed = status.get("conditions") or ()
    return [{**one, "message": get_cause(one.get("type", ""), one.get("message", ""))} for one in listed]


def _drop_nulls(value: Any) -> Any:
    # the API server does not store them
    if isinstance(value, dict):
        return {name: _drop_nulls(inner) for name, inner in value.items() if inner is not None}
    return value
