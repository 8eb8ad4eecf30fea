"""`make fuzz`: fuzz every target with N inputs in all, several processes side by side.

    python -m fuzz --inputs 1000000

Every target has the same share; what the slow ones do not reach in their seconds goes to the fastest.
The last line is RESULT {json}; the exit code is 1 if an unexpected error came out of a target. Inputs
that raised are in build/fuzz/failures; copied to tests/fuzz/corpus/FUNCTION they are seeds ever after.
"""

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from fuzz.target import load_all_targets
from fuzz.worker import import_atheris

CONSOLE: Final = Console(stderr=True)


@dataclass
class Tally:
    """Result of all targets so far."""

    failures_folder: Path
    inputs: int = 0
    cpu_seconds: float = 0.0
    failures: set[str] = field(default_factory=set)

    def count_in(self, name: str, result: dict[str, Any]) -> None:
        """Add the result of a worker; keep and show its failures."""
        self.inputs += result["inputs"]
        self.cpu_seconds += result["cpu_seconds"]
        for what, failure in result["failures"].items():
            data = bytes.fromhex(failure["input"])
            kept = self.failures_folder / f"{name}-{sha256(data).hexdigest()[:12]}"
            kept.write_bytes(data)
            if f"{name}: {what}" not in self.failures:
                CONSOLE.print(f"{name}: {what}; input in {kept}\n{failure['traceback']}", markup=False)
            self.failures.add(f"{name}: {what}")


def main() -> int:
    """Run the command line."""
    options = parse_arguments()
    failures_folder = options.folder / "failures"
    failures_folder.mkdir(parents=True, exist_ok=True)
    tally = Tally(failures_folder)
    names = [target.name for target in load_all_targets() if options.only in target.name]
    started = time.monotonic()
    fastest: Sequence[str] = names
    while fastest and tally.inputs < options.inputs:
        fastest = run_round(fastest, options, tally)[: options.jobs]
    figures = {
        "inputs": tally.inputs,
        "unexpected": len(tally.failures),
        "targets": len(names),
        "seconds": round(time.monotonic() - started, 1),
        "cpu_seconds": round(tally.cpu_seconds),
        "engine": "atheris" if import_atheris() else "mutations",
    }
    sys.stdout.write(f"RESULT {json.dumps(figures)}\n")
    return int(bool(tally.failures))


def run_round(names: Sequence[str], options: Namespace, tally: Tally) -> list[str]:
    """Share the missing inputs among the targets; return those that reached their share, fastest first."""
    share = -(-(options.inputs - tally.inputs) // len(names))
    with ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda name: run_worker(name, share, options), names)
        reached: dict[str, float] = {}
        for name, result in zip(names, results, strict=True):
            tally.count_in(name, result)
            CONSOLE.print(f"{name}: {result['inputs']} inputs, {result['cpu_seconds']:.1f} s of CPU")
            if result["inputs"] >= share:
                reached[name] = result["cpu_seconds"]
    return sorted(reached, key=reached.__getitem__)


def run_worker(name: str, inputs: int, options: Namespace) -> dict[str, Any]:
    """Return the result of a worker; a worker that ends without one is a failure."""
    arguments = [name, str(inputs), str(options.seconds), str(options.folder / name)]
    command = [sys.executable, "-m", "fuzz.worker", *arguments]
    ran = subprocess.run(command, check=False, capture_output=True)
    lines = ran.stdout.decode(errors="replace").splitlines()
    result: dict[str, Any]
    try:
        result = json.loads(lines[-1])
    except (IndexError, ValueError):  # a crash of the process, or an input that takes more than HANG_S
        output = ran.stderr.decode(errors="replace")[-3000:]
        failures = {"ended": {"traceback": output, "input": ""}}
        result = {"inputs": 0, "failures": failures, "cpu_seconds": 0.0}
    return result


def parse_arguments() -> Namespace:
    """Return the options of the command line."""
    parser = ArgumentParser(prog="fuzz", description="fuzz every decoder")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="inputs in all")
    parser.add_argument("--seconds", type=float, default=60, help="CPU seconds of a target in a round")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes side by side")
    parser.add_argument("--only", default="", help="targets whose name contains this text")
    parser.add_argument("--folder", type=Path, default=Path("build/fuzz"), help="grown corpus, failures")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
