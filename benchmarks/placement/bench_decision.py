"""CPU time of a whole decision of the sidecar, from its observation to the published plan.

--partitions in ten topics on --consumers, placed by the heuristic and filled to 86 % of the capacity. Then
`make_decision` on four observations: the same load (rest), 15 % more (growth), 30 % less (shrink), and five
percent of the partitions with 60 % more (overfull). Medians in CPU ms of the calling thread.

    python -m benchmarks.placement.bench_decision
"""

from argparse import ArgumentParser, Namespace
from dataclasses import replace
from statistics import median
from time import thread_time
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.harness import result
from trimtab.assignor.model import ConsumerGroup, FloatArray, Load, Member, PlacementPlan, TopicPartition
from trimtab.assignor.modes.decisions import place_partitions
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decide import make_decision
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory, TimestampedRecommendation
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)
from trimtab.sidecar.settings.settings import load_settings

HEURISTICS: Final = ("steady", "mwf", "mbf", "mbfp")
TOPICS: Final = 10
CAPACITY: Final = 1e6  # bytes/s
FILLED: Final = 0.86
NOW: Final = 1.8e9
SETTLED_S: Final = 500.0  # since the last change


def main() -> None:
    options = _parse_arguments()
    table = Table("heuristic", "rest, ms", "growth, ms", "shrink, ms", "overfull, ms")
    figures: dict[str, dict[str, float]] = {}
    for heuristic in options.heuristics:
        figures[heuristic] = time_decisions(heuristic, options)
        table.add_row(heuristic, *(f"{ms:.0f}" for ms in figures[heuristic].values()))
    Console().print(table)
    size = {"partitions": options.partitions, "consumers": options.consumers}
    result({**size, "decision_cpu_ms": figures})


def _parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--consumers", type=int, default=100)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--heuristics", nargs="+", default=HEURISTICS)
    return parser.parse_args()


def time_decisions(heuristic: str, options: Namespace) -> dict[str, float]:
    """Return the median CPU ms of a decision in each scene."""
    rng = np.random.default_rng(1)
    policy = build_policy(heuristic, options.consumers)
    partitions = [TopicPartition(f"topic-{n % TOPICS}", n // TOPICS) for n in range(options.partitions)]
    rates = rng.uniform(0, 1, options.partitions)
    rates *= FILLED * CAPACITY * options.consumers / rates.sum()
    names = [f"consumer-{n:04}" for n in range(options.consumers)]
    placed = place_on_members(partitions, rates, names, policy)
    factors = rng.uniform(0.8, 1.2, options.partitions)
    factors[::20] *= 1.6
    overfull = factors * rates.sum() / (factors * rates).sum()
    scenes = {"rest": 1.0, "growth": 1.15, "shrink": 0.7, "overfull": overfull}
    return {
        scene: time_decision(observe_group(partitions, rates * factor, placed, policy), policy, options.runs)
        for scene, factor in scenes.items()
    }


def build_policy(heuristic: str, consumers: int) -> AutoscalingPolicy:
    settings: dict[str, Any] = {
        "bootstrap": "nowhere:9092",
        "group": "bench",
        "capacity": CAPACITY,
        "heuristic": heuristic,
        "max": 4 * consumers,
    }
    return replace(load_settings(None, settings).autoscaling_policy, advisory=False)


def place_on_members(
    partitions: list[TopicPartition], rates: FloatArray, names: list[str], policy: AutoscalingPolicy
) -> PlacementPlan:
    topics = frozenset(p.topic for p in partitions)
    members = tuple(Member(name, topics, instance=name) for name in names)
    load = Load(dict(zip(partitions, rates.tolist(), strict=True)))
    return place_partitions(ConsumerGroup(members, tuple(partitions)), load, policy.placement)


def observe_group(
    partitions: list[TopicPartition], rates: FloatArray, placed: PlacementPlan, policy: AutoscalingPolicy
) -> Observation:
    loads = {
        p: PartitionLoad(bytes_per_s=rate, backlog_bytes=rate, backlog_records=1)
        for p, rate in zip(partitions, rates.tolist(), strict=True)
    }
    owned = placed.assignment.items()
    members = tuple(ObservedMember(f"{name}-id", name, frozenset(held)) for name, held in owned)
    replicas = tuple(ReplicaInstance(m.instance, alive=True, started_at=NOW - 3600) for m in members)
    placement = policy.placement
    figures = (placement.heuristic, placement.capacity, placement.headroom)
    plan = GroupPlan("bench", 7, NOW - SETTLED_S, len(members), *figures)
    return Observation(loads, ObservedGroup(GroupState.STABLE, members), replicas, plan)


def time_decision(observation: Observation, policy: AutoscalingPolicy, runs: int) -> float:
    count = len(observation.group.members)
    memory = DecisionMemory(
        (TimestampedRecommendation(NOW - 60, count),),
        last_change=NOW - SETTLED_S,
        overfull_since=NOW - SETTLED_S,
    )
    return round(median(_time_decision(observation, policy, memory)[1] for _ in range(runs)), 1)


def _time_decision(
    observation: Observation, policy: AutoscalingPolicy, memory: DecisionMemory
) -> tuple[ScalingDecision, float]:
    began = thread_time()
    decision, _ = make_decision(observation, policy, memory, NOW, "bench")
    return decision, 1e3 * (thread_time() - began)


if __name__ == "__main__":
    main()
