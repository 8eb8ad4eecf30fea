"""Requests to replace workers one by one: a file in the state folder, kept through a crash.

`trimtab sidecar restart` writes the names of the workers there are. The sidecar replaces them and,
when none of them lives any more, takes the file away.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from trimtab.sidecar.targets.process.state_dir import usable

NAME: Final = "restart.json"


def request(state: Path) -> tuple[str, ...]:
    """Ask for every worker on file to be replaced, and return their names."""
    names = tuple(sorted(file.stem for file in (state / "workers").glob("*.json")))
    if names:
        draft = state / f"{NAME}.tmp"
        draft.write_text(json.dumps(names))
        draft.replace(state / NAME)
    return names


def pending(state: Path | None, alive: Iterable[str]) -> tuple[str, ...]:
    """Return the names still to be replaced; takes the request away when there are none left.

    Raises StateUnusable.
    """
    if state is None:
        return ()
    with usable(state):
        return _pending(state, alive)


def _pending(state: Path, alive: Iterable[str]) -> tuple[str, ...]:
    if not (state / NAME).exists():
        return ()
    try:
        asked = [str(name) for name in json.loads((state / NAME).read_text())]
    except (ValueError, TypeError):
        asked = []
    living = set(alive)
    left = tuple(name for name in asked if name in living)
    if not left:
        (state / NAME).unlink(missing_ok=True)
    return left
