"""The benchmarks of the live path still run, in their shortest versions."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.broker

FOLDER = Path(__file__).parents[2] / "benchmarks"


def result(program: str, *arguments: str) -> Any:
    """Run a benchmark; return the figures of its last line."""
    command = [sys.executable, str(FOLDER / program), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))


def test_the_rolling_bounce_loses_nothing(bootstrap: str, tmp_path: Path) -> None:
    """Three instances of ours and of Java's come and go; nobody loses a record, we double none."""
    plot = tmp_path / "plot.png"
    sides = ("--sides", "trimtab", "java_cooperative")
    found = result("bench_bounce.py", "--bootstrap", bootstrap, "--quick", *sides, "--plot", str(plot))
    assert set(found["pause_ms"]) == {"trimtab", "java_cooperative"}
    assert found["lost"] == {"trimtab": 0, "java_cooperative": 0}
    assert found["doubled"]["trimtab"] == 0
    assert found["handover_p99_s"]["trimtab"] > 0
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_latency_is_measured_by_heuristic(bootstrap: str, tmp_path: Path) -> None:
    """Two throttled consumers, ours led by the sidecar, and Kafka's range."""
    plot = tmp_path / "plot.png"
    small = ("--consumers", "2", "--partitions", "6", "--seconds", "6", "--settle", "4")
    of = ("--heuristics", "steady", "range")
    found = result("bench_latency.py", "--bootstrap", bootstrap, *small, *of, "--plot", str(plot))
    assert set(found["p99_s"]) == {"steady", "range"}
    assert all(0 < found["p50_s"][h] <= found["p99_s"][h] for h in ("steady", "range"))
    assert plot.read_bytes().startswith(b"\x89PNG")


@pytest.mark.timeout(900)
def test_ingest_is_measured_beside_its_peers(bootstrap: str, tmp_path: Path) -> None:
    """Each case brings every record in once, and says what it took."""
    plot = tmp_path / "plot.png"
    cases = ("trimtab_iceberg", "trimtab_arrow", "plain_loop", "structured_streaming", "delta_rs")
    small = ("--quick", "--cases", *cases, "--plot", str(plot))
    found = result("bench_ingest.py", "--bootstrap", bootstrap, *small)
    assert set(found["mb_per_s"]) == set(cases)
    for figures in found["by_size"]["1000_byte_records"].values():
        assert all(figures[name] > 0 for name in ("mb_per_s", "records_per_s", "peak_mb"))
    assert plot.read_bytes().startswith(b"\x89PNG")
