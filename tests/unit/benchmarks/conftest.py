"""Imports the benchmarks' modules, which are no package."""

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"


@pytest.fixture
def import_bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Let the benchmarks be imported; forget their modules after the test."""
    monkeypatch.syspath_prepend(str(BENCHMARKS.parent))
    known = set(sys.modules)
    yield import_module
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]
