"""The doctor's checks for the page."""

import pytest

from trimtab.common.clock import SystemClock
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.web.doctor_runs import DoctorRuns

UNREACHABLE = {"bootstrap": "127.0.0.1:1", "timeout": "1 s", "group": "lake", "capacity": 100.0}


@pytest.mark.parametrize("topic", ["trimtab.shards", None])
def test_shards_are_checked_where_sidecars_divide_the_groups(topic: str | None) -> None:
    """A sidecar of many groups checks its shard topic, too; one of a single group has none."""
    runs = DoctorRuns(load_settings(None, UNREACHABLE), SystemClock(), topic)
    runs.ask()
    runs.wait(60)
    checks = {one["check"]: one["level"] for one in runs.ask()["findings"]}
    assert checks.get("shard topic trimtab.shards") == (None if topic is None else "failed")
    assert len(checks) > (topic is not None)
