"""Racks in a decision: cross-rack traffic, warnings, and costs."""

import sys
from collections.abc import Mapping

import numpy as np
import pytest

from trimtab.assignor import (
    BrokenHeuristicError,
    ConsumerGroup,
    Load,
    Member,
    PlacementPlan,
    PlacementPolicy,
    TopicPartition,
    UnknownHeuristicError,
    get_heuristic,
    place_partitions,
    size_group,
)
from trimtab.assignor.clients.leader_plugin import parse_own_policy
from trimtab.assignor.heuristics import registry
from trimtab.assignor.heuristics.heuristic_spec import HeuristicSpec, parse_heuristic_spec
from trimtab.assignor.heuristics.steady.cross_rack_costs import compute_cross_rack_costs
from trimtab.assignor.model import UNASSIGNED, PackingProblem, RackTopology
from trimtab.assignor.model.heuristic import HeuristicDependency
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.model.replica_racks import ReplicaRacks, build_rack_topology

AWARE = PlacementPolicy("rack-aware", 100.0)
TOPIC = frozenset({"t"})


def members(*racks: str | None) -> tuple[Member, ...]:
    """Return members m0, m1 and so on in these racks."""
    return tuple(Member(f"m{i}", TOPIC, rack=rack) for i, rack in enumerate(racks))


def group(there: tuple[Member, ...], *replicas: tuple[str | None, ...], owners: str = "") -> ConsumerGroup:
    """Return a group with a partition per set of racks; `owners` are digits of their members."""
    names = tuple(TopicPartition("t", n) for n in range(len(replicas)))
    owned = {name: f"m{digit}" for name, digit in zip(names, owners, strict=False)}
    return ConsumerGroup(there, names, owned, dict(zip(names, replicas, strict=True)))


def readers(plan: PlacementPlan) -> str:
    """Return the digit of each partition's member."""
    by_partition = {p: m[1:] for m, held in plan.assignment.items() for p in held}
    return "".join(by_partition[p] for p in sorted(by_partition))


def create_load(*of: float) -> Load:
    return Load({TopicPartition("t", n): rate for n, rate in enumerate(of)})


def test_members_read_in_their_own_racks() -> None:
    """Counts are even, and no avoidable read crosses racks."""
    plan = place_partitions(group(members("a", "b"), ("b",), ("a",), ("b", "c"), ("a",)), Load(), AWARE)
    assert readers(plan) == "1010"
    assert plan.cross_rack_load == 0
    assert not [note for note in plan.notes if "rack" in note]


def test_a_move_to_a_local_replica_names_both_racks() -> None:
    """The reason names both racks and the instances."""
    plan = place_partitions(group(members("a", "b"), ("b",), ("a",), owners="01"), Load(), AWARE)
    assert readers(plan) == "10"
    assert plan.moves[0].reason == ("rack-aware: a replica is in rack b of m1, none in rack a of m0")


def test_traffic_causes_a_move_by_its_cost() -> None:
    """With the costs of Kafka Streams' sticky assignor a partition of the mean rate does not move."""
    there = group(members("a", "b"), ("b",), ("a",), owners="01")
    dear = PlacementPolicy("rack-aware:traffic_cost=1:non_overlap_cost=10", 100.0)
    assert readers(place_partitions(there, Load(), dear)) == "01"
    assert readers(place_partitions(there, Load(), AWARE)) == "10"


def test_the_busiest_partition_is_placed_locally_first() -> None:
    """Traffic counts by write rate: of two partitions with one local place, the busier gets it."""
    there = group(members("a", "b"), ("a",), ("a",))
    assert readers(place_partitions(there, create_load(1, 9), AWARE)) == "10"
    assert readers(place_partitions(there, create_load(9, 1), AWARE)) == "01"


def test_each_topic_is_evened_by_itself() -> None:
    """balance_subtopology evens the counts of each topic; min_traffic does not."""
    names = tuple(TopicPartition(t, n) for t in ("t", "u") for n in range(2))
    both = frozenset({"t", "u"})
    there = ConsumerGroup(
        tuple(Member(f"m{i}", both, rack=r) for i, r in enumerate("ab")),
        names,
        replica_racks={name: ({"t": "a", "u": "b"}[name.topic],) for name in names},
    )
    free = place_partitions(there, Load(), PlacementPolicy("rack-aware:min_traffic"))
    assert readers(free) == "0011"
    assert free.cross_rack_load == 0
    even = place_partitions(there, Load(), PlacementPolicy("rack-aware:balance_subtopology"))
    assert all({p.topic for p in held} == both for held in even.assignment.values())


