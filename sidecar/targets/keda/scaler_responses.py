"""Replica counts reported to KEDA, derived from control-loop iterations. Pure.

1. The count is the last one requested from the target. It rises with the plan and falls only when a
   drained pod owns nothing, is marked for deletion, and the group is stable.
2. Before the first iteration with known plan, pods and group, the count is UNAVAILABLE.
3. A blind iteration (one of them unknown) keeps the count; too many in a row make it UNAVAILABLE.
   Unknown write rates alone do not make an iteration blind: the policy's `fallback` sets the count.
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
from trimtab.sidecar.reporting.iteration_report import IterationReport

KEDA_METRIC_NAME: Final = "trimtab-replicas"  # the desired number of replicas
METRIC_PER_REPLICA: Final = 1  # the HPA divides the metric by this target value


@dataclass(frozen=True, slots=True)
class StalenessLimits:
    """Maximum blind iterations in a row, and maximum seconds without an iteration."""

    blind_iterations: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class ScalerState:
    """State after the last iteration."""

    replicas: int | None = None  # last requested count; None for `unknown_reason`
    last_iteration_at: float = 0.0  # monotonic seconds
    has_sight: bool = False  # there was an iteration with known plan, pods and group (rule 2)
    blind_iterations: int = 0  # in a row, without them
    is_idle: bool = False  # the group has nothing to read
    last_reasons: str = "no iteration yet"  # of the last decision
    unknown_reason: str = "the sidecar has not completed an iteration yet"


def apply_report(
    state: ScalerState, report: IterationReport, limits: StalenessLimits, now: float
) -> ScalerState:
    """Return the state after another iteration; `now` is monotonic seconds."""
    sighted = report.decision.metrics.running_replicas is not None
    new = replace(
        state,
        last_iteration_at=now,
        has_sight=report.is_leader and (state.has_sight or sighted),  # a standby reports nothing
        blind_iterations=0 if sighted else state.blind_iterations + 1,
        is_idle=sighted and is_idle(report.write_rates),
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
    if not state.has_sight:
        return f"the sidecar has no replica count yet: {state.last_reasons}"
    if silent > limits.silent_seconds:
        return f"the sidecar has completed no iteration for {silent:.0f} s; see its log"
    if state.blind_iterations >= limits.blind_iterations:
        return (
            f"the sidecar did not know plan, pods or group for {state.blind_iterations} "
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
