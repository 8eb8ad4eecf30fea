"""`make simulate-faults`: histories of the seeds from SEED on; a single one prints its trace.

Seeds are independent, so several processes (`--jobs`) run them side by side with the same results.
The last line is `RESULT {json}`; the exit code is 1 if an invariant was violated.
"""

import argparse
import gc
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from multiprocessing import Pool
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

from simulation.history import Result, run
from simulation.seams import simulated

CHUNK: Final = 10
"""Seeds that a process takes at a time."""


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("-n", "--histories", type=int, default=1, help="number of seeds")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.histories)
    gc.freeze()  # the collector skips imported objects
    began = time.monotonic()
    results = [*_alone(arguments.seed)] if len(seeds) == 1 else [*_many(seeds, arguments.jobs)]
    wall, used = time.monotonic() - began, os.times()
    cpu = used.user + used.system + used.children_user + used.children_system
    _print_line(f"RESULT {json.dumps(_summary(results, wall, cpu))}")
    return int(any(result.wrong for result in results))


def _alone(seed: int) -> Iterator[Result]:
    with simulated():
        result = run(seed, tracing=True)
    for line in result.trace:
        _print_line(line)
    _print_violation(result)
    yield result


def _many(seeds: range, jobs: int) -> Iterator[Result]:
    columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with (
        Pool(min(jobs, len(seeds)), _begin) as pool,
        Progress(*columns, console=console, transient=True) as progress,
    ):
        for result in progress.track(pool.imap(run, seeds, CHUNK), total=len(seeds)):
            _print_violation(result)
            yield result
        pool.close()
        pool.join()


_IN_FORCE: Final = ExitStack()


def _begin() -> None:
    """Prepare a process for histories; the replaced names stay replaced until it ends."""
    logging.disable(logging.CRITICAL)
    _IN_FORCE.enter_context(simulated())


def _print_violation(result: Result) -> None:
    if result.wrong is not None:
        _print_line(f"seed {result.seed}: {result.wrong}")
        _print_line(f"  replay: make simulate-faults SEED={result.seed} N=1")


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _summary(results: list[Result], wall: float, cpu: float) -> dict[str, object]:
    return {
        "histories": len(results),
        "wrong": [result.seed for result in results if result.wrong is not None],
        "faults": sum(result.faults for result in results),
        "records": sum(result.records for result in results),
        "gaps": sum(result.gaps for result in results),
        "handovers": sum(result.handovers for result in results),
        "commits": sum(result.commits for result in results),
        "rebalances": sum(result.generations for result in results),
        "simulated_hours": round(sum(result.seconds for result in results) / 3600, 1),
        "seconds": round(wall, 1),
        "histories_per_minute": round(60 * len(results) / wall),
        "cpu_seconds": round(cpu, 1),
        "histories_per_cpu_minute": round(60 * len(results) / cpu),
    }


if __name__ == "__main__":
    sys.exit(main())
