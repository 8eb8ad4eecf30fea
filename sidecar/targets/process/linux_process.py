"""What Linux says of a process: whether this very one still lives, and which one carries a mark."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC_DIR: Final = Path("/proc")


def read_start_ticks(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot; None if it is gone or a zombie.

    Together with the pid this names a process for good: pids come back, start times do not.
    """
    with suppress(OSError, ValueError, IndexError):
        text = (PROC_DIR / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        fields = text.rpartition(")")[2].split()  # the name before it may hold anything
        return None if fields[0] in "ZX" else int(fields[19])
    return None


def find_marked_process(mark: str) -> int | None:
    """Return the session leader whose environment holds `mark` ("NAME=value"), if there is one.

    A worker leads its session; its own children inherit the mark but do not.
    """
    wanted = mark.encode()
    for folder in PROC_DIR.iterdir():
        with suppress(OSError, ValueError):
            pid = int(folder.name)
            carries = wanted in (folder / "environ").read_bytes().split(b"\0")
            if carries and os.getsid(pid) == pid and read_start_ticks(pid) is not None:
                return pid
    return None
