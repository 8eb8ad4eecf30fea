"""The plan that a group follows, and when a newer plan needs a rebalance."""

from dataclasses import replace

import pytest

from trimtab.assignor.rebalance.plan_follower import MEMBER_WAIT_TIMEOUT_S, PlanFollower, PlanKey
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget

PLAN = GroupPlan("g", 1, 0.0, 2, "mbf", 1000.0)


@pytest.mark.parametrize("size", [0, 2, 3])
def test_a_new_epoch_is_due_once(size: int) -> None:
    """With as many members as it requires, or an unknown number."""
    follows = PlanFollower(group_size=size)
    assert follows.follow_if_due(PLAN, 0.0)
    assert not follows.follow_if_due(PLAN, 1.0)
    assert follows.follow_if_due(replace(PLAN, epoch=2), 1.0)


def with_revision(revision: int, epoch: int = 1) -> GroupPlan:
    return replace(PLAN, epoch=epoch, target=PlanTarget(revision, ("a", "b")))


def test_a_plan_is_known_by_epoch_and_revision() -> None:
    """No plan and a plan without a target have a key, too."""
    keys = [PlanKey.of_plan(plan) for plan in (None, PLAN, with_revision(3, epoch=2))]
    assert keys == [(0, 0), (1, 0), (2, 3)]
    assert PlanFollower().followed == (0, 0)


def test_another_target_of_the_same_epoch_is_due() -> None:
    """As a scale-up's, whose join was led before the leader had read it; a rebalance led on it follows it."""
    follows = PlanFollower()
    follows.record_rebalance(with_revision(1), 2)
    assert not follows.follow_if_due(with_revision(1), 0.0)
    assert follows.follow_if_due(with_revision(2), 0.0)
    assert not follows.follow_if_due(with_revision(2), 0.0)
    follows.record_rebalance(with_revision(3), 2)
    assert not follows.follow_if_due(with_revision(3), 0.0)


def test_another_plan_for_as_many_members_continues_the_wait() -> None:
    """A quota keeps one away; of the plans that come every 55 s, each after the wait is due at once."""
    follows = PlanFollower(group_size=1)
    due = [follows.follow_if_due(with_revision(n, epoch=n), n * 55.0) for n in range(1, 6)]
    assert due == [False, False, True, True, True]
    assert follows.is_overdue(with_revision(5, epoch=5))
    assert follows.follow_if_due(replace(PLAN, epoch=6), 6 * 55.0)


def test_a_plan_for_more_members_has_a_wait_of_its_own() -> None:
    """Members that nothing waited for before, also those that are missing again after all had come."""
    follows = PlanFollower(group_size=1)
    more = replace(with_revision(2), replicas=3)
    assert not follows.follow_if_due(with_revision(1), 0.0)
    assert not follows.follow_if_due(more, MEMBER_WAIT_TIMEOUT_S)
    assert follows.follow_if_due(more, 2 * MEMBER_WAIT_TIMEOUT_S)
    follows.record_rebalance(more, 3)
    assert not follows.follow_if_due(more, 3 * MEMBER_WAIT_TIMEOUT_S)
    follows.record_rebalance(more, 2)
    assert not follows.follow_if_due(replace(more, epoch=2), 4 * MEMBER_WAIT_TIMEOUT_S)
    assert follows.follow_if_due(replace(more, epoch=2), 5 * MEMBER_WAIT_TIMEOUT_S)


def test_members_that_stay_away_are_overdue_after_the_wait() -> None:
    """One of two joiners came, and led to a round on the target: there is one more without the other."""
    follows = PlanFollower()
    follows.record_rebalance(with_revision(1), 1)
    assert not follows.follow_if_due(with_revision(1), 0.0)
    assert not follows.is_overdue(with_revision(1))
    assert follows.follow_if_due(with_revision(1), MEMBER_WAIT_TIMEOUT_S)
    assert follows.is_overdue(with_revision(1))
    assert not follows.follow_if_due(with_revision(1), 2 * MEMBER_WAIT_TIMEOUT_S)
    assert not follows.is_overdue(with_revision(2))


def test_without_a_target_nobody_is_overdue() -> None:
    """The leader places everything on the members that are there, in the first round on the plan."""
    follows = PlanFollower()
    follows.record_rebalance(PLAN, 1)
    for now in (0.0, MEMBER_WAIT_TIMEOUT_S):
        assert not follows.follow_if_due(PLAN, now)


def test_a_rebalance_decided_on_a_plan_follows_it() -> None:
    """A join started it; nothing is due until a newer epoch."""
    follows = PlanFollower()
    follows.record_rebalance(PLAN, 2)
    assert not follows.follow_if_due(PLAN, 0.0)
    follows.record_rebalance(None, 2)
    assert follows.follow_if_due(PLAN, 0.0)


def test_a_plan_in_force_before_the_join_is_not_new() -> None:
    """Only its next epoch is due."""
    follows = PlanFollower()
    follows.adopt_existing_plan(PLAN)
    assert not follows.follow_if_due(PLAN, 0.0)
    assert follows.follow_if_due(replace(PLAN, epoch=2), 0.0)


def test_missing_members_are_awaited_for_a_limited_time() -> None:
    """The wait starts when their number is first seen."""
    follows = PlanFollower(group_size=1)
    assert not follows.follow_if_due(PLAN, 100.0)
    assert not follows.follow_if_due(PLAN, 100.0 + MEMBER_WAIT_TIMEOUT_S - 0.1)
    assert follows.follow_if_due(PLAN, 100.0 + MEMBER_WAIT_TIMEOUT_S)
    assert not follows.follow_if_due(PLAN, 100.0 + MEMBER_WAIT_TIMEOUT_S)
    assert follows.follow_if_due(replace(PLAN, epoch=2), 100.0 + MEMBER_WAIT_TIMEOUT_S)


def test_a_plan_for_fewer_members_ends_the_wait_with_the_same_epoch() -> None:
    """The sidecar adopts an external replica count without a new epoch."""
    follows = PlanFollower(group_size=1)
    assert not follows.follow_if_due(PLAN, 0.0)
    assert follows.follow_if_due(replace(PLAN, replicas=1), 0.1)


def test_members_of_a_round_without_the_plan_are_counted() -> None:
    """A round without a plan changes the group size, not the followed plan."""
    follows = PlanFollower(group_size=1)
    assert not follows.follow_if_due(PLAN, 0.0)
    follows.record_rebalance(None, 2)
    assert follows.follow_if_due(PLAN, 0.1)
