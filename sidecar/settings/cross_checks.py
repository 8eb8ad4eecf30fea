"""What queues, steps, dead bands and a schedule cannot be, each said with all that is involved.

Each function yields whether something cannot be, and what to say about it.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.sidecar.decision.hpa_behavior import MAX_POLICY_PERIOD_S, SelectPolicy
from trimtab.sidecar.decision.schedule import explain_invalid_cron
from trimtab.sidecar.measurement.queue_backlog import QueueKind
from trimtab.sidecar.settings.fields import (
    ScalingRulesSetting,
    SchedulePeriodSetting,
    ToleranceSetting,
)

CheckResults: TypeAlias = Iterable[tuple[bool, str]]


def check_scaling_rules(name: str, rules: ScalingRulesSetting) -> CheckResults:
    """Policies of one direction."""
    direction = name.replace("step-", "scale ")
    for policy in rules.policies:
        yield policy.value < 1, f"{name}={policy.value} would never {direction}; at least 1"
        longest = f"{name}: a period of {policy.period:g} s is above {MAX_POLICY_PERIOD_S:g} s"
        yield policy.period > MAX_POLICY_PERIOD_S, longest
    allowed = bool(rules.policies) or rules.select is SelectPolicy.DISABLED
    yield not allowed, f"{name} has no policies; give one, or select: disabled"


def check_tolerances(tolerances: ToleranceSetting) -> CheckResults:
    """Dead bands."""
    for name, band in (("", tolerances.out), (" (in)", tolerances.in_)):
        if not name or tolerances.in_ != tolerances.out:
            yield not 0 <= band < 1, f"tolerance{name}={band:g} must be at least 0 and below 1"


def check_schedule(
    schedule: Sequence[SchedulePeriodSetting], min_replicas: int, max_replicas: int
) -> CheckResults:
    """Periods, where these limits hold outside of them."""
    for number, period in enumerate(schedule, 1):
        name = f"schedule entry {number}"
        yield from _check_cron_lines(name, period)
        yield from _check_period_limits(name, period, min_replicas, max_replicas)


def check_queue(kind: QueueKind | None, topics: Sequence[str], markers: str | None) -> CheckResults:
    """Queue, topics and markers together."""
    one = len(topics) == 1 and not topics[0].startswith("^")
    unnamed = f"queue={kind} needs the name of its one topic (topics)"
    yield kind is not None and not one, unnamed
    unread = f"queue-markers is given, but queue={kind or 'none'}: only kmq has markers"
    yield markers is not None and kind is not QueueKind.KMQ, unread


def _check_cron_lines(name: str, period: SchedulePeriodSetting) -> CheckResults:
    for field, line in (("start", period.start), ("end", period.end)):
        why = explain_invalid_cron(line)
        yield why is not None, f"{name}: {field}={line!r} is no cron line ({why})"
    yield period.start == period.end, f"{name}: start and end are both {period.start!r}"
    yield (
        not _is_timezone(period.timezone),
        f"{name}: timezone={period.timezone!r} is not known here",
    )


def _check_period_limits(
    name: str, period: SchedulePeriodSetting, min_replicas: int, max_replicas: int
) -> CheckResults:
    limits = period.min is not None or period.max is not None
    nothing = not limits and period.pause == "none"
    yield nothing, f"{name} says neither min nor max nor pause; it would change nothing"
    low, low_of = (min_replicas, "min") if period.min is None else (period.min, f"{name}: min")
    high, high_of = (max_replicas, "max") if period.max is None else (period.max, f"{name}: max")
    above = f"{low_of}={low} is above {high_of}={high}; lower one or raise the other"
    yield limits and low > high, above
    yield low < 0, f"{low_of}={low} must be at least 0"
    yield high < 1, f"{high_of}={high} must be at least 1"


def _is_timezone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return False
    return True