def test_none_is_sticky() -> None:
    """The strategy "none" ignores racks."""
    there = group(members("a", "b"), ("b",), ("a",), owners="01")
    plan = place_partitions(there, Load(), PlacementPolicy("rack-aware:none"))
    assert readers(plan) == "01"
    assert plan.cross_rack_load is None


def test_unknown_racks_cost_nothing_and_are_named() -> None:
    """A member without client.rack is local to all; so is a partition of a broker without a rack."""
    there = group(members("a", None), ("b",), ("b", None), (), owners="010")
    plan = place_partitions(there, Load(), AWARE)
    assert plan.cross_rack_load == 0
    assert readers(plan)[0] == "1"
    assert plan.notes[1:] == (
        "unknown rack of m1 (client.rack): their reads do not count as cross-rack",
        (
            "unknown rack of brokers with replicas of t-1, t-2 (broker.rack): "
            "reads of them do not count as cross-rack"
        ),
        "replicas are in b, but no member is",
    )


def test_missing_racks_are_noted() -> None:
    """Without any rack rack-aware evens the counts and notes the reason."""
    there = ConsumerGroup(members(None, None), tuple(TopicPartition("t", n) for n in range(4)))
    plan = place_partitions(there, Load(), AWARE)
    assert sorted(map(len, plan.assignment.values())) == [2, 2]
    assert "unknown rack of m0, m1 (client.rack): their reads do not count as cross-rack" in plan.notes


def test_unavoidable_traffic_is_noted() -> None:
    """The notes name racks without a member, and partitions without a replica in a member's rack."""
    there = group(members("a", "b"), *[("c",)] * 5, ("a",))
    plan = place_partitions(there, Load(), AWARE)
    assert sorted(map(len, plan.assignment.values())) == [3, 3]
    assert "replicas are in c, but no member is" in plan.notes
    assert "no member is in a rack with a replica of t-0, t-1, t-2 and 2 more" in plan.notes


def test_a_member_in_a_rack_without_brokers_is_remote_from_all() -> None:
    """Its rack is known, and has no replica."""
    plan = place_partitions(group(members("a", "z"), ("a",), ("a",)), create_load(5, 1), AWARE)
    assert readers(plan) == "01"
    assert plan.cross_rack_load == 1
    assert any(note.startswith("no replica is in the rack of m1 (z): all") for note in plan.notes)


def test_racks_are_looked_up_by_partition() -> None:
    """Numbers may have gaps, topics may be unknown, and racks may have no consumer."""
    partition_index = PartitionIndex.from_partitions(
        [TopicPartition("t", 3), TopicPartition("t", 7), ("u", 0)]
    )  # type: ignore[list-item]
    found = ReplicaRacks.from_topics(partition_index, {"t": {7: ["b", "a"], 3: ["b", None]}})
    assert found.racks == ("a", "b")
    assert found.known.tolist() == [False, True, False]
    racks = build_rack_topology(members("b", "c", None), found, np.arange(3, dtype=np.int32))
    assert racks.member_rack.tolist() == [0, 1, 2]
    assert racks.remote.tolist() == [[False] * 3, [False, True, False], [False] * 3]
    assert racks.find_cross_rack(np.array([1, 1, UNASSIGNED], dtype=np.int32)).tolist() == [
        False,
        True,
        False,
    ]


def test_steady_weighs_racks_only_with_rack_cost() -> None:
    """Without rack_cost no racks are read and nothing changes; with it, cross-rack partitions move."""
    there = group(members("a", "b"), *[("b",), ("a",)] * 8, owners="01" * 8)
    load = create_load(*[10.0] * 16)
    still = place_partitions(there, load, PlacementPolicy("steady", 100.0))
    assert (len(still.moves), still.cross_rack_load) == (0, None)
    plan = place_partitions(there, load, PlacementPolicy("steady:rack_cost=2", 100.0))
    assert (len(plan.moves), plan.cross_rack_load) == (16, 0)
    half = place_partitions(there, load, PlacementPolicy("steady:rack_cost=0.1", 100.0))
    assert len(half.moves) == 0
    packed = place_partitions(there, load, PlacementPolicy("steady:rack_cost=2", 100.0, consolidate=True))
    assert packed.cross_rack_load == 0


