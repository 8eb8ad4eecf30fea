"""The error trees that are drawn are the ones that are raised."""

import importlib
import re
from typing import NamedTuple

import pytest

from trimtab.common.errors import CallerError, PeerError, TrimtabError

MODULES = ("common.errors", "cli.errors", "consumer_sdk.errors", "sidecar.errors")
LINE = re.compile(r"(?P<branch>[│├└─ ]*)(?P<name>[A-Z]\w+)(?:  +(?P<says>\S.*))?")


class Drawn(NamedTuple):
    """One line of a drawing."""

    parent: str | None
    says: str


def drawing(text: str) -> dict[str, Drawn]:
    """Read a tree: each level is four columns deep."""
    found: dict[str, Drawn] = {}
    path: list[str] = []
    for line in text.splitlines()[2:]:
        match = LINE.fullmatch(line)
        if match is None:
            break
        del path[len(match["branch"]) // 4 :]
        found[match["name"]] = Drawn(path[-1] if path else None, match["says"] or "")
        path.append(match["name"])
    return found


def classes(module: str) -> dict[str, type[TrimtabError]]:
    """Errors that a module defines."""
    loaded = importlib.import_module(f"trimtab.{module}")
    return {
        name: value
        for name, value in vars(loaded).items()
        if isinstance(value, type) and issubclass(value, TrimtabError) and value.__module__ == loaded.__name__
    }


@pytest.mark.parametrize("module", MODULES)
def test_drawing_shows_each_class_under_its_base(module: str) -> None:
    """Every class is drawn, and below the class that it derives from."""
    drawn = drawing(importlib.import_module(f"trimtab.{module}").__doc__ or "")
    defined = classes(module)
    assert {name: drawn[name].parent for name in defined if name in drawn} == {
        name: value.__bases__[0].__name__ if value is not TrimtabError else None
        for name, value in defined.items()
    }


@pytest.mark.parametrize("module", MODULES)
def test_nothing_else_is_drawn(module: str) -> None:
    """A drawing holds the module's own errors and the branches that they hang on."""
    drawn = drawing(importlib.import_module(f"trimtab.{module}").__doc__ or "")
    branches = {"CallerError", "PeerError", "SettingError"}
    assert drawn.keys() - classes(module).keys() <= branches


@pytest.mark.parametrize("module", MODULES)
def test_drawing_says_which_may_be_retried(module: str) -> None:
    """ "(retryable)" stands beside exactly those errors that are."""
    drawn = drawing(importlib.import_module(f"trimtab.{module}").__doc__ or "")
    defined = classes(module)
    said = {name for name in defined if "(retryable)" in drawn[name].says}
    assert said == {name for name, value in defined.items() if value.retryable}


@pytest.mark.parametrize("module", MODULES)
def test_each_error_says_whose_fault_it_is(module: str) -> None:
    """Every leaf hangs on one of the two branches, and usage errors exit with 2."""
    for value in classes(module).values():
        if value is not TrimtabError:
            assert issubclass(value, CallerError) != issubclass(value, PeerError)
        assert value.exit_code in {1, 2}
