"""Source of a simulation's streams: a file, or a generator with seeds."""

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trimtab.common.errors import InvalidStreamError, SettingError
from trimtab.common.units import parse_rate

if TYPE_CHECKING:
    from trimtab.assignor.analysis.streams.generators import StreamGenerator
    from trimtab.assignor.analysis.streams.stream import WriteRateStream

GENERATED_STREAM_CAPACITY: Final = "100"
"""Capacity of a consumer for generated streams: rates are percentages of it."""

MIN_CAPACITY_BYTES_PER_S: Final = 1e-3
"""Least accepted capacity in bytes/s."""

STDIN_PATH: Final = Path("-")
"""File name of standard input."""

COMMON_GENERATOR_FIELDS: Final = frozenset({"partitions", "ticks", "capacity", "clamped", "delta"})
"""Generator fields with their own option; δ of an oversize walk is a shape."""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """Stream options of the command line; exactly one of the first five is set."""

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
        """Return a readable description."""
        if self.file is not None:
            return f"stream {'from standard input' if self.file == STDIN_PATH else self.file.name}"
        if self.delta is not None:
            return f"random walk, δ = {self.delta:g} %"
        kind = "Zipf with a daily wave" if self.zipf else "flash crowds"
        return "oversize partitions" if self.oversize else kind

    def parse_capacity(self, text: str | None) -> float:
        """Return the capacity in bytes/s; checks that there is exactly one source."""
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
        return _parse_capacity(text or GENERATED_STREAM_CAPACITY)

    def load_streams(self, capacity: float) -> list["WriteRateStream"]:
        """Return the streams, one per seed. Raises InvalidStreamError, SettingError."""
        if self.file is not None:
            return [_load_stream(self.file)]
        import numpy as np  # noqa: PLC0415 - slow to load

        generator = self._create_generator(capacity)
        seeds = range(self.seed, self.seed + self.seeds)
        return [generator.generate_stream(np.random.default_rng(seed)) for seed in seeds]

    def _create_generator(self, capacity: float) -> "StreamGenerator":
        from trimtab.assignor.analysis.streams.generators import (  # noqa: PLC0415 - numpy is slow to load
            FlashCrowd,
            OversizeLoad,
            RandomWalk,
            ZipfLoad,
        )

        common = (self.partitions, self.ticks, capacity, self.clamped)
        if self.delta is not None:
            _reject_shape(self.shape or {})
            return RandomWalk(self.delta, *common)
        kind = ZipfLoad if self.zipf else FlashCrowd if self.flash_crowd else OversizeLoad
        known = {f.name: f.type for f in fields(kind) if f.name not in COMMON_GENERATOR_FIELDS}
        if kind is OversizeLoad:
            known["delta"] = float
        shape: dict[str, Any] = {n: _parse_shape_value(n, v, known) for n, v in (self.shape or {}).items()}
        return kind(*common, **shape)


def _parse_capacity(text: str) -> float:
    """Return the capacity in bytes/s. Raises SettingError."""
    from trimtab.assignor.analysis.streams.stream import MAX_BYTES_PER_S  # noqa: PLC0415 - numpy is slow to load

    rate = parse_rate(text, "--capacity")
    if rate <= 0:
        raise SettingError(f"--capacity {text!r} must be above 0")
    if not MIN_CAPACITY_BYTES_PER_S <= rate <= MAX_BYTES_PER_S:
        raise SettingError(
            f"--capacity {text!r} must be {MIN_CAPACITY_BYTES_PER_S:g} to {MAX_BYTES_PER_S:g} bytes/s"
        )
    return rate


def read_stream_file(file: Path) -> bytes:
    """Return the content of a stream file. Raises SettingError."""
    if file == STDIN_PATH:
        return sys.stdin.buffer.read()
    try:
        return file.read_bytes()
    except OSError as error:
        raise SettingError(f"--stream: {file} cannot be read: {error.strerror}") from error


def _load_stream(file: Path) -> "WriteRateStream":
    from trimtab.assignor.analysis.streams.stream import parse_stream  # noqa: PLC0415 - numpy is slow to load

    stream = parse_stream(read_stream_file(file))
    if not stream.partitions:
        raise InvalidStreamError(f"--stream: {file} names no partition in any tick; nothing to simulate")
    return stream


def _reject_shape(shape: Mapping[str, Any]) -> None:
    if shape:
        raise SettingError(f"--shape {next(iter(shape))}: a random walk's only shape is its δ")


def _parse_shape_value(name: str, value: Any, known: Mapping[str, Any]) -> float | int:
    if name not in known:
        raise SettingError(f"--shape {name} is not known; there is: {', '.join(known)}")
    whole = known[name] is int
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise SettingError(f"--shape {name}={value!r} must be a {'whole ' * whole}number")
    if not math.isfinite(value):
        raise SettingError(f"--shape {name}={value!r} must be a finite number")
    return value
