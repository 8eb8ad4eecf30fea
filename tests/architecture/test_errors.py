"""The error trees in the docstrings match the classes."""

import importlib
import re
from typing import NamedTuple

import pytest

from trimtab.common.errors import CallerError, PeerError, TrimtabError

MODULES = ("common.errors", "cli.errors", "consumer_sdk.errors", "sidecar.errors")
LINE = re.compile(r"(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:  +(?P<note>\S.*))?")


class TreeLine(NamedTuple):
    """One line of a tree."""

    parent: str | None
    note: str


def parse_tree(text: str) -> dict[str, TreeLine]:
    """Read a tree: each level is four columns deep."""
    lines: dict[str, TreeLine] = {}
    path: list[str] = []
    for line in text.splitlines()[2:]:
        match = LINE.fullmatch(line)
        if match is None:
            break
        del path[len(match["branch"]) // 4 :]
        lines[match["name"]] = TreeLine(path[-1] if path else None, match["note"] or "")
        path.append(match["name"])
    return lines


def list_classes(module: str) -> dict[str, type[TrimtabError]]:
    """Return the errors that a module defines."""
    loaded = importlib.import_module(f"trimtab.{module}")
    return {
        name: value
        for name, value in vars(loaded).items()
        if isinstance(value, type) and issubclass(value, TrimtabError) and value.__module__ == loaded.__name__
    }


@pytest.mark.parametrize("module", MODULES)
def test_the_tree_shows_each_class_under_its_base(module: str) -> None:
    """Every class stands below its base class."""
    drawn = parse_tree(importlib.import_module(f"trimtab.{module}").__doc__ or "")
    defined = list_classes(module)
    assert {name: drawn[name].parent for name in defined if name in drawn} == {
        name: value.__bases__[0].__name__ if value is not TrimtabError else None
        for name, value in defined.items()
    }


@pytest.mark.parametrize("module", MODULES)
def test_the_tree_holds_no_other_class(module: str) -> None:
    """A tree holds the module's own errors and the branches above them."""
    drawn = parse_tree(importlib.import_module(f"trimtab.{module}").__doc__ or "")
    branches = {"CallerError", "PeerError", "SettingError"}
    assert drawn.keys() - list_classes(module).keys() <= branches


@pytest.mark.parametrize("module", MODULES)
def test_the_tree_marks_retryable_errors(module: str) -> None:
    """ "(retryable)" stands beside exactly the retryable errors."""
    drawn = parse_tree(importlib.import_module(f"trimtab.{module}").__doc__ or "")
    defined = list_classes(module)
    marked = {name for name in defined if "(retryable)" in drawn[name].note}
    assert marked == {name for name, value in defined.items() if value.retryable}


@pytest.mark.parametrize("module", MODULES)
def test_each_error_is_on_one_branch(module: str) -> None:
    """Every class derives from CallerError or PeerError; exit codes are 1 and 2."""
    for value in list_classes(module).values():
        if value is not TrimtabError:
            assert issubclass(value, CallerError) != issubclass(value, PeerError)
        assert value.exit_code in {1, 2}
