"""Handles replica counts set by others at the target: an autoscaler, a tool, a person. Pure.

1. A count is external if someone else set it after the plan in force was made and it differs from
   the planned count. A plan not executed yet is executed, not reverted.
2. An external count of 0 is a pause at any time: nothing starts until another count is set, as with
   the HPA. A zero of unknown origin is ours if the plan has zero replicas.
3. The plan adopts the count and all drains end. Windows and cooldown start anew, then the load
   decides again.
"""

from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.model.observation import RequestedReplicas


def find_external_request(model: GroupModel) -> RequestedReplicas | None:
    """Return the external count; None if the count is ours, or as planned."""
    requested = model.observation.target_status.requested
    if requested is None or requested.is_ours or requested.requested_at <= model.plan.time:
        return None  # an older request: the plan was made with its knowledge
    # Draining replicas still run, so the target's count includes them.
    return None if requested.count == model.plan.replicas + len(model.draining) else requested


def explain_external_pause(model: GroupModel) -> str | None:
    """Return the reason to pause; None without an external zero."""
    requested = model.observation.target_status.requested
    if requested is None or requested.is_ours or requested.count:
        return None
    if not requested.is_requester_known and not model.plan.replicas:
        return None  # Kubernetes records no field manager for a zero, so this may be ours
    return f"{requested.requested_by} set 0 replicas: nothing starts until another count is set"


def is_target_starting(model: GroupModel) -> bool:
    """Return whether the target already starts the replicas missing from the plan."""
    requested = model.observation.target_status.requested  # None: the target replaces no dead replica
    return requested is not None and requested.count >= model.plan.replicas + len(model.draining)


def explain_missing_replicas(model: GroupModel, memory: DecisionMemory, now: float) -> str | None:
    """Return that the target runs fewer replicas than requested for too long; None if it does not."""
    timeout = model.policy.startup_timeout
    since = memory.short_since
    if since is None or now - since < timeout or not is_target_starting(model):
        return None
    running = f"{len(model.active)} of {model.plan.replicas} running"
    return f"{running}, the target has not started the others within {timeout:g} s"


def count_without_surge(model: GroupModel) -> int:
    """Return the number of active replicas without the temporary surge of a rollout."""
    requested = model.observation.target_status.requested
    # maxSurge starts pods beyond the count; adopting them would plan more replicas at each rollout.
    return len(model.active) if requested is None else min(len(model.active), requested.count)
