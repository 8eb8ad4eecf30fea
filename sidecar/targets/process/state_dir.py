"""What goes wrong with the state folder, by name: a full disk must not end the loop."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from trimtab.sidecar.errors import StateUnusable


@contextmanager
def usable(state: Path) -> Generator[None]:
    """Work with the folder. Raises StateUnusable where the system refuses."""
    try:
        yield
    except OSError as error:
        where = error.filename or state
        raise StateUnusable(
            f"state folder {state}: {where}: {error.strerror}; make room on the disk, or let the "
            "sidecar read and write there"
        ) from error
