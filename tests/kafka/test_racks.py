"""Three brokers in three racks, for real: what crosses racks falls to the least there can be."""

import json
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "benchmarks" / "bench_fetch_racks.py"
PROTOCOL = 0.05
"""What answers without records may add to the share of the bytes that crosses racks."""


def test_bytes_across_racks_fall_to_the_optimum() -> None:
    """Without racks over a tenth crosses; with rack-aware only what is no record."""
    ways = ("--ways", "before", "rack_aware", "--mb", "3")
    done = subprocess.run(
        [sys.executable, BENCH, *ways], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
    assert found["optimum"] == 0
    assert found["rack_aware"]["share"] < found["optimum"] + PROTOCOL
    assert found["rack_aware"]["fetched_mb"] > 3
    assert found["before"]["share"] > 2 * PROTOCOL
