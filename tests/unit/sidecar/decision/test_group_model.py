"""Figures of a group that several decision rules share."""

from dataclasses import replace
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from support.policies import build_policy
from trimtab.assignor import Load, TopicPartition
from trimtab.assignor.heuristics import registry
from trimtab.assignor.model import PlacementPolicy
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.group_model import GroupModel, build_group_model, sum_rates
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ObservedMember,
    ReplicaInstance,
)

CAPACITY = 100.0


def test_a_sum_of_rates_does_not_depend_on_their_order() -> None:
    """Owned partitions are a set, whose order differs from process to process."""
    rates = {TopicPartition("t", n): rate for n, rate in enumerate((0.1, 0.2, 0.3, 1e9))}
    assert len({sum_rates(order, Load(rates)) for order in permutations(rates)}) == 1


def build_model(heuristic: str, rates: list[float], capacities: list[float], headroom: float) -> GroupModel:
    """Return a group whose consumers of these capacities own the partitions in turn."""
    partitions = [TopicPartition("t", n) for n in range(len(rates))]
    owned = [frozenset(partitions[n :: len(capacities)]) for n in range(len(capacities))]
    members = tuple(
        ObservedMember(f"id-{n}", f"c-{n}", owned[n], capacity=capacity)
        for n, capacity in enumerate(capacities)
    )
    loads = {p: PartitionLoad(bytes_per_s=rate) for p, rate in zip(partitions, rates, strict=True)}
    replicas = tuple(ReplicaInstance(f"c-{n}", alive=True, started_at=0.0) for n in range(len(capacities)))
    plan = GroupPlan("g", 1, 0.0, len(capacities), heuristic, CAPACITY, headroom)
    seen = Observation(loads, ObservedGroup(GroupState.STABLE, members), replicas, plan)
    policy = build_policy(placement=PlacementPolicy(heuristic, CAPACITY, headroom, consolidate=True))
    return build_group_model(seen, policy, plan)


def test_a_partition_is_too_large_only_if_it_is_certain() -> None:
    """Neither by the error of its sizes nor by a change of its rate."""
    model = build_model("steady", [130.0], [CAPACITY], 1.0)
    (partition,) = model.observation.write_rates
    texts = [
        replace(model, observation=replace(model.observation, write_rates={partition: load}))
        for load in (
            PartitionLoad(130.0),
            PartitionLoad(130.0, error_bytes_per_s=10.0, stddev_bytes_per_s=5.0),
            PartitionLoad(130.0, error_bytes_per_s=20.0),
            PartitionLoad(130.0, stddev_bytes_per_s=20.0),
        )
    ]
    told = [text.describe_oversized_partitions() is not None for text in texts]
    assert told == [True, True, False, False]


@given(
    st.sampled_from(sorted(registry.list_heuristics())),
    st.lists(st.one_of(st.floats(0, 160), st.sampled_from([30.0, 45.0, 90.0])), min_size=1, max_size=24),
    st.lists(st.sampled_from([60.0, CAPACITY, 150.0]), min_size=1, max_size=5),
    st.sampled_from([0.5, 0.9, 1.0]),
    st.sampled_from([0.8, 1.0, 1.1]),
)
def test_no_group_is_sized_below_the_bound(
    heuristic: str, rates: list[float], capacities: list[float], headroom: float, share: float
) -> None:
    """The bound spares a search; a count below it would change decisions."""
    model = build_model(heuristic, rates, capacities, headroom)
    assert model.bound_replicas(share) <= model.size_active(share).consumers


def test_a_group_is_not_stable_while_a_former_owner_still_reads() -> None:
    """A round without a second one shows the next owner at once; the next plan would wait for the flush."""
    model = build_model("steady", [30.0, 30.0], [CAPACITY, CAPACITY], 1.0)
    assert model.explain_instability() is None
    group = replace(model.observation.group, unreleased=frozenset({TopicPartition("t", 1)}))
    flushing = replace(model, observation=replace(model.observation, group=group))
    assert flushing.explain_instability() == "1 partition is being handed over (t-1 first)"
