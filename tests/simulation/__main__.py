"""`make simulate-faults`: histories of the seeds from SEED on; one alone is told step by step.

The last line is `RESULT {json}`; the exit code is 1 if anything was wrong.
"""

import argparse
import gc
import json
import logging
import sys
import time

from simulation.history import Result, run
from simulation.seams import simulated


def main() -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("-n", "--histories", type=int, default=1, help="how many seeds")
    asked = parser.parse_args()
    if asked.histories > 1:
        logging.disable(logging.CRITICAL)
    gc.freeze()  # what was imported is looked at no more
    began = time.process_time()
    with simulated():
        results = [_one(seed, asked.histories) for seed in _seeds(asked.seed, asked.histories)]
    _say(f"RESULT {json.dumps(_summary(results, time.process_time() - began))}")
    return int(any(result.wrong for result in results))


def _seeds(first: int, count: int) -> range:
    return range(first, first + count)


def _one(seed: int, histories: int) -> Result:
    result = run(seed, tracing=histories == 1)
    for line in result.trace:
        _say(line)
    if result.wrong is not None:
        _say(f"seed {seed}: {result.wrong}")
        _say(f"  replay: make simulate-faults SEED={seed} N=1")
    return result


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _summary(results: list[Result], seconds: float) -> dict[str, object]:
    return {
        "histories": len(results),
        "wrong": [result.seed for result in results if result.wrong is not None],
        "faults": sum(result.faults for result in results),
        "records": sum(result.records for result in results),
        "handovers": sum(result.handovers for result in results),
        "commits": sum(result.commits for result in results),
        "rebalances": sum(result.generations for result in results),
        "simulated_hours": round(sum(result.seconds for result in results) / 3600, 1),
        "cpu_seconds": round(seconds, 1),
        "histories_per_cpu_minute": round(60 * len(results) / seconds),
    }


if __name__ == "__main__":
    sys.exit(main())
