"""CPU time of a round that the sidecar leads: from unmodified clients' subscriptions to their assignments.

A member joins a cooperative group of 1,000 with 100,000 partitions, as in bench_assign. `plan` follows a
target that gives it its share; `own` has no plan, so the lead decides by its heuristic. `second` is the
round after the owners have revoked what moves. Median CPU ms of the calling thread, over all of the round:
decoding, decision and encoding.

    python -m benchmarks.placement.bench_lead [--partitions 100000] [--members 1000]
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Final

import numpy as np

from benchmarks.harness import result
from benchmarks.placement.assign_problem import GENERATION, Problem, encode_subscriptions, make_problem
from benchmarks.placement.bench_decide import time_call
from trimtab.assignor.model import UNASSIGNED, IntArray, Load, PlacementPolicy
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.sidecar.group_lead.lead_round import (
    JoinedGroup,
    KnownTopics,
    LeadMemory,
    LedRound,
    decide_led_round,
    read_subscriptions,
)

TOPICS: Final = 10
CAPACITY: Final = 1e9
POLICY: Final = PlacementPolicy(capacity=CAPACITY)


def lead_round(
    problem: Problem, subscriptions: Mapping[str, bytes], view: LeaderView, memory: LeadMemory
) -> LedRound:
    """Lead a round of the members with these subscriptions."""
    index = problem.partition_index
    sizes = np.diff(index.start).tolist()
    topics = KnownTopics({t: range(size) for t, size in zip(index.topics, sizes, strict=True)})
    names = {member: member for member in subscriptions}
    group = JoinedGroup(GENERATION + 1, read_subscriptions(subscriptions), names, topics)
    return decide_led_round(group, view, POLICY, memory)


def plan_target(problem: Problem, placed: IntArray) -> GroupPlan:
    """Return a plan with this placement."""
    index = problem.partition_index
    numbers = {
        topic: tuple((placed[index.start[t] : index.start[t + 1]] + 1).tolist())
        for t, topic in enumerate(index.topics)
    }
    target = PlanTarget(1, problem.ids, 0, numbers)
    return GroupPlan("g", 1, 0.0, len(problem.ids), "steady", CAPACITY, target=target)


def time_rounds(problem: Problem, view: LeaderView, memory: LeadMemory, runs: int) -> tuple[LedRound, float]:
    """Return the round, and its median CPU ms."""
    subscriptions = encode_subscriptions(problem).cooperative
    call = partial(lead_round, problem, subscriptions, view, memory)
    rounds = [time_call(call) for _ in range(runs)]
    return rounds[-1][0], round(median(ms for _, ms in rounds), 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--partitions", type=int, default=100_000)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    joined = make_problem(options.partitions, options.members, TOPICS, "join")
    load = Load(dict(zip(joined.partition_index.list_partitions(), joined.rate.tolist(), strict=True)))
    own = LeaderView(load)
    subscriptions = encode_subscriptions(joined).cooperative
    earlier = {member: subscriptions[member] for member in joined.ids[:-1]}
    before = lead_round(joined, earlier, own, LeadMemory()).memory
    placed = lead_round(joined, subscriptions, own, before).outcome.target
    views = {"own": own, "plan": LeaderView(load, plan_target(joined, placed))}
    figures: dict[str, float] = {}
    for name, view in views.items():
        first, figures[name] = time_rounds(joined, view, before, options.runs)
        revoked = replace(
            joined, owner=np.where(first.outcome.assigned_now, first.outcome.target, UNASSIGNED)
        )
        second, figures[f"{name}_second"] = time_rounds(revoked, view, first.memory, options.runs)
        assert first.withheld > 0 == second.withheld
        figures[f"{name}_moves"] = first.withheld
        print(
            f"{name}: {figures[name]} ms, second round {figures[f'{name}_second']} ms, {first.withheld} moves"
        )
    result({"partitions": options.partitions, "members": options.members, "cpu_ms": figures})


if __name__ == "__main__":
    main()
