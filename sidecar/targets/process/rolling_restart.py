"""Rolling restart requests: a file in the state directory, so a request survives a crash.

`trimtab sidecar restart` writes the names of all current workers. The sidecar replaces them one by
one and deletes the file when none of them is alive.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from trimtab.sidecar.targets.process.state_dir import translate_state_dir_errors, write_atomically

RESTART_REQUEST_FILE: Final = "restart.json"


def request_restart(state_dir: Path) -> tuple[str, ...]:
    """Request the replacement of all known workers and return their names."""
    names = tuple(sorted(file.stem for file in (state_dir / "workers").glob("*.json")))
    if names:
        write_atomically(state_dir / RESTART_REQUEST_FILE, json.dumps(names))
    return names


def list_pending_restarts(state_dir: Path | None, alive: Iterable[str]) -> tuple[str, ...]:
    """Return the names of workers to replace; delete the request when none is left.

    Raises StateDirError.
    """
    if state_dir is None:
        return ()
    request = state_dir / RESTART_REQUEST_FILE
    running = set(alive)
    with translate_state_dir_errors(state_dir):
        if not request.exists():
            return ()
        try:
            pending = tuple(name for name in map(str, json.loads(request.read_text())) if name in running)
        except (ValueError, TypeError, RecursionError):
            pending = ()  # an unreadable request is dropped: the operator can repeat it
        if not pending:
            request.unlink(missing_ok=True)
        return pending
