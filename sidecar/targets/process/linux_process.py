"""Process identity on Linux: start times and environment marks from /proc."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

PROC_DIR: Final = Path("/proc")


def read_start_ticks(pid: int) -> int | None:
    """Return the process start time in clock ticks since boot; None if it is gone or a zombie."""
    # pids are reused; the pair of pid and start time is unique until the next boot
    with suppress(OSError, ValueError, IndexError):
        text = (PROC_DIR / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        # the command name before the last ")" may contain spaces and parentheses
        fields = text.rpartition(")")[2].split()
        return None if fields[0] in "ZX" else int(fields[19])  # state and starttime of proc(5)
    return None


def find_marked_process(mark: str) -> int | None:
    """Return the pid of the session leader with `mark` ("NAME=value") in its environment, or None."""
    for folder in PROC_DIR.iterdir():
        with suppress(OSError, ValueError):  # not a process, another user's, or gone meanwhile
            pid = int(folder.name)
            has_mark = mark.encode() in (folder / "environ").read_bytes().split(b"\0")
            # children of a worker inherit its environment, but only the worker leads the session
            if has_mark and os.getsid(pid) == pid and read_start_ticks(pid) is not None:
                return pid
    return None
