"""Which plan a group follows, and when a newer one needs a rebalance."""

from dataclasses import replace

import pytest

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.consumer_sdk.membership.plan_follower import MEMBER_WAIT_TIMEOUT_S, PlanFollower

PLAN = GroupPlan("g", 1, 0.0, 2, "mbf", 1000.0)


@pytest.mark.parametrize("size", [0, 2, 3])
def test_a_new_epoch_is_due_once(size: int) -> None:
    """Where as many members are there as it wants, or where nobody knows how many are."""
    follows = PlanFollower(group_size=size)
    assert follows.follow_if_due(PLAN, 0.0)
    assert not follows.follow_if_due(PLAN, 1.0)
    assert follows.follow_if_due(replace(PLAN, epoch=2), 1.0)


def test_a_rebalance_that_was_decided_on_it_follows_a_plan() -> None:
    """Whoever joined started it: nothing is left to do, until there is a newer epoch."""
    follows = PlanFollower()
    follows.record_rebalance(PLAN, 2)
    assert not follows.follow_if_due(PLAN, 0.0)
    follows.record_rebalance(None, 2)
    assert follows.follow_if_due(PLAN, 0.0)


def test_a_plan_in_force_before_we_came_is_no_news() -> None:
    """Its next epoch is."""
    follows = PlanFollower()
    follows.adopt_existing_plan(PLAN)
    assert not follows.follow_if_due(PLAN, 0.0)
    assert follows.follow_if_due(replace(PLAN, epoch=2), 0.0)


def test_those_on_their_way_are_awaited_but_not_for_ever() -> None:
    """The wait is counted from the first look at that epoch."""
    follows = PlanFollower(group_size=1)
    assert not follows.follow_if_due(PLAN, 100.0)
    assert not follows.follow_if_due(PLAN, 100.0 + MEMBER_WAIT_TIMEOUT_S - 0.1)
    assert follows.follow_if_due(PLAN, 100.0 + MEMBER_WAIT_TIMEOUT_S)
    assert not follows.follow_if_due(PLAN, 100.0 + MEMBER_WAIT_TIMEOUT_S)
    assert not follows.follow_if_due(replace(PLAN, epoch=2), 100.0 + MEMBER_WAIT_TIMEOUT_S)


def test_a_plan_that_wants_fewer_ends_the_wait_with_the_same_epoch() -> None:
    """The sidecar takes a count over as it finds it, without a new epoch."""
    follows = PlanFollower(group_size=1)
    assert not follows.follow_if_due(PLAN, 0.0)
    assert follows.follow_if_due(replace(PLAN, replicas=1), 0.1)


def test_those_who_came_without_the_plan_are_counted() -> None:
    """A rebalance that knew of no plan changes the size, not what is followed."""
    follows = PlanFollower(group_size=1)
    assert not follows.follow_if_due(PLAN, 0.0)
    follows.record_rebalance(None, 2)
    assert follows.follow_if_due(PLAN, 0.1)