def test_an_added_consumer_does_not_avoid_rack_costs() -> None:
    """Its rack is unknown: it costs the mean over the members' racks."""
    far = np.array([[True, False, False], [False, False, False]])
    problem = PackingProblem(
        weight=np.array([2.0, 3.0]),
        owner=np.array([0, 0], dtype=np.int32),
        topic=np.zeros(2, dtype=np.int32),
        lag=np.zeros(2),
        capacity=np.full(4, 10.0),
        subscribed=np.ones((1, 4), dtype=np.bool_),
        new_member_capacity=10.0,
        racks=RackTopology(np.array([0, 0, 1, 2], dtype=np.int32), far),
    )
    found = compute_cross_rack_costs(problem, 1.0)
    assert found is not None
    assert found.cross_rack_cost[0].tolist() == pytest.approx([2.0, 0.0, 0.0, 4 / 3])
    assert found.rack_of_bin.tolist() == [0, 0, 1, 2, 3, 3]
    assert compute_cross_rack_costs(problem, 0.0) is None


def test_rack_aware_sizes_a_group() -> None:
    """It only places, so the group gets load ÷ capacity consumers."""
    there = group(members("a", "b"), *[("a",)] * 6)
    assert size_group(there, create_load(*[50.0] * 6), AWARE).consumers == 3


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("sticky", HeuristicSpec("sticky")),
        ("steady:calm", HeuristicSpec("steady", "calm")),
        ("steady:0.7:rack_cost=2", HeuristicSpec("steady", "0.7", {"rack_cost": 2.0})),
        ("a:b=1:c=1e-3", HeuristicSpec("a", "", {"b": 1.0, "c": 0.001})),
    ],
)
def test_heuristic_names_are_parsed(name: str, parts: HeuristicSpec) -> None:
    """A preset or number comes first, settings follow."""
    assert parse_heuristic_spec(name) == parts


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rack-aware:min_trafic", "did you mean 'min_traffic'"),
        ("rack-aware:traffic_costs=1", "setting 'traffic_costs' of rack-aware .* 'traffic_cost'"),
        ("rack-aware:traffic_cost=-1", "from 0 on"),
        ("rack-aware:traffic_cost=nan", "from 0 on"),
        ("rack-aware:min_traffic:none", "'none' is not a setting"),
        ("steady:rack_cost=1:rack_cost=2", "twice"),
        ("sticky:rack_cost=1", "setting 'rack_cost' of sticky is not known; there is: none"),
    ],
)
def test_an_invalid_setting_is_named(name: str, message: str) -> None:
    """The error has the nearest name, or the form of a setting."""
    with pytest.raises(UnknownHeuristicError, match=message):
        get_heuristic(name)


def test_a_missing_solver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings are refused before anything connects, with the extra to install."""
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    with pytest.raises(BrokenHeuristicError, match=r"needs ortools.* pip install 'trimtab\[racks\]'"):
        parse_own_policy("rack-aware:balance_subtopology", None)
    assert parse_own_policy("rack-aware:none", None)
    assert get_heuristic("rack-aware").dependency == HeuristicDependency("ortools", "racks")


def test_a_plan_that_needs_the_missing_solver_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader without OR-tools names the extra to install."""
    monkeypatch.setitem(sys.modules, "trimtab.assignor.heuristics.rack_aware.min_cost_flow", None)
    with pytest.raises(BrokenHeuristicError, match="needs ortools"):
        place_partitions(group(members("a"), ("a",)), Load(), AWARE)


def test_variants_weigh_racks_by_their_settings() -> None:
    """Presets and settings make variants that do or do not weigh racks."""
    weighs: Mapping[str, bool] = {
        "rack-aware": True,
        "rack-aware:none": False,
        "steady": False,
        "steady:calm": False,
        "steady:calm:rack_cost=1": True,
        "steady:calm:rack_cost=0": False,
    }
    assert {name: get_heuristic(name).weighs_racks for name in weighs} == weighs
    assert all(get_heuristic(name).name == name for name in weighs)
