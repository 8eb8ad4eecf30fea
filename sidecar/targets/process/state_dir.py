"""What goes wrong with the state folder, by name: a full disk must not end the loop."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from trimtab.sidecar.errors import StateDirError


@contextmanager
def translate_state_dir_errors(state_dir: Path) -> Generator[None]:
    """Work with the folder. Raises StateDirError where the system refuses."""
    try:
        yield
    except OSError as error:
        where = error.filename or state_dir
        raise StateDirError(
            f"state folder {state_dir}: {where}: {error.strerror}; make room on the disk, or "
            "let the "
            "sidecar read and write there"
        ) from error
