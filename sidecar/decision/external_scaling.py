"""Counts that somebody else set at the target: an autoscaler, a deployment tool, a person. Pure.

1. A count is foreign if it was set by others after the plan in force was made, and is not what the
   plan comes to. A plan that was not carried out yet is carried out, not taken back.
2. Zero that others set is a pause, whenever it was set: nothing is started until they set another
   count. So has the HPA it. A zero of which nobody knows who set it is ours where zero is planned.
3. Respected: the plan takes the count over, and nobody drains any more. Windows and cool-down begin
   anew with it, then the load decides again.
4. Contested: below the plan, replicas are started again; above it, the surplus is drained.
"""

from trimtab.sidecar.decision.group_model import Situation
from trimtab.sidecar.measurement.observation import Asked


def foreign(at: Situation) -> Asked | None:
    """Return the count that somebody else set; None where the count is ours, or as planned."""
    asked = at.seen.outside.asked
    if asked is None or asked.ours or asked.at <= at.plan.time:
        return None
    return None if asked.count == at.plan.replicas + len(at.draining) else asked


def switched_off(at: Situation) -> str | None:
    """Tell who set the count to zero; None where nobody did."""
    asked = at.seen.outside.asked
    if asked is None or asked.ours or asked.count:
        return None
    if not asked.traced and not at.plan.replicas:
        return None
    return f"{asked.by} set 0 replicas: nothing is started until another count is set"


def on_its_way(at: Situation) -> bool:
    """Tell whether the target itself already starts what the plan misses."""
    asked = at.seen.outside.asked
    return asked is not None and asked.count >= at.plan.replicas + len(at.draining)


def meant(at: Situation) -> int:
    """Return how many replicas are to stay, without those that a rollout adds for a while."""
    asked = at.seen.outside.asked
    return len(at.active) if asked is None else min(len(at.active), asked.count)
