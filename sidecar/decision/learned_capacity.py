"""Learns the sustained rate of each consumer while it has backlog.

1. A consumer is saturated while every partition it owns with writes is overdue, and at least one
   is. A change of its partitions restarts the time.
2. Its consumption over a whole evaluation window in saturation is its capacity, within bounds
   around the configured one.
3. The capacity is kept until the consumer is gone or shows another one, or records weigh otherwise.
"""

from dataclasses import replace

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.decision.decision_memory import DecisionMemory, SaturatedConsumer
from trimtab.sidecar.decision.group_model import GroupModel
from trimtab.sidecar.model.autoscaling_policy import CapacityBounds
from trimtab.sidecar.model.catch_up_policy import compute_overdue_bytes


def update_learned_capacities(model: GroupModel, memory: DecisionMemory, now: float) -> DecisionMemory:
    """Return the memory with the capacities learned in this iteration."""
    bounds = model.policy.learned_capacity_bounds
    configured = model.policy.placement.capacity
    if bounds is None:
        return memory
    saturated: dict[str, SaturatedConsumer] = {}
    running = model.list_consumers(model.running)
    learned = {name: c for name, c in memory.learned_capacities.items() if name in running}
    for name in running:
        owned = model.partitions_of(name)
        # a stuck consumer shows less than its capacity
        if model.observation.stuck_partitions & owned or not is_behind(model, owned):
            continue
        last = memory.saturated.get(name)
        if last is None or last.owned_partitions != owned:
            last = SaturatedConsumer(now, owned)  # other partitions may be read at another rate
        saturated[name] = last
        if now - last.since >= model.policy.scale_up_evaluation_window:
            rate = sum(model.observation.consumption_rates[p] for p in owned)
            learned[name] = _clamp(rate, bounds, configured)
    return replace(memory, saturated=saturated, learned_capacities=learned)


def is_behind(model: GroupModel, owned: frozenset[TopicPartition]) -> bool:
    """Return whether a consumer of these partitions is behind with all of them (rule 1)."""
    loads = {p: model.write_rates[p] for p in owned if p in model.write_rates}
    if len(loads) < len(owned) or any(p not in model.observation.consumption_rates for p in owned):
        return False  # an unknown partition may be the one that keeps the consumer idle
    overdue = {p: compute_overdue_bytes(s, model.policy.catch_up) for p, s in loads.items()}
    return any(overdue.values()) and all(overdue[p] or s.bytes_per_s == 0 for p, s in loads.items())


def _clamp(rate: float, bounds: CapacityBounds, configured: float) -> float:
    return min(max(rate, bounds.min_share * configured), bounds.max_share * configured)
