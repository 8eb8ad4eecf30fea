"""Rules of the house that a linter does not hold."""

import ast
import importlib
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("assignor", "cli", "common", "consumer_sdk", "sidecar")
ALL = (*PARTS, "tests", "benchmarks", "examples")

# put together here, so that this file itself is clean
HOSTS = tuple(
    ".".join(name)
    for name in (
        ("pypi", "org/simple"),
        ("files", "pythonhosted", "org"),
        ("repo1", "maven", "org"),
        ("repo", "maven", "apache", "org"),
        ("registry", "npmjs", "org"),
        ("proxy", "golang", "org"),
    )
)
PLACES = (*(f"/{name}/" for name in ("work", "root", "Users")), "--index" + "-url")


def sources(*folders: str) -> list[Path]:
    """Python files of these folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and length in lines, decorators aside, of every function in a file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path.relative_to(ROOT)}:{node.name}", node.end_lineno - node.lineno + 1


def tracked() -> list[Path]:
    """Files in the repository."""
    said = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / name for name in said.split("\0") if name and (ROOT / name).is_file()]


def test_no_function_is_past_60_lines() -> None:
    """A function fits on a screen."""
    found = [f for path in sources(*ALL) for f in functions(path)]
    assert [(name, lines) for name, lines in found if lines > 60] == []


def test_most_functions_are_short() -> None:
    """Half of the product's functions have about 8 lines, nine in ten at most 30."""
    lengths = [lines for path in sources(*PARTS) for _, lines in functions(path)]
    assert statistics.median(lengths) <= 9
    assert statistics.quantiles(lengths, n=10)[-1] <= 30


def test_files_stay_readable() -> None:
    """No module has 550 lines or more, no test file 700."""
    sizes = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in sources(*ALL)}
    limits = {path: 700 if path.parts[0] == "tests" else 550 for path in sizes}
    assert [(path, size) for path, size in sizes.items() if size >= limits[path]] == []


def test_no_machine_is_named() -> None:
    """No file names a package registry or a path of somebody's machine."""
    found = []
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data:
            text = data.decode()
            found += [(path.name, word) for word in (*HOSTS, *PLACES) if word in text]
    assert found == []


def public_modules() -> list[str]:
    """Names of modules that say what they offer."""
    return [
        ".".join(("trimtab", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for path in sources(*PARTS)
        if "__all__ = " in path.read_text()
    ]


def kind(name: str) -> int:
    """Constants come first, then classes, then the rest, as ruff sorts them."""
    if name.isupper():
        return 0
    return 1 if name[0].isupper() else 2


@pytest.mark.parametrize("name", public_modules())
def test_all_is_sorted_and_true(name: str) -> None:
    """`__all__` is sorted, holds no name twice, and every name in it exists."""
    module = importlib.import_module(name)
    offered = module.__all__
    assert list(offered) == sorted(set(offered), key=lambda n: (kind(n), n))
    assert [n for n in offered if not hasattr(module, n)] == []


@pytest.mark.parametrize("part", ["assignor", "consumer_sdk"])
def test_package_offers_what_it_imports(part: str) -> None:
    """What the package's `__init__` imports is what it offers; nothing leaks by accident."""
    tree = ast.parse((ROOT / part / "__init__.py").read_text())
    imported = {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert imported == set(importlib.import_module(f"trimtab.{part}").__all__)


def test_import_contracts_hold() -> None:
    """The layers of pyproject.toml hold: the core knows nobody, sidecar and SDK not each other."""
    tool = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run([tool], cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_test_states_its_promise() -> None:
    """Each test has a docstring."""
    silent = [
        f"{path.name}:{node.name}"
        for path in sources("tests")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []
