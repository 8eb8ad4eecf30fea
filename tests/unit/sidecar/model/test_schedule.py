"""Scheduled periods: when they are active, and how several combine."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from support.policies import build_policy
from trimtab.sidecar.model.hpa_behavior import Direction
from trimtab.sidecar.model.schedule import CronPeriod, explain_invalid_cron, resolve_scheduled_limits

ROME = "Europe/Rome"
OFFICE = CronPeriod("0 8 * * 1-5", "0 18 * * 1-5", ROME, min_replicas=4)


def at(text: str, zone: str = ROME) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("time", "active"),
    [
        ("2026-11-20 07:59:59", False),
        ("2026-11-20 08:00:00", True),
        ("2026-11-20 08:00:30", True),
        ("2026-11-20 17:59:59", True),
        ("2026-11-20 18:00:00", False),
        ("2026-11-21 12:00:00", False),  # a Saturday
        ("2026-07-20 08:00:00", True),  # summer time
    ],
)
def test_a_period_lasts_from_start_to_end(time: str, active: bool) -> None:  # noqa: FBT001
    """A period is active from the minute of its start to the minute of its end, in its time zone."""
    assert OFFICE.is_active(at(time)) is active


def test_a_period_uses_its_time_zone() -> None:
    """Eight o'clock in Rome is seven in UTC, in winter."""
    assert OFFICE.is_active(at("2026-11-20 07:30:00", "UTC"))
    assert not CronPeriod("0 8 * * 1-5", "0 18 * * 1-5", min_replicas=4).is_active(
        at("2026-11-20 07:30:00", "UTC")
    )


def test_a_period_can_span_midnight() -> None:
    """An end earlier in the day than the start is on the next day."""
    night = CronPeriod("0 22 * * *", "0 6 * * *", ROME, paused_directions=frozenset({Direction.DOWN}))
    assert night.is_active(at("2026-11-20 23:00:00"))
    assert night.is_active(at("2026-11-21 05:59:00"))
    assert not night.is_active(at("2026-11-21 06:00:00"))


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_clock_change_keeps_the_period(day: str) -> None:
    """A start in a skipped or repeated hour occurs once."""
    early = CronPeriod("30 2 * * *", "0 4 * * *", ROME, min_replicas=2)
    assert not early.is_active(at(f"{day} 01:59:00"))
    assert early.is_active(at(f"{day} 03:30:00"))
    assert not early.is_active(at(f"{day} 04:00:00"))


def test_overlapping_periods_combine_to_the_tightest_limits() -> None:
    """The highest minimum and the lowest maximum apply; if they contradict, the maximum wins."""
    time = at("2026-11-20 12:00:00")
    noon = CronPeriod("0 11 * * *", "0 14 * * *", ROME, min_replicas=6, max_replicas=8)
    close = CronPeriod(
        "0 12 * * *", "0 13 * * *", ROME, max_replicas=3, paused_directions=frozenset({Direction.UP})
    )
    found = resolve_scheduled_limits((OFFICE, noon, close), time)
    assert (found.min_replicas, found.max_replicas, found.paused_directions) == (6, 3, {Direction.UP})
    policy = build_policy(min_replicas=1, max_replicas=10, schedule=(OFFICE, noon, close)).apply_schedule(
        time
    )
    assert (policy.min_replicas, policy.max_replicas, policy.paused_directions) == (3, 3, {Direction.UP})


def test_the_settings_apply_outside_all_periods() -> None:
    """A scheduled maximum may exceed the one of the settings while it is active."""
    sale = CronPeriod("0 0 27 11 *", "0 0 28 11 *", ROME, max_replicas=40)
    policy = build_policy(min_replicas=1, max_replicas=10, schedule=(sale,))
    assert policy.apply_schedule(at("2026-11-27 10:00:00")).max_replicas == 40
    assert policy.apply_schedule(at("2026-11-28 10:00:00")).max_replicas == 10


@pytest.mark.parametrize(
    ("line", "problem"), [("0 25 * * *", "bad hour"), ("0 0 30 2 *", "bad"), ("soon", "wrong number")]
)
def test_an_invalid_cron_line_is_explained(line: str, problem: str) -> None:
    """A line that cannot be parsed, or never occurs, is distinguished from a valid one."""
    assert problem in (explain_invalid_cron(line) or "")
    assert explain_invalid_cron("*/15 8-18 * * mon-fri") is None
