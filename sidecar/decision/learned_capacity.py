"""What each consumer really sustains, learned while it had backlog.

1. A consumer is busy while every partition it reads that is written to is behind, and at least one
   is; a change of what it reads begins the time anew.
2. What a consumer consumed over a whole window in which it was busy is its capacity, within bounds
   around the configured one.
3. It is kept until the consumer is gone, or shows another one.
"""

from dataclasses import replace

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.decision.scaling_policy import DecisionMemory, SaturatedConsumer
from trimtab.sidecar.measurement.write_rate import compute_overdue_bytes


def update_learned_capacities(
    model: GroupModel, memory: DecisionMemory, now: float
) -> DecisionMemory:
    """Return the memory with what this turn shows."""
    if model.policy.learned_capacity_bounds is None:
        return memory
    busy: dict[str, SaturatedConsumer] = {}
    found = {name: c for name, c in memory.learned_capacities.items() if name in model.running}
    for name in model.running:
        owned = model.owned_partitions(name)
        if not _is_saturated(model, owned):
            continue
        last = memory.saturated.get(name)
        busy[name] = (
            last
            if last is not None and last.owned_partitions == owned
            else SaturatedConsumer(now, owned)
        )
        if now - busy[name].since >= model.policy.scale_up_evaluation_window:
            found[name] = _clamp_capacity(
                model, sum(model.observation.consumption_rates[p] for p in owned)
            )
    return replace(memory, saturated=busy, learned_capacities=found)


def _is_saturated(model: GroupModel, owned: frozenset[TopicPartition]) -> bool:
    """Tell whether a reader of these is behind with all of them that are written to (rule 1)."""
    speeds = {
        p: model.observation.write_rates[p] for p in owned if p in model.observation.write_rates
    }
    if len(speeds) < len(owned) or any(p not in model.observation.consumption_rates for p in owned):
        return False
    if model.observation.stuck_partitions & owned:
        return False  # what it consumes says nothing of what it could
    waits = {p: compute_overdue_bytes(speed, model.policy.catch_up) for p, speed in speeds.items()}
    return any(waits.values()) and all(waits[p] or s.bytes_per_s == 0 for p, s in speeds.items())


def _clamp_capacity(model: GroupModel, rate: float) -> float:
    usual, bounds = model.policy.placement.capacity, model.policy.learned_capacity_bounds
    assert bounds is not None, "only asked for where capacities are learned"
    return min(max(rate, bounds.min_share * usual), bounds.max_share * usual)
