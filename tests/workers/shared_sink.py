"""A sink that the worker processes of a test share: all of them together fill it at one rate at most."""

import fcntl
from pathlib import Path
from time import monotonic


def reserve_sink(file: str, seconds: float) -> float:
    """Take the sink for so long, after those who came before; return the time at which that is over."""
    with Path(file).open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        free_at = max(monotonic(), float(shared.read() or 0.0)) + seconds
        shared.truncate(0)
        shared.write(str(free_at))
        return free_at
