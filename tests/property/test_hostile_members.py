"""A leader assigns every partition, whatever members send and whatever the plan says."""

from hypothesis import given
from hypothesis import strategies as st

from support.hostile import BLIND, LOAD, PLAN, RawGroup, encode_subscription, plans, subscriptions, user_data
from trimtab.assignor.heuristics.registry import list_heuristics
from trimtab.assignor.model import Load, PlacementPolicy
from trimtab.assignor.rebalance.leader import LeaderView

VIEWS = (BLIND, LeaderView(LOAD), LeaderView(LOAD, PLAN))

views = st.sampled_from(VIEWS)


@given(user_data, views)
def test_any_user_data(data: bytes | None, view: LeaderView) -> None:
    """One member's user data prevents no round."""
    group = RawGroup(encode_subscription(data))
    for _ in range(3):
        group.round(view)


@given(subscriptions(), views, st.sampled_from(list_heuristics()))
def test_any_subscription(sent: bytes, view: LeaderView, heuristic: str) -> None:
    """One member's subscription prevents no round: odd topics, claims, racks, a cut in its bytes."""
    group = RawGroup(sent)
    for _ in range(3):
        group.round(view, PlacementPolicy(heuristic))


@given(plans, user_data)
def test_any_plan(plan: object, data: bytes | None) -> None:
    """No plan prevents a round, not even one that its decoder should have refused."""
    group = RawGroup(encode_subscription(data))
    for _ in range(3):
        group.round(LeaderView(LOAD, plan))  # type: ignore[arg-type] # a plan of wrong types


@given(
    st.lists(st.floats(allow_nan=True) | st.none(), min_size=11, max_size=11),
    st.sampled_from(list_heuristics()),
)
def test_any_load(rates: list[float | None], heuristic: str) -> None:
    """No measurement prevents a round."""
    load = Load(dict(zip(LOAD.write_rates, rates, strict=True)))
    group = RawGroup(encode_subscription(None))
    for view in (LeaderView(load), LeaderView(load, PLAN)):
        group.round(view, PlacementPolicy(heuristic))
