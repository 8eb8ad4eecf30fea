"""Replica counts reported to KEDA, derived from control-loop iterations. Pure.

1. The count is the last one requested from the target. It rises with the plan and falls only when a
   drained pod owns nothing, is marked for deletion, and the group is stable.
2. Before the first iteration with known plan, pods and group, the count is UNAVAILABLE.
3. While one of them is unknown the count stays; too many such iterations in a row make it UNAVAILABLE.
   Write rates are not among them: while only they are unknown, the policy's `fallback` sets the count.
4. Zero is reported only if the group is known to have nothing to read.
5. Without an iteration for too long, or on a standby sidecar, the count is UNAVAILABLE.
6. While the count was UNAVAILABLE, KEDA's own `fallback` or another sidecar may have set one. So
   the count is dropped, and the next iteration adopts the current one.

On UNAVAILABLE, KEDA keeps the count or applies the ScaledObject's `fallback`.
"""

from dataclasses import dataclass, replace
from typing import Final

from trimtab.sidecar.decision.scale_to_zero import is_idle
from trimtab.sidecar.errors import ReplicaCountUnavailableError
from trimtab.sidecar.records.iteration_report import IterationReport

KEDA_METRIC_NAME: Final = "trimtab-replicas"  # the desired number of replicas
METRIC_PER_REPLICA: Final = 1  # the HPA divides the metric by this target value


@dataclass(frozen=True, slots=True)
class StalenessLimits:
    """Maximum iterations in a row with unknown state, and maximum seconds without an iteration."""

    unknown_iterations: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class ScalerState:
    """State after the last iteration."""

    replicas: int | None = None  # last requested count; None for `unknown_reason`
    last_iteration_at: float = 0.0  # monotonic seconds
    was_known: bool = False  # in an iteration plan, pods and group were known (rule 2)
    unknown_iterations: int = 0  # in a row, without them
    is_idle: bool = False  # the group has nothing to read
    last_reasons: str = "no iteration yet"  # of the last decision
    unknown_reason: str = "the sidecar has not completed an iteration yet"


def apply_report(
    state: ScalerState, report: IterationReport, limits: StalenessLimits, now: float
) -> ScalerState:
    """Return the state after another iteration; `now` is monotonic seconds."""
    is_known = report.decision.metrics.running_replicas is not None
    new = replace(
        state,
        last_iteration_at=now,
        was_known=report.is_leader and (state.was_known or is_known),  # a standby reports nothing
        unknown_iterations=0 if is_known else state.unknown_iterations + 1,
        is_idle=is_known and is_idle(report.write_rates),
        last_reasons=report.decision.reason_text,
    )
    reason = explain_unavailability(new, limits, now)
    if now - state.last_iteration_at > limits.silent_seconds:
        # This iteration ends the silence, but KEDA may have set a count during it (rule 6).
        reason = f"the sidecar completed no iteration for more than {limits.silent_seconds:g} s"
    return replace(new, replicas=None, unknown_reason=reason) if reason else new


def explain_unavailability(state: ScalerState, limits: StalenessLimits, now: float) -> str:
    """Return why the count is unavailable; empty if it is available."""
    silent = now - state.last_iteration_at
    if state.replicas is None:
        return state.unknown_reason
    if not state.was_known:
        return f"the sidecar has no replica count yet: {state.last_reasons}"
    if silent > limits.silent_seconds:
        return f"the sidecar has completed no iteration for {silent:.0f} s; see its log"
    if state.unknown_iterations >= limits.unknown_iterations:
        return (
            f"the sidecar did not know plan, pods or group for {state.unknown_iterations} "
            f"iterations: {state.last_reasons}"
        )
    if not state.replicas and not state.is_idle:
        return f"0 replicas are not safe, the group may have records to read: {state.last_reasons}"
    return ""


def require_replica_count(state: ScalerState, limits: StalenessLimits, now: float) -> int:
    """Return the desired replica count. Raises ReplicaCountUnavailableError with the reason."""
    reason = explain_unavailability(state, limits, now)
    if reason or state.replicas is None:
        raise ReplicaCountUnavailableError(reason)
    return state.replicas
