"""A sidecar that forecasts the load of a season, on a real broker."""

import math
import re
import subprocess
import sys
from collections.abc import Callable
from time import monotonic
from typing import Protocol

import pytest
import yaml

from support.sidecar_bench import CAPACITY, SidecarBench

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SEASON = 24.0


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def explain(bench: SidecarBench) -> str:
    command = [sys.executable, "-m", "trimtab.cli", "explain", "-c", str(bench.config)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def read_forecast_used(bench: SidecarBench) -> float | None:
    """Return the metric that tells whether decisions follow the forecast."""
    match = re.search(r"^trimtab_forecast_used{[^}]*} (\S+)", bench.page("/metrics"), re.MULTILINE)
    return float(match[1]) if match else None


def test_decisions_follow_a_season_until_it_ends(bench: SidecarBench, eventually: Eventually) -> None:
    """Once two seasons have passed the forecast is used, as `explain` tells; a load without one ends that."""
    bench.config.write_text(yaml.safe_dump({**bench.settings, "season": f"{SEASON:g} s"}))
    bench.flow.rate = CAPACITY
    bench.start()
    eventually((bench.state / "web").exists)

    def write_wave() -> None:
        bench.flow.rate = CAPACITY * (1.3 + math.sin(2 * math.pi * monotonic() / SEASON))

    eventually(lambda: write_wave() or read_forecast_used(bench) == 1, 8 * SEASON)
    told = explain(bench)
    assert re.search(r"Forecast: [+-].* in \d+ s(, at most \d+% more .*)?; over the last season", told)
    bench.flow.rate = CAPACITY
    eventually(lambda: read_forecast_used(bench) == 0, 4 * SEASON)
    assert re.search(r"Forecast: (not used|none until)", explain(bench))  # none: with another horizon
