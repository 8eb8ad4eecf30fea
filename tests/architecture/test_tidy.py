"""Rules of the house that no linter enforces."""

import ast
import importlib
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PARTS = ("assignor", "broker_plugin", "cli", "common", "consumer_sdk", "sidecar", "testing")
ALL = (*PARTS, "tests", "benchmarks", "examples")

# joined here, so that this file names none
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


def list_sources(*folders: str) -> list[Path]:
    """Return the Python files of these folders."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def iterate_functions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the name of each function in a file, and its lines without decorators."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield f"{path.relative_to(ROOT)}:{node.name}", node.end_lineno - node.lineno + 1


def list_tracked_files() -> list[Path]:
    """Return the files in the repository."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    return [ROOT / name for name in names.split("\0") if name and (ROOT / name).is_file()]


def test_no_function_is_past_60_lines() -> None:
    """A function fits on a screen."""
    lengths = [one for path in list_sources(*ALL) for one in iterate_functions(path)]
    assert [(name, lines) for name, lines in lengths if lines > 60] == []


def test_most_functions_are_short() -> None:
    """Half of the product's functions have about 8 lines, nine in ten at most 30."""
    lengths = [lines for path in list_sources(*PARTS) for _, lines in iterate_functions(path)]
    assert statistics.median(lengths) <= 9
    assert statistics.quantiles(lengths, n=10)[-1] <= 30


def test_files_stay_readable() -> None:
    """No module has 450 lines or more, no test file 700."""
    sizes = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in list_sources(*ALL)}
    limits = {path: 700 if path.parts[0] == "tests" else 450 for path in sizes}
    assert [(path, size) for path, size in sizes.items() if size >= limits[path]] == []


def test_no_machine_is_named() -> None:
    """No file names a package registry or a path of one machine."""
    found = []
    for path in list_tracked_files():
        data = path.read_bytes()
        if b"\0" not in data:
            text = data.decode()
            found += [(path.name, word) for word in (*HOSTS, *PLACES) if word in text]
    assert found == []


def list_public_modules() -> list[str]:
    """Return the names of the modules with `__all__`."""
    return [
        ".".join(("trimtab", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")
        for path in list_sources(*PARTS)
        if "__all__ = " in path.read_text()
    ]


def get_sort_group(name: str) -> int:
    """Return 0 for constants, 1 for classes, 2 for the rest: ruff's order."""
    if name.isupper():
        return 0
    return 1 if name[0].isupper() else 2


@pytest.mark.parametrize("name", list_public_modules())
def test_all_is_sorted_and_true(name: str) -> None:
    """`__all__` is sorted, without duplicates, and every name in it exists."""
    module = importlib.import_module(name)
    exported = module.__all__
    assert list(exported) == sorted(set(exported), key=lambda n: (get_sort_group(n), n))
    assert [n for n in exported if not hasattr(module, n)] == []


@pytest.mark.parametrize("part", ["assignor", "consumer_sdk"])
def test_a_package_exports_its_imports(part: str) -> None:
    """`__all__` of a package lists exactly what its `__init__` imports for type checkers."""
    tree = ast.parse((ROOT / part / "__init__.py").read_text())
    (for_types,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in for_types.body if isinstance(node, ast.ImportFrom))
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    assert imported == set(importlib.import_module(f"trimtab.{part}").__all__)


def test_import_contracts_hold() -> None:
    """The layers of pyproject.toml hold; the assignor imports only common, sidecar and SDK not each other."""
    tool = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run([tool], cwd=ROOT, check=False, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_every_test_states_its_promise() -> None:
    """Each test has a docstring."""
    silent = [
        f"{path.name}:{node.name}"
        for path in list_sources("tests")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and not ast.get_docstring(node)
    ]
    assert silent == []


def test_product_does_not_list_offsets_by_the_admin_client() -> None:
    """AdminClient.list_consumer_group_offsets crashes while a coordinator moves (librdkafka's issue 5040)."""
    calls = [
        path.relative_to(ROOT)
        for path in list_sources(*PARTS)
        if ".list_consumer_group_offsets(" in path.read_text()
    ]
    assert calls == []


def test_counts_have_their_nouns_from_one_helper() -> None:
    """An f-string does not write a plural after a number, which may be 1: `format_count` does."""
    nouns = "members|replicas|partitions|consumers|records|rows|messages|iterations|pods|files|moves"
    # a constant is not 1, nor is a number with decimals, nor one past a limit (`size`)
    bare = re.compile(rf"\{{(?![A-Z_]+\}}|target.size)(?![^{{}}]*(?:format_|:\.\d))[^{{}}]*\}} (?:{nouns})\b")
    found = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path in list_sources(*PARTS)
        for line in path.read_text().splitlines()
        if bare.search(line)
    ]
    assert found == []
