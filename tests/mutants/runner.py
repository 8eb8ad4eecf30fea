"""Runs a module's tests against each of its mutants.

One pytest session imports the product and collects the tests. A fork per mutant then puts the
changed functions in place of the real ones, in memory, and runs the tests until one fails: a mutant
costs its tests only, and no file is written.
"""

import ast
import gc
import inspect
import math
import os
import resource
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import hypothesis
import pytest

from mutants.operators import list_mutants

ROOT: Final = Path(__file__).parents[2]
CPU_LIMIT_S: Final = 120.0  # of an unchanged module's tests; a mutant gets twice what these took
WALL_LIMIT_S: Final = 1800.0  # likewise; a mutant gets five times what these took
MEMORY_LIMIT: Final = 6 << 30
PYTEST_OPTIONS: Final = (
    *("-q", "-n0", "--timeout=0", "-p", "no:cacheprovider"),
    "--keep-duplicates",  # else a module's own tests, named first, run among those of their folder
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),  # Hypothesis is imported already
)


class Verdict(Enum):
    """What the tests said."""

    KILLED = "killed"
    SURVIVED = "survived"


class RunnerError(Exception):
    """The tests could not run: this is no verdict on a mutant."""


@dataclass(frozen=True, slots=True)
class Task:
    """A mutant by its number in a module, None for the module as it is."""

    module: str  # path from the root
    name: str
    number: int | None
    cpu_limit_s: float = CPU_LIMIT_S  # an endless loop ends here
    wall_limit_s: float = WALL_LIMIT_S  # a wait for ever ends here


@dataclass(frozen=True, slots=True)
class Outcome:
    """Verdict of the tests on a task, and the CPU time that they took."""

    task: Task
    verdict: Verdict
    cpu_s: float


def list_tasks(module: str) -> list[Task]:
    """Return a task for each mutant of a module."""
    names = [mutant.name for mutant in list_mutants(_parse(module))]
    return [Task(module, name, number) for number, name in enumerate(names)]


def run_tasks(tasks: Sequence[Task], tests: Sequence[str], jobs: int) -> list[Outcome]:
    """Return the outcomes of one module's mutants, after a run of the module as it is.

    Raises RunnerError if the tests fail without a mutant: they would kill every one.
    """
    loop = _MutantLoop(tasks, jobs)
    _configure_hypothesis()
    os.environ.pop("PYTEST_ADDOPTS", None)  # options of the run that this one is a test of
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):  # noqa: PTH123 - no path
        code = pytest.main([*PYTEST_OPTIONS, *tests], plugins=[loop])
    if code or loop.error:
        raise RunnerError(f"{tasks[0].module}: {loop.error or f'pytest ended with {code!r}'}")
    return loop.outcomes


@dataclass(slots=True)
class _MutantLoop:
    """Replaces pytest's loop over the tests by one over the mutants."""

    tasks: Sequence[Task]
    jobs: int
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    error: str = ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.collect()
        gc.freeze()  # forks share these pages
        unchanged = Task(self.tasks[0].module, "unchanged", None)
        began = time.monotonic()
        (first,) = _run_forks([unchanged], session, 1)
        wall_s = time.monotonic() - began  # tells how busy the machine is, too
        if first.verdict is Verdict.KILLED:
            self.error = "the tests fail on the module as it is"
            return True
        cpu_limit_s, wall_limit_s = 2 * first.cpu_s + 5, 5 * wall_s + 30
        limited = [replace(t, cpu_limit_s=cpu_limit_s, wall_limit_s=wall_limit_s) for t in self.tasks]
        self.outcomes.extend(_run_forks(limited, session, self.jobs))
        return True


def _run_forks(tasks: Sequence[Task], session: pytest.Session, jobs: int) -> Iterator[Outcome]:
    waiting, running = list(reversed(tasks)), dict[int, Task]()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                task = waiting.pop()
                running[_fork(task, session)] = task
            child, status, usage = os.wait4(-1, 0)
            verdict = Verdict.SURVIVED if status == 0 else Verdict.KILLED
            yield Outcome(running.pop(child), verdict, usage.ru_utime + usage.ru_stime)
    finally:
        for child in running:
            os.kill(child, signal.SIGKILL)


def _fork(task: Task, session: pytest.Session) -> int:
    child = os.fork()
    if child:
        return child
    try:
        os._exit(_run_child(task, session))
    except BaseException:  # noqa: BLE001 - a child never returns into the parent's code
        os._exit(1)


def _run_child(task: Task, session: pytest.Session) -> int:
    _limit_resources(task)
    if task.number is not None:
        apply_mutant(task.module, task.number)
    following: list[Any] = [*session.items[1:], None]
    for item, next_item in zip(session.items, following, strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        if session.testsfailed:
            if task.number is None:
                os.write(2, f"{item.nodeid} fails\n".encode())
            return 1
    return 0


def _limit_resources(task: Task) -> None:
    cpu = math.ceil(task.cpu_limit_s)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(math.ceil(task.wall_limit_s))


def _configure_hypothesis() -> None:
    hypothesis.settings.register_profile(
        "mutants",
        max_examples=50,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(hypothesis.HealthCheck),  # a slow machine kills no mutant
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),  # the smallest example is not needed
    )
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"  # which tests/property loads
    hypothesis.settings.load_profile("mutants")


def _parse(module: str) -> ast.Module:
    return ast.parse((ROOT / module).read_text())


# -- the changed module -------------------------------------------------------------------------------


def apply_mutant(module: str, number: int) -> None:
    """Put a mutant's functions and constants in place of the imported module's."""
    tree = _parse(module)
    list_mutants(tree)[number].apply()
    code = compile(ast.fix_missing_locations(tree), str(ROOT / module), "exec")
    name = "trimtab." + module.removesuffix(".py").replace("/", ".")
    imported, changed = import_module(name), ModuleType(name)
    exec(code, vars(changed))  # noqa: S102 - our own source
    for attribute, old in tuple(vars(imported).items()):
        new = vars(changed).get(attribute)
        if isinstance(old, type) and old.__module__ == name:
            _transplant_class(old, new)
        elif isinstance(old, FunctionType) and old.__module__ == name:
            _transplant(old, new)
        elif isinstance(old, int | float) and old != new:
            _set_everywhere(attribute, old, new)


def _transplant_class(old: type, new: Any) -> None:
    for attribute, member in tuple(vars(old).items()):
        before, after = _find_function(member), _find_function(vars(new).get(attribute))
        if before is not None:
            _transplant(before, after)


def _find_function(member: Any) -> FunctionType | None:
    """Return a method's function, also that of a property or a classmethod."""
    function = getattr(member, "fget", None) or getattr(member, "__func__", None) or member
    return function if isinstance(function, FunctionType) else None


def _transplant(old: Any, new: Any) -> None:
    """Give a function the code and defaults of another; who imported it has the change."""
    old, new = inspect.unwrap(old), inspect.unwrap(new)
    old.__code__, old.__defaults__, old.__kwdefaults__ = new.__code__, new.__defaults__, new.__kwdefaults__


def _set_everywhere(attribute: str, old: object, new: object) -> None:
    for module in tuple(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("trimtab.") and vars(module).get(attribute) == old:
            setattr(module, attribute, new)
