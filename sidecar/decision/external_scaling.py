"""Counts that somebody else set at the target: an autoscaler, a deployment tool, a person. Pure.

1. A count is foreign if it was set by others after the plan in force was made, and is not what the
   plan comes to. A plan that was not carried out yet is carried out, not taken back.
2. Zero that others set is a pause, whenever it was set: nothing is started until they set another
   count. So has the HPA it. A zero of which nobody knows who set it is ours where zero is planned.
3. Respected: the plan takes the count over, and nobody drains any more. Windows and cooldown begin
   anew with it, then the load decides again.
4. Contested: below the plan, replicas are started again; above it, the surplus is drained.
"""

from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.measurement.observation import RequestedReplicas


def find_external_request(model: GroupModel) -> RequestedReplicas | None:
    """Return the count that somebody else set; None where the count is ours, or as planned."""
    asked = model.observation.external_scaling.requested
    if asked is None or asked.is_ours or asked.requested_at <= model.plan.time:
        return None
    return None if asked.count == model.plan.replicas + len(model.draining) else asked


def explain_external_pause(model: GroupModel) -> str | None:
    """Tell who set the count to zero; None where nobody did."""
    asked = model.observation.external_scaling.requested
    if asked is None or asked.is_ours or asked.count:
        return None
    if not asked.is_requester_known and not model.plan.replicas:
        return None
    return f"{asked.requested_by} set 0 replicas: nothing is started until another count is set"


def is_target_starting(model: GroupModel) -> bool:
    """Tell whether the target itself already starts what the plan misses."""
    asked = model.observation.external_scaling.requested
    return asked is not None and asked.count >= model.plan.replicas + len(model.draining)


def count_without_surge(model: GroupModel) -> int:
    """Return how many replicas are to stay, without those that a rollout adds for a while."""
    asked = model.observation.external_scaling.requested
    return len(model.active) if asked is None else min(len(model.active), asked.count)
