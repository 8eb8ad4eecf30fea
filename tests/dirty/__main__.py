"""Runs the cases, some at a time, prints `RESULT {...}` and exits with 1 if a figure is beyond its limit.

A further case is a function of `DirtyRun` that returns figures, in `CASES`. Figures without limits in
`LIMITS` count what must not be.
"""

import json
import sys
import traceback
from argparse import ArgumentParser
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Final

from cluster.binaries import NAMES, find
from dirty.conditions import (
    measure_advised,
    measure_managed,
    measure_other_advice,
    measure_racks,
    measure_stranger,
)
from dirty.pods import measure_pods
from dirty.reading import measure_left_topics, measure_rare_commits
from dirty.run import DirtyRun, Figures
from dirty.sink import measure_sink_limit
from dirty.sizes import measure_compressed_sizes, measure_mixed_sizes, measure_pareto_sizes
from dirty.transactions import measure_open_transaction, measure_transactions
from trimtab.cli.broker.embedded_broker import EmbeddedBroker

# The long ones first, and beside each other those that mostly wait.
CASES: Final[Mapping[str, Callable[[DirtyRun], Figures]]] = {
    "sizes-mixed": measure_mixed_sizes,
    "sizes-compressed": measure_compressed_sizes,
    "sizes-pareto": measure_pareto_sizes,
    "pods": measure_pods,
    "managed": measure_managed,
    "advised": measure_advised,
    "rare-commits": measure_rare_commits,
    "sink": measure_sink_limit,
    "left-topics": measure_left_topics,
    "transactions": measure_transactions,
    "open-transaction": measure_open_transaction,
    "other-advice": measure_other_advice,
    "stranger": measure_stranger,
    "racks": measure_racks,
}
# Lowest and highest acceptable figure.
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "rate_error_p95": (0.0, 0.15),
    "transactional_ratio": (0.85, 1.15),
}
RESULTS: Final = ("rate_error_p95", "false_oversized", "scalings_at_steady_load", "transactional_ratio")


def main() -> None:
    """Run the chosen cases on an embedded broker."""
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--only", choices=CASES, action="append")
    arguments.add_argument("--seconds", type=float, default=150.0, help="of a steady load in each case")
    arguments.add_argument("--at-a-time", type=int, default=6, help="cases")
    options = arguments.parse_args()
    for program in NAMES if "pods" in (options.only or CASES) else ():
        find(program)  # or build it, before anything is measured
    with (
        EmbeddedBroker(properties={"broker.rack": "r1"}) as broker,
        TemporaryDirectory() as folder,
        ThreadPoolExecutor(options.at_a_time) as pool,
    ):
        runs = {
            name: DirtyRun(broker.bootstrap, Path(folder) / name, options.seconds)
            for name in options.only or CASES
        }
        found = dict(zip(runs, pool.map(_run_case, runs, runs.values()), strict=True))
    figures = combine_figures(found)
    kinds = set[str]().union(*(run.driven for run in runs.values()))
    silent = [f"{name}: {one}" for name, run in runs.items() for one in run.silent]
    print(f"conditions: {', '.join(sorted(kinds))}\nsilent: {silent}")  # noqa: T201 - its output
    result = {name: figures[name] for name in RESULTS if name in figures}
    result |= {"conditions": len(kinds), "silent": len(silent)}
    print(f"RESULT {json.dumps(result)}", flush=True)  # noqa: T201 - its output
    wrong = [*list_wrong(found), *(f"silent: {one}" for one in silent)]
    if wrong:
        sys.exit(f"beyond the limits: {', '.join(wrong)}")


def _run_case(name: str, run: DirtyRun) -> Figures:
    begun = monotonic()
    run.folder.mkdir()
    try:
        found = CASES[name](run)
    except Exception:  # noqa: BLE001 - the other cases go on
        traceback.print_exc()
        _print_logs(run.folder)
        found = {"failed": 1.0}
    print(f"{name}: {json.dumps(found)} in {monotonic() - begun:.0f} s", flush=True)  # noqa: T201 - its output
    return found


def _print_logs(folder: Path) -> None:
    for log in folder.glob("*.log"):
        print(f"{log.name}:\n{log.read_text()[-3000:]}", flush=True)  # noqa: T201 - its output


def combine_figures(found: Mapping[str, Figures]) -> Figures:
    """Return the worst figure of all cases; counts are added."""
    combined: Figures = {}
    for name in RESULTS:
        values = [figures[name] for figures in found.values() if name in figures]
        if values:
            combined[name] = max(values) if name in LIMITS else sum(values)
    return combined


def list_wrong(found: Mapping[str, Figures]) -> list[str]:
    """Return the figures that are beyond their limits, with their cases."""
    return [
        f"{case}: {name} {value:g}"
        for case, figures in found.items()
        for name, value in figures.items()
        if not LIMITS.get(name, (0, 0))[0] <= value <= LIMITS.get(name, (0, 0))[1]
    ]


if __name__ == "__main__":
    main()
