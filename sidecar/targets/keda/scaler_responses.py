"""What KEDA is answered, from what the turns left. Pure.

1. The count is the one that the target was asked for last: it rises when the plan grows, and falls
   only when a drained pod owns nothing, is marked as the one to go, and the group is at rest.
2. Before the first turn that knew plan, pods and group there is no answer.
3. A blind turn, which did not know one of them, leaves the count; after so many in a row there is
   no answer. Unknown write speeds alone are not blind: the policy's `fallback` makes the count.
4. Zero is answered only where it is known that nothing is to be read.
5. Without a turn for too long, and from a sidecar that stands by, there is no answer.
6. Where there was no answer KEDA may have set a count by its own `fallback`, or another sidecar may
   have answered. So the count is forgotten, and the next turn goes on from the one that it finds.

No answer is UNAVAILABLE: KEDA then leaves the count, or does what its own `fallback` says.
"""

from dataclasses import dataclass, replace
from typing import Final

from trimtab.sidecar.decision.scale_to_zero import is_idle
from trimtab.sidecar.errors import ReplicaCountUnavailableError
from trimtab.sidecar.reporting.iteration_report import IterationReport

KEDA_METRIC_NAME: Final = "trimtab-replicas"
"""Name of the one metric: replicas."""

METRIC_PER_REPLICA: Final = 1
"""One replica's share of it."""


@dataclass(frozen=True, slots=True)
class StalenessLimits:
    """How many blind turns in a row are borne, and how many seconds without any turn."""

    blind_iterations: int
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class ScalerState:
    """What the turns left.

    `replicas` is what the target was asked for last, None where it was forgotten, and
    `unknown_reason` it was; `last_iteration_at` when the last turn ended (monotonic seconds);
    `has_sight` whether one has known all it must; `blind_iterations` how many since then have not;
    `is_idle` whether it is known that nothing is to be read; `last_reasons` why the last one did
    what it did.
    """

    replicas: int | None = None
    last_iteration_at: float = 0.0
    has_sight: bool = False
    blind_iterations: int = 0
    is_idle: bool = False
    last_reasons: str = "no turn yet"
    unknown_reason: str = "the sidecar has made no turn yet"


def apply_report(
    state: ScalerState, report: IterationReport, limits: StalenessLimits, now: float
) -> ScalerState:
    """Return what is left after another turn; `now` is monotonic seconds."""
    sighted = report.decision.metrics.running_replicas is not None
    new = replace(
        state,
        last_iteration_at=now,
        has_sight=report.is_leader and (state.has_sight or sighted),
        blind_iterations=0 if sighted else state.blind_iterations + 1,
        is_idle=sighted and is_idle(report.write_rates),
        last_reasons="; ".join(report.decision.reasons),
    )
    late = now - state.last_iteration_at > limits.silent_seconds
    why = "the sidecar made no turn for long" if late else explain_unavailability(new, limits, now)
    return replace(new, replicas=None, unknown_reason=why) if why else new


def explain_unavailability(state: ScalerState, limits: StalenessLimits, now: float) -> str:
    """Say why there is no answer; empty where there is one."""
    silent = now - state.last_iteration_at
    if state.replicas is None:
        return state.unknown_reason
    if not state.has_sight:
        return f"the sidecar knows no count yet: {state.last_reasons}"
    if silent > limits.silent_seconds:
        return f"the sidecar has made no turn for {silent:.0f} s; look into its log"
    if state.blind_iterations >= limits.blind_iterations:
        return (
            f"the sidecar has been blind for {state.blind_iterations} turns: {state.last_reasons}"
        )
    if not state.replicas and not state.is_idle:
        return f"it is not known that nothing is to be read: {state.last_reasons}"
    return ""


def require_replica_count(state: ScalerState, limits: StalenessLimits, now: float) -> int:
    """Return how many replicas there are to be. Raises ReplicaCountUnavailableError, saying why."""
    reason = explain_unavailability(state, limits, now)
    if reason or state.replicas is None:
        raise ReplicaCountUnavailableError(reason)
    return state.replicas
