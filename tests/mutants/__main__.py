"""`make mutants`: runs the tests against every mutant, or a sample drawn by a seed.

`survivors.toml` explains the mutants that no test can kill, or need not. A survivor without an
explanation fails the run. The last line is `RESULT {json}`.
"""

import argparse
import json
import os
import random
import sys
import time
import tomllib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Final

from mutants.modules import GUARDED_MODULES
from mutants.runner import Task, Verdict, list_tasks, run_tasks

EXPLANATIONS: Final = Path(__file__).with_name("survivors.toml")
SAMPLED_MODULES: Final = 3


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="mutants", description=__doc__)
    parser.add_argument(
        "modules", nargs="*", help="parts of the paths of the modules to change; default: all"
    )
    parser.add_argument("--sample", type=int, help="number of mutants to draw; default: all")
    parser.add_argument("--seed", type=int, default=1, help="of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="number of processes")
    arguments = parser.parse_args()
    tasks = select_tasks(arguments.modules, arguments.sample, arguments.seed)
    began = time.monotonic()
    survivors = find_survivors(tasks, arguments.jobs)
    explained = load_explanations()
    unexplained = sorted(task.name for task in survivors if task.name not in explained.get(task.module, {}))
    result = {
        "mutants": len(tasks),
        "killed": len(tasks) - len(survivors),
        "survived": len(survivors),
        "equivalent_explained": len(survivors) - len(unexplained),
        "unexplained": unexplained,
        "seconds": round(time.monotonic() - began),
    }
    _print_line(f"RESULT {json.dumps(result, ensure_ascii=False)}")
    return int(bool(unexplained))


def select_tasks(parts: Sequence[str], sample: int | None, seed: int) -> list[Task]:
    """Return the mutants of the selected modules, or a sample, from few modules: each has its cost."""
    modules = [module for module in GUARDED_MODULES if not parts or any(part in module for part in parts)]
    rng = random.Random(seed)  # noqa: S311 - repeatable
    if sample is not None:
        modules = rng.sample(modules, min(SAMPLED_MODULES, len(modules)))
    tasks = [task for module in modules for task in list_tasks(module)]
    return tasks if sample is None else rng.sample(tasks, min(sample, len(tasks)))


def find_survivors(tasks: Sequence[Task], jobs: int) -> list[Task]:
    """Return the mutants that no test has killed."""
    survivors: list[Task] = []
    for module, group in groupby(sorted(tasks, key=lambda task: task.module), lambda task: task.module):
        outcomes = run_tasks(list(group), GUARDED_MODULES[module], jobs)
        found = [outcome.task for outcome in outcomes if outcome.verdict is Verdict.SURVIVED]
        cpu_s = sum(outcome.cpu_s for outcome in outcomes)
        _print_line(f"{module}: {len(outcomes)} mutants, {len(found)} survived, {cpu_s:.0f} s CPU")
        for task in found:
            _print_line(f"    {task.name}")
        survivors += found
    return survivors


def load_explanations() -> dict[str, dict[str, str]]:
    """Return the explained survivors: module → name → reason."""
    return tomllib.loads(EXPLANATIONS.read_text())


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
