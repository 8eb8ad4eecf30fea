"""Where the streams of a simulation come from: a file, or a generator and its seeds."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimtab.common.errors import BadStream, SettingError
from trimtab.common.units import parse_rate

if TYPE_CHECKING:
    from trimtab.assignor.analysis.streams.generators import Generator
    from trimtab.assignor.analysis.streams.stream import Stream

CAPACITY: Final = "100"
"""Of a consumer where a generator makes the stream: speeds are then percents of it."""

LEAST: Final = 1e-3
"""Bytes/s that any consumer sustains."""

PIPE: Final = Path("-")
"""The file that stands for standard input."""

COMMON: Final = frozenset({"partitions", "ticks", "capacity", "clamped", "delta"})
"""Fields of a generator that have an option of their own; an oversize walk's δ is a shape."""


@dataclass(frozen=True, slots=True)
class Source:
    """What the command line says of the stream; exactly one of the first five is given."""

    file: Path | None = None
    delta: float | None = None
    zipf: bool = False
    flash_crowd: bool = False
    oversize: bool = False
    partitions: int = 200
    ticks: int = 500
    seed: int = 0
    seeds: int = 1
    clamped: bool = True
    shape: Mapping[str, Any] | None = None

    @property
    def title(self) -> str:
        """Return what it is, for people."""
        if self.file is not None:
            return f"stream {'from standard input' if self.file == PIPE else self.file.name}"
        if self.delta is not None:
            return f"random walk, δ = {self.delta:g} %"
        kind = "Zipf with a daily wave" if self.zipf else "flash crowds"
        return "oversize partitions" if self.oversize else kind

    def capacity(self, text: str | None) -> float:
        """Return bytes/s of a consumer, once it is clear that there is one source of speeds."""
        sources = {
            "--stream": self.file is not None,
            "--random-walk": self.delta is not None,
            "--zipf": self.zipf,
            "--flash-crowd": self.flash_crowd,
            "--oversize": self.oversize,
        }
        given = [flag for flag, is_given in sources.items() if is_given]
        if len(given) != 1:
            what = f"{' and '.join(given)} are given" if given else "no stream is given"
            raise SettingError(
                f"{what}; say where the speeds come from: either --stream FILE or --random-walk δ "
                "or --zipf or --flash-crowd or --oversize"
            )
        if self.file is not None and text is None:
            raise SettingError('--stream needs the capacity of a consumer: --capacity "2.3 MB/s"')
        return _capacity(text or CAPACITY)

    def streams(self, capacity: float) -> list["Stream"]:
        """Return the streams, one a seed. Raises BadStream, SettingError."""
        if self.file is not None:
            return [_parsed(self.file)]
        import numpy as np  # noqa: PLC0415 - slow to load

        generator = self._generator(capacity)
        seeds = range(self.seed, self.seed + self.seeds)
        return [generator.stream(np.random.default_rng(seed)) for seed in seeds]

    def _generator(self, capacity: float) -> "Generator":
        from trimtab.assignor.analysis.streams.generators import (  # noqa: PLC0415 - numpy is slow to load
            FlashCrowd,
            Oversize,
            Walk,
            Zipf,
        )

        common = (self.partitions, self.ticks, capacity, self.clamped)
        if self.delta is not None:
            _refuse_all(self.shape or {})
            return Walk(self.delta, *common)
        kind = Zipf if self.zipf else FlashCrowd if self.flash_crowd else Oversize
        known = {f.name: f.type for f in fields(kind) if f.name not in COMMON}
        if kind is Oversize:
            known["delta"] = float
        shape: dict[str, Any] = {n: _number(n, v, known) for n, v in (self.shape or {}).items()}
        return kind(*common, **shape)


def _capacity(text: str) -> float:
    """Return bytes/s of a consumer. Raises SettingError."""
    from trimtab.assignor.analysis.streams.stream import FASTEST  # noqa: PLC0415 - numpy is slow to load

    rate = parse_rate(text, "--capacity")
    if rate <= 0:
        raise SettingError(f"--capacity {text!r} must be above 0")
    if not LEAST <= rate <= FASTEST:
        raise SettingError(f"--capacity {text!r} must be {LEAST:g} to {FASTEST:g} bytes/s")
    return rate


def read(file: Path) -> bytes:
    """Return what is in a stream's file. Raises SettingError."""
    if file == PIPE:
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingError(f"--stream: {file} cannot be read: {error.strerror}") from error


def _parsed(file: Path) -> "Stream":
    from trimtab.assignor.analysis.streams.stream import parse  # noqa: PLC0415 - numpy is slow to load

    stream = parse(read(file))
    if not stream.partitions:
        raise BadStream(f"--stream: {file} names no partition in any tick; nothing to simulate")
    return stream


def _refuse_all(shape: Mapping[str, Any]) -> None:
    if shape:
        raise SettingError(f"--shape {next(iter(shape))}: a random walk's only shape is its δ")


def _number(name: str, value: Any, known: Mapping[str, Any]) -> float | int:
    if name not in known:
        raise SettingError(f"--shape {name} is not known; there is: {', '.join(known)}")
    whole = known[name] is int
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise SettingError(f"--shape {name}={value!r} must be a {'whole ' * whole}number")
    if not math.isfinite(value):
        raise SettingError(f"--shape {name}={value!r} must be a finite number")
    return value
