"""What queues, steps, dead bands and a schedule cannot be, each said with all that is involved.

Each function yields whether something cannot be, and what to say about it.
"""

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from trimtab.sidecar.decision.hpa_behavior import LONGEST_PERIOD, Select
from trimtab.sidecar.decision.schedule import wrong
from trimtab.sidecar.measurement.queue_backlog import Kind
from trimtab.sidecar.settings.fields import DeadBands, SchedulePeriod, StepPolicies

Told: TypeAlias = Iterable[tuple[bool, str]]


def of_steps(name: str, steps: StepPolicies) -> Told:
    """Policies of one direction."""
    direction = name.replace("step-", "scale ")
    for policy in steps.policies:
        yield policy.value < 1, f"{name}={policy.value} would never {direction}; at least 1"
        longest = f"{name}: a period of {policy.period:g} s is above {LONGEST_PERIOD:g} s"
        yield policy.period > LONGEST_PERIOD, longest
    allowed = bool(steps.policies) or steps.select is Select.DISABLED
    yield not allowed, f"{name} has no policies; give one, or select: disabled"


def of_bands(bands: DeadBands) -> Told:
    """Dead bands."""
    for name, band in (("", bands.out), (" (in)", bands.in_)):
        if not name or bands.in_ != bands.out:
            yield not 0 <= band < 1, f"dead-band{name}={band:g} must be at least 0 and below 1"


def of_schedule(schedule: Sequence[SchedulePeriod], least: int, most: int) -> Told:
    """Periods, where these limits hold outside of them."""
    for number, period in enumerate(schedule, 1):
        name = f"schedule entry {number}"
        yield from _of_lines(name, period)
        yield from _of_limits(name, period, least, most)


def of_queue(kind: Kind | None, topics: Sequence[str], markers: str | None) -> Told:
    """Queue, topics and markers together."""
    one = len(topics) == 1 and not topics[0].startswith("^")
    unnamed = f"queue={kind} needs the name of its one topic (topics)"
    yield kind is not None and not one, unnamed
    unread = f"queue-markers is given, but queue={kind or 'none'}: only kmq has markers"
    yield markers is not None and kind is not Kind.KMQ, unread


def _of_lines(name: str, period: SchedulePeriod) -> Told:
    for field, line in (("start", period.start), ("end", period.end)):
        why = wrong(line)
        yield why is not None, f"{name}: {field}={line!r} is no cron line ({why})"
    yield period.start == period.end, f"{name}: start and end are both {period.start!r}"
    yield not _is_zone(period.timezone), f"{name}: timezone={period.timezone!r} is not known here"


def _of_limits(name: str, period: SchedulePeriod, least: int, most: int) -> Told:
    limits = period.min is not None or period.max is not None
    nothing = not limits and period.pause == "none"
    yield nothing, f"{name} says neither min nor max nor pause; it would change nothing"
    low, low_of = (least, "min") if period.min is None else (period.min, f"{name}: min")
    high, high_of = (most, "max") if period.max is None else (period.max, f"{name}: max")
    above = f"{low_of}={low} is above {high_of}={high}; lower one or raise the other"
    yield limits and low > high, above
    yield low < 0, f"{low_of}={low} must be at least 0"
    yield high < 1, f"{high_of}={high} must be at least 1"


def _is_zone(name: str) -> bool:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return False
    return True
