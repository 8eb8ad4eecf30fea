"""Scaling rules of one direction, as the HorizontalPodAutoscaler (autoscaling/v2) has them.

1. A policy allows a change of so many replicas, or of so many percent of them, within its period.
   It counts from the replicas at the beginning of the period: the present ones without what the
   recorded changes of the period, in both directions, have made of them.
2. `select_policy` takes the policy that allows the most change (max) or the least (min); `disabled`
   forbids the direction.
3. Percentages round up: what is added, and what is taken away.
4. What was changed too far is not taken back by a limit.
5. A period of 0 is ours: it counts from the present replicas in each turn (`scale-up-policies: 4`), and the
   cooldown is what keeps turns apart.

The source of rules 1 to 4 are `calculateScaleUpLimitWithScalingRules` and
`calculateScaleDownLimitWithBehaviors` in pkg/controller/podautoscaler/horizontal.go of Kubernetes.
There percentages are floats, and 10 % more than 100 are 111; here they are exact.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_POLICY_PERIOD_S: Final = 1800.0
"""Seconds; what the HPA allows."""


class Direction(StrEnum):
    """A direction of scaling."""

    UP = "out"
    DOWN = "in"


class SelectPolicy(StrEnum):
    """Which of several policies holds."""

    MAX = "max"
    MIN = "min"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """At most `value` replicas, or percent of them, within `period` seconds."""

    value: int
    period: float = 0.0
    is_percent: bool = False


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """What holds for one direction; `stabilization_window` is its stabilisation window in seconds.

    `tolerance` is what the HPA calls tolerance: the share by which the load must leave what the
    present count is good for.
    """

    policies: tuple[ScalingPolicy, ...] = ()
    select_policy: SelectPolicy = SelectPolicy.MAX
    stabilization_window: float = 0.0
    tolerance: float = 0.1


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """Replicas that were added, or taken away (below 0), at a time."""

    time: float
    replica_change: int


def calculate_scale_up_limit(
    rules: ScalingRules, count: int, changes: Iterable[ScaleEvent], now: float
) -> int:
    """Return how many replicas there may be after scaling out from `count`."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return count
    starts = _period_start_replicas(rules, count, tuple(changes), now)
    allowed = [s + (-(-s * p.value // 100) if p.is_percent else p.value) for p, s in starts]
    return max(count, min(allowed) if rules.select_policy is SelectPolicy.MIN else max(allowed))


def calculate_scale_down_limit(
    rules: ScalingRules, count: int, changes: Iterable[ScaleEvent], now: float
) -> int:
    """Return how few replicas there may be after scaling in from `count`."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return count
    starts = _period_start_replicas(rules, count, tuple(changes), now)
    allowed = [s - (-(-s * p.value // 100) if p.is_percent else p.value) for p, s in starts]
    chosen = max(allowed) if rules.select_policy is SelectPolicy.MIN else min(allowed)
    return max(0, min(count, chosen))


def _period_start_replicas(
    rules: ScalingRules, count: int, changes: tuple[ScaleEvent, ...], now: float
) -> list[tuple[ScalingPolicy, int]]:
    """Return each policy with the replicas there were at the beginning of its period."""
    return [
        (pace, count - sum(c.replica_change for c in changes if now - pace.period < c.time <= now))
        for pace in rules.policies
    ]
