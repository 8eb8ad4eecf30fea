"""Scaling policies of one direction, as `behavior` of the HorizontalPodAutoscaler (autoscaling/v2).

1. A policy allows a change by a number of replicas, or percent of them, within its period. The base
   is the count at the start of the period: the current count without the changes recorded in it,
   in both directions.
2. `select_policy` selects the policy that allows the most change (max) or the least (min);
   `disabled` forbids the direction.
3. Percentages round up, for additions and removals.
4. A limit never reverts a change that went too far.
5. A period of 0 is an extension: the base is the current count in each iteration
   (`scale-up-policies: 4`), and the cooldown spaces the changes.

Source of rules 1 to 4: `calculateScaleUpLimitWithScalingRules` and
`calculateScaleDownLimitWithBehaviors` in pkg/controller/podautoscaler/horizontal.go of Kubernetes,
where percentages are floats and 10 % more than 100 are 111; here they are exact.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

MAX_POLICY_PERIOD_S: Final = 1800.0  # the limit of the HPA
DEFAULT_TOLERANCE: Final = 0.1


# here, not beside its policy: `--help` names the choices, and must not load numpy
class FallbackBehavior(StrEnum):
    """Replica count to recommend when measuring fails, as KEDA's `fallback`."""

    CURRENT = "current"
    STATIC = "static"
    CURRENT_IF_HIGHER = "current-if-higher"


class Direction(StrEnum):
    """Direction of scaling; the value names it in settings and reasons."""

    UP = "scale-up"
    DOWN = "scale-down"


class SelectPolicy(StrEnum):
    """Selects among the policies of a direction."""

    MAX = "max"
    MIN = "min"
    DISABLED = "disabled"


@dataclass(frozen=True, slots=True)
class ScalingPolicy:
    """Allows a change by `value` replicas, or percent, within `period` seconds."""

    value: int
    period: float = 0.0  # 0: each iteration (rule 5)
    is_percent: bool = False


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """Rules of one direction."""

    policies: tuple[ScalingPolicy, ...] = ()
    select_policy: SelectPolicy = SelectPolicy.MAX
    stabilization_window: float = 0.0  # seconds
    # share by which the load must differ from what the current count handles
    tolerance: float = DEFAULT_TOLERANCE


@dataclass(frozen=True, slots=True)
class ScaleEvent:
    """Replicas added, or removed if negative, at a time."""

    time: float
    replica_change: int


def limit_scale_up(
    rules: ScalingRules, count: int, desired: int, changes: Iterable[ScaleEvent], now: float
) -> int:
    """Return the count after scaling up from `count` toward `desired`, as far as the policies allow."""
    limit = calculate_scale_up_limit(rules, count, changes, now)
    if count == 0 and rules.select_policy is not SelectPolicy.DISABLED:
        limit = max(1, limit)  # a percentage of 0 replicas is 0
    return min(desired, limit)


def limit_scale_down(
    rules: ScalingRules, count: int, desired: int, changes: Iterable[ScaleEvent], now: float
) -> int:
    """Return the count after scaling down from `count` toward `desired`, as far as the policies allow."""
    return max(desired, calculate_scale_down_limit(rules, count, changes, now))


def calculate_scale_up_limit(
    rules: ScalingRules, count: int, changes: Iterable[ScaleEvent], now: float
) -> int:
    """Return the maximum count after scaling up from `count`."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return count
    allowed = [start + change for start, change in _resolve_policies(rules, count, changes, now)]
    limit = min(allowed) if rules.select_policy is SelectPolicy.MIN else max(allowed)
    return max(count, limit)  # rule 4


def calculate_scale_down_limit(
    rules: ScalingRules, count: int, changes: Iterable[ScaleEvent], now: float
) -> int:
    """Return the minimum count after scaling down from `count`."""
    if rules.select_policy is SelectPolicy.DISABLED:
        return count
    allowed = [start - change for start, change in _resolve_policies(rules, count, changes, now)]
    limit = max(allowed) if rules.select_policy is SelectPolicy.MIN else min(allowed)
    return max(0, min(count, limit))


def _resolve_policies(
    rules: ScalingRules, count: int, changes: Iterable[ScaleEvent], now: float
) -> Iterator[tuple[int, int]]:
    """Yield the replicas at the start of each policy's period, and the change it allows."""
    changes = tuple(changes)
    for p in rules.policies:
        start = count - sum(c.replica_change for c in changes if now - p.period < c.time <= now)
        yield start, -(-start * p.value // 100) if p.is_percent else p.value  # -(-a // b) rounds up
