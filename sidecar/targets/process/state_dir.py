"""Files in the state directory: whole at every moment, and with their errors translated."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from trimtab.sidecar.errors import StateDirError


@contextmanager
def translate_state_dir_errors(state_dir: Path) -> Generator[None]:
    """Run the block; translate an OSError to StateDirError."""
    try:
        yield
    except OSError as error:
        where = error.filename or state_dir
        raise StateDirError(  # a PeerError: the loop survives a full disk and retries
            f"state directory {state_dir}: {where}: {error.strerror}; free disk space, or grant "
            "the sidecar read and write access"
        ) from error


def write_atomically(file: Path, text: str) -> None:
    """Replace the file: a crash leaves, and a reader sees, its old or its new content. Raises OSError."""
    draft = file.with_name(f"{file.name}.{os.getpid()}.tmp")
    draft.write_text(text)
    draft.replace(file)
