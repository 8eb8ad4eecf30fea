"""The runner kills what a test notices, and names what none does. A short form; `make mutants` runs all."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

from mutants.__main__ import load_explanations
from mutants.modules import GUARDED_MODULES
from mutants.operators import list_mutants
from mutants.runner import list_tasks

ROOT = Path(__file__).parents[2]
SAMPLE = 10


def test_a_sample_of_mutants_is_killed_or_explained() -> None:
    """Ten mutants of three modules, each of which a test must notice."""
    program = [sys.executable, "-m", "mutants", "--sample", str(SAMPLE), "--seed", "2", "--jobs", "1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    run = subprocess.run(program, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    result = json.loads(run.stdout.splitlines()[-1].removeprefix("RESULT "))
    assert result["mutants"] == SAMPLE
    assert result["killed"] + result["equivalent_explained"] == SAMPLE


def test_every_operator_makes_mutants() -> None:
    """One line for each: what is changed, and what only a person reads is not."""
    source = (
        "LIMIT: Final = 3\n"
        "def choose(a, b):\n"
        "    '''Text.'''\n"
        "    if a <= b and not a:\n"
        "        log.warning('text %d', a + b)\n"
        "        raise ValueError(f'text {a + b}')\n"
        "    a.total += b\n"
        "    return max(a, b)\n"
    )
    assert [mutant.name for mutant in list_mutants(ast.parse(source))] == [
        "module: LIMIT: Final = 3 → LIMIT: Final = 4",
        "choose: if a <= b and (not a): → if a <= b or not a:",
        "choose: if a <= b and (not a): → if a < b and (not a):",
        "choose: if a <= b and (not a): → if a > b and (not a):",
        "choose: if a <= b and (not a): → if a <= b and a:",
        "choose: raise ValueError(f'text {a + b}') → pass",
        "choose: a.total += b → pass",
        "choose: a.total += b → a.total -= b",
        "choose: return max(a, b) → return None",
        "choose: return max(a, b) → return min(a, b)",
    ]


def test_the_docs_list_each_module_that_is_changed() -> None:
    """In a table with the figures of each."""
    text = (ROOT / "tests" / "README.md").read_text()
    assert f"mutants of {len(GUARDED_MODULES)} modules" in text
    assert re.findall(r"^\| `(\S+\.py)` \| \d+ \| .+ \|$", text, re.MULTILINE) == [*GUARDED_MODULES]


def test_each_guard_is_there() -> None:
    """A path that is gone ends a run with an error, which would count as a killed mutant."""
    guards = {guard.partition("::")[0] for tests in GUARDED_MODULES.values() for guard in tests}
    assert [guard for guard in sorted(guards) if not (ROOT / guard).exists()] == []


def test_each_explanation_is_of_a_mutant() -> None:
    """After a change of the code, an explanation whose mutant is gone goes, too."""
    names = {module: {task.name for task in list_tasks(module)} for module in GUARDED_MODULES}
    for module, explained in load_explanations().items():
        assert set(explained) <= names[module]
        assert all(explained.values())
