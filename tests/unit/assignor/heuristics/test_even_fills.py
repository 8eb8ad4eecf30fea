"""`steady:spread_budget`: a decision that moves partitions anyway evens the fills, for a stated cost."""

from trimtab.assignor.model import ConsumerGroup, Load, Member, PlacementPlan, PlacementPolicy, TopicPartition
from trimtab.assignor.modes.decisions import place_partitions, size_group

P = tuple(TopicPartition("t", n) for n in range(56))
OWNERS = {p: "abc"[n % 3] for n, p in enumerate(P)}
GROUP = ConsumerGroup(tuple(Member(id=n, topics=frozenset({"t"}), instance=n) for n in "abc"), P, OWNERS)


def policy(heuristic: str) -> PlacementPolicy:
    return PlacementPolicy(heuristic, 100.0, 0.9, consolidate=True)


def fills(plan: PlacementPlan, load: Load) -> list[float]:
    return sorted(sum(load.write_rates[p] or 0.0 for p in owned) / 100 for owned in plan.assignment.values())


def test_a_further_consumer_takes_more_than_what_does_not_fit() -> None:
    """Of four consumers the fourth got 10 %, and a rise by 16 % was above a capacity; now it fits."""
    load = Load(dict.fromkeys(P, 5.0))
    plain, even = (size_group(GROUP, load, policy(f"steady{name}")) for name in ("", ":spread_budget=0.3"))
    assert plain.consumers == even.consumers == 4
    assert (fills(plain, load)[0], plain.fill * 1.16 > 1) == (0.1, True)
    assert (fills(even, load)[0], even.fill * 1.16 < 1) == (0.35, True)
    assert plain.r_score < even.r_score <= plain.r_score + 0.3


def test_nothing_moves_for_evenness_alone() -> None:
    """A placement that needs no move stays, however uneven; so does one without a budget."""
    uneven = {p: "abc"[0 if n < 8 else 1 if n < 16 else 2] for n, p in enumerate(P[:18])}
    group = ConsumerGroup(GROUP.members, P[:18], uneven)
    load = Load(dict.fromkeys(P[:18], 10.0))
    assert place_partitions(group, load, policy("steady:spread_budget=0.3")).moves == ()
