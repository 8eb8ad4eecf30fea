"""The wall clock of a consumer's JVM, wrong by the seconds in a file; `wall_clock.c` reads it."""

import os
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_suffix(".c")
_SECONDS: Final = struct.Struct("d")


def build(folder: Path) -> Path:
    """Compile the library that a JVM preloads. Raises CalledProcessError."""
    library = folder / "wall_clock.so"
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return library


def install(library: Path, file: Path) -> None:
    """Let programs that this process starts from now on read their wall clock by the file."""
    set_ahead(file, 0.0)
    os.environ["LD_PRELOAD"], os.environ["TRIMTAB_WALL_CLOCK"] = str(library), str(file)


def read_ahead(file: Path) -> float:
    """Return the seconds by which the clock is ahead; negative: behind."""
    return float(_SECONDS.unpack(file.read_bytes())[0])


def set_ahead(file: Path, seconds: float) -> None:
    """Set the clock of programs that have the file mapped, and of those that start later."""
    with os.fdopen(os.open(file, os.O_RDWR | os.O_CREAT), "wb") as opened:  # in place
        opened.write(_SECONDS.pack(seconds))
