"""CLOCK_MONOTONIC of a machine that was suspended, for one process; import it before the product.

Linux's CLOCK_MONOTONIC stands still while a machine is suspended, CLOCK_BOOTTIME goes on. The fault stops
a consumer's processes, adds the time to a file and continues them: `time.monotonic` is behind by that
before any thread runs again. librdkafka, the JVM and waits inside C code keep the real clock, and the
peers see open connections, as they do of a suspended machine.
"""

import mmap
import struct
import time
from pathlib import Path
from typing import Final

TRUE_MONOTONIC: Final = time.monotonic
_SECONDS: Final = struct.Struct("d")


def install(file: Path) -> None:
    """Let `time.monotonic` of this process miss the seconds that the file has."""
    file.write_bytes(_SECONDS.pack(0.0))
    with file.open("r+b") as opened:
        missed = mmap.mmap(opened.fileno(), _SECONDS.size)

    def monotonic() -> float:
        return TRUE_MONOTONIC() - float(_SECONDS.unpack_from(missed)[0])

    time.monotonic = monotonic


def add(file: Path, seconds: float) -> None:
    """Add seconds that a stopped process shall miss."""
    (missed,) = _SECONDS.unpack(file.read_bytes())
    with file.open("r+b") as opened:  # in place: the process has the file mapped
        opened.write(_SECONDS.pack(missed + seconds))
