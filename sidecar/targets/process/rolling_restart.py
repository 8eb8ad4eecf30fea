"""Requests to replace workers one by one: a file in the state folder, kept through a crash.

`trimtab sidecar restart` writes the names of the workers there are. The sidecar replaces them and,
when none of them lives any more, takes the file away.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from trimtab.sidecar.targets.process.state_dir import translate_state_dir_errors

RESTART_REQUEST_FILE: Final = "restart.json"


def request_restart(state_dir: Path) -> tuple[str, ...]:
    """Ask for every worker on file to be replaced, and return their names."""
    names = tuple(sorted(file.stem for file in (state_dir / "workers").glob("*.json")))
    if names:
        draft = state_dir / f"{RESTART_REQUEST_FILE}.tmp"
        draft.write_text(json.dumps(names))
        draft.replace(state_dir / RESTART_REQUEST_FILE)
    return names


def list_pending_restarts(state_dir: Path | None, alive: Iterable[str]) -> tuple[str, ...]:
    """Return the names still to be replaced; takes the request away when there are none left.

    Raises StateDirError.
    """
    if state_dir is None:
        return ()
    with translate_state_dir_errors(state_dir):
        return _read_pending_restarts(state_dir, alive)


def _read_pending_restarts(state_dir: Path, alive: Iterable[str]) -> tuple[str, ...]:
    if not (state_dir / RESTART_REQUEST_FILE).exists():
        return ()
    try:
        asked = [str(name) for name in json.loads((state_dir / RESTART_REQUEST_FILE).read_text())]
    except (ValueError, TypeError):
        asked = []
    living = set(alive)
    left = tuple(name for name in asked if name in living)
    if not left:
        (state_dir / RESTART_REQUEST_FILE).unlink(missing_ok=True)
    return left
