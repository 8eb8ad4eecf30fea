"""Periods by the calendar: when they are in force, and what several of them ask for."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from trimtab.sidecar.decision.hpa_behavior import Direction
from trimtab.sidecar.decision.scaling_policy import AutoscalingPolicy
from trimtab.sidecar.decision.schedule import CronPeriod, explain_invalid_cron, resolve_scheduled_limits

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
    """In force from the minute of its start to the minute of its end, by the clocks there."""
    assert OFFICE.is_active(at(time)) is active


def test_a_time_zone_is_not_another() -> None:
    """Eight o'clock in Rome is seven in UTC, in winter."""
    assert OFFICE.is_active(at("2026-11-20 07:30:00", "UTC"))
    assert not CronPeriod("0 8 * * 1-5", "0 18 * * 1-5", min_replicas=4).is_active(
        at("2026-11-20 07:30:00", "UTC")
    )


def test_a_night_spans_midnight() -> None:
    """An end that is earlier in the day than the start is the next day's."""
    night = CronPeriod("0 22 * * *", "0 6 * * *", ROME, paused_directions=frozenset({Direction.DOWN}))
    assert night.is_active(at("2026-11-20 23:00:00"))
    assert night.is_active(at("2026-11-21 05:59:00"))
    assert not night.is_active(at("2026-11-21 06:00:00"))


@pytest.mark.parametrize("day", ["2026-03-29", "2026-10-25"])
def test_a_day_on_which_clocks_change_has_its_period(day: str) -> None:
    """A start in the hour that is skipped, or there twice, still comes once."""
    early = CronPeriod("30 2 * * *", "0 4 * * *", ROME, min_replicas=2)
    assert not early.is_active(at(f"{day} 01:59:00"))
    assert early.is_active(at(f"{day} 03:30:00"))
    assert not early.is_active(at(f"{day} 04:00:00"))


def test_of_several_periods_the_highest_least_and_lowest_most_hold() -> None:
    """They are joined; where least and most contradict each other the most holds."""
    time = at("2026-11-20 12:00:00")
    noon = CronPeriod("0 11 * * *", "0 14 * * *", ROME, min_replicas=6, max_replicas=8)
    close = CronPeriod(
        "0 12 * * *", "0 13 * * *", ROME, max_replicas=3, paused_directions=frozenset({Direction.UP})
    )
    found = resolve_scheduled_limits((OFFICE, noon, close), time)
    assert (found.min_replicas, found.max_replicas, found.paused_directions) == (6, 3, {Direction.UP})
    policy = AutoscalingPolicy(
        min_replicas=1, max_replicas=10, schedule=(OFFICE, noon, close)
    ).apply_schedule(time)
    assert (policy.min_replicas, policy.max_replicas, policy.paused_directions) == (3, 3, {Direction.UP})


def test_outside_of_its_periods_the_settings_hold() -> None:
    """A scheduled maximum may be above the usual one, while it lasts."""
    sale = CronPeriod("0 0 27 11 *", "0 0 28 11 *", ROME, max_replicas=40)
    policy = AutoscalingPolicy(min_replicas=1, max_replicas=10, schedule=(sale,))
    assert policy.apply_schedule(at("2026-11-27 10:00:00")).max_replicas == 40
    assert policy.apply_schedule(at("2026-11-28 10:00:00")).max_replicas == 10


@pytest.mark.parametrize(
    ("line", "said"), [("0 25 * * *", "bad hour"), ("0 0 30 2 *", "bad"), ("soon", "wrong number")]
)
def test_a_line_that_is_no_cron_is_named(line: str, said: str) -> None:
    """A line that cannot be read, or never comes, is told apart from a good one."""
    assert said in (explain_invalid_cron(line) or "")
    assert explain_invalid_cron("*/15 8-18 * * mon-fri") is None
