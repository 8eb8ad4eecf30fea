"""Runs the programs of `benchmarks/`."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]


def print_benchmark(module: str, *arguments: object) -> str:
    """Run `benchmarks.<module>`; return what it printed."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *map(str, arguments)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_benchmark(module: str, *arguments: object) -> Any:
    """Run `benchmarks.<module>`; return the figures of its RESULT line."""
    return json.loads(print_benchmark(module, *arguments).splitlines()[-1].removeprefix("RESULT "))
