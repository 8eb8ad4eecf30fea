"""Scaling rules, case by case as the HorizontalPodAutoscaler answers them."""

import pytest

from trimtab.sidecar.decision.hpa_behavior import Change, Pace, Rules, Select, highest, lowest

NOW = 10_000.0
PODS, PERCENT = Pace(4, 60), Pace(100, 60, percent=True)


@pytest.mark.parametrize(
    ("rules", "count", "out", "back"),
    [
        (Rules((Pace(4),)), 1, 5, 0),
        (Rules((PODS, PERCENT)), 1, 5, 0),
        (Rules((PODS, PERCENT)), 10, 20, 0),
        (Rules((PODS, PERCENT), Select.MIN), 10, 14, 6),
        (Rules((Pace(10, 60, percent=True),)), 80, 88, 72),
        (Rules((Pace(10, 60, percent=True),)), 72, 80, 64),
        (Rules((Pace(10, 60, percent=True),)), 100, 110, 90),
        (Rules((Pace(10, 60, percent=True),)), 3, 4, 2),
        (Rules((PODS,), Select.DISABLED), 7, 7, 7),
        (Rules(select=Select.DISABLED), 7, 7, 7),
    ],
)
def test_policies_and_their_selection(rules: Rules, count: int, out: int, back: int) -> None:
    """Max takes the most change, min the least, disabled none; percentages round up."""
    assert (highest(rules, count, (), NOW), lowest(rules, count, (), NOW)) == (out, back)


def test_a_period_counts_from_the_replicas_at_its_beginning() -> None:
    """What was added in the period is used up, and comes back when it is over."""
    added = (Change(NOW - 59, 3),)
    assert highest(Rules((PODS,)), 8, added, NOW) == 9
    assert highest(Rules((PERCENT,)), 8, added, NOW) == 10
    assert highest(Rules((PODS,)), 8, (Change(NOW - 60, 3),), NOW) == 12


def test_changes_of_both_directions_count() -> None:
    """What was taken away in the period may be added again on top of the policy."""
    both = (Change(NOW - 50, 2), Change(NOW - 40, -5))
    assert highest(Rules((PODS,)), 7, both, NOW) == 14
    assert lowest(Rules((PODS,)), 7, both, NOW) == 6


def test_a_limit_takes_nothing_back() -> None:
    """Where a person added more than a policy allows, the count stays."""
    assert highest(Rules((PODS,)), 20, (Change(NOW - 5, 15),), NOW) == 20
    assert lowest(Rules((PODS,)), 2, (Change(NOW - 5, -9),), NOW) == 2


def test_changes_from_the_future_do_not_count() -> None:
    """A clock that was set back does not stop scaling."""
    assert highest(Rules((PODS,)), 8, (Change(NOW + 9e6, 4),), NOW) == 12


def test_without_a_period_each_turn_counts_anew() -> None:
    """`step-out: 4` bounds a turn; what came before makes no difference."""
    assert highest(Rules((Pace(4),)), 8, (Change(NOW - 1, 4),), NOW) == 12
