"""Scaling rules, case by case as the HorizontalPodAutoscaler applies them."""

import pytest

from trimtab.sidecar.model.hpa_behavior import (
    ScaleEvent,
    ScalingPolicy,
    ScalingRules,
    SelectPolicy,
    calculate_scale_down_limit,
    calculate_scale_up_limit,
)

NOW = 10_000.0
PODS, PERCENT = ScalingPolicy(4, 60), ScalingPolicy(100, 60, is_percent=True)


@pytest.mark.parametrize(
    ("rules", "count", "out", "back"),
    [
        (ScalingRules((ScalingPolicy(4),)), 1, 5, 0),
        (ScalingRules((PODS, PERCENT)), 1, 5, 0),
        (ScalingRules((PODS, PERCENT)), 10, 20, 0),
        (ScalingRules((PODS, PERCENT), SelectPolicy.MIN), 10, 14, 6),
        (ScalingRules((ScalingPolicy(10, 60, is_percent=True),)), 80, 88, 72),
        (ScalingRules((ScalingPolicy(10, 60, is_percent=True),)), 72, 80, 64),
        (ScalingRules((ScalingPolicy(10, 60, is_percent=True),)), 100, 110, 90),
        (ScalingRules((ScalingPolicy(10, 60, is_percent=True),)), 3, 4, 2),
        (ScalingRules((PODS,), SelectPolicy.DISABLED), 7, 7, 7),
        (ScalingRules(select_policy=SelectPolicy.DISABLED), 7, 7, 7),
    ],
)
def test_policies_and_their_selection(rules: ScalingRules, count: int, out: int, back: int) -> None:
    """Max allows the most change, min the least, disabled none; percentages round up."""
    assert (
        calculate_scale_up_limit(rules, count, (), NOW),
        calculate_scale_down_limit(rules, count, (), NOW),
    ) == (out, back)


def test_a_period_counts_from_the_replicas_at_its_start() -> None:
    """Replicas added in the period use up the policy until the period is over."""
    added = (ScaleEvent(NOW - 59, 3),)
    assert calculate_scale_up_limit(ScalingRules((PODS,)), 8, added, NOW) == 9
    assert calculate_scale_up_limit(ScalingRules((PERCENT,)), 8, added, NOW) == 10
    assert calculate_scale_up_limit(ScalingRules((PODS,)), 8, (ScaleEvent(NOW - 60, 3),), NOW) == 12


def test_changes_of_both_directions_count() -> None:
    """Replicas removed in the period may be added again on top of the policy."""
    both = (ScaleEvent(NOW - 50, 2), ScaleEvent(NOW - 40, -5))
    assert calculate_scale_up_limit(ScalingRules((PODS,)), 7, both, NOW) == 14
    assert calculate_scale_down_limit(ScalingRules((PODS,)), 7, both, NOW) == 6


def test_a_limit_reverts_no_change() -> None:
    """If a person added more than a policy allows, the count stays."""
    assert calculate_scale_up_limit(ScalingRules((PODS,)), 20, (ScaleEvent(NOW - 5, 15),), NOW) == 20
    assert calculate_scale_down_limit(ScalingRules((PODS,)), 2, (ScaleEvent(NOW - 5, -9),), NOW) == 2


def test_changes_from_the_future_do_not_count() -> None:
    """A clock that was set back does not stop scaling."""
    assert calculate_scale_up_limit(ScalingRules((PODS,)), 8, (ScaleEvent(NOW + 9e6, 4),), NOW) == 12


def test_without_a_period_each_iteration_counts_alone() -> None:
    """`scale-up-policies: 4` bounds one iteration, whatever came before."""
    assert (
        calculate_scale_up_limit(ScalingRules((ScalingPolicy(4),)), 8, (ScaleEvent(NOW - 1, 4),), NOW) == 12
    )
