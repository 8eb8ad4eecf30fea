"""The streams of a simulation: read from a file, or generated from seeds."""

import math
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np

from trimtab.assignor.analysis.streams.generators import (
    FlashCrowd,
    OversizeLoad,
    RandomWalk,
    StreamGenerator,
    ZipfLoad,
)
from trimtab.assignor.analysis.streams.stream import MAX_BYTES_PER_S, WriteRateStream, parse_stream
from trimtab.cli.setting_pairs import parse_pairs
from trimtab.cli.simulate.options import InitialRate, SimulateOptions
from trimtab.cli.simulate.trace_source import is_packaged
from trimtab.common.errors import InvalidStreamError, SettingError
from trimtab.common.units import parse_rate

GENERATED_STREAM_CAPACITY: Final = "100"  # so that generated rates are percentages of a consumer
MIN_CAPACITY_BYTES_PER_S: Final = 1e-3
STDIN_PATH: Final = Path("-")
COMMON_GENERATOR_FIELDS: Final = frozenset({"partitions", "ticks", "capacity", "clamped", "delta"})
"""Generator fields that are no part of `--shape`."""


def describe_source(options: SimulateOptions) -> str:
    """Return the title of the streams."""
    if options.stream is not None:
        return f"stream {'from standard input' if options.stream == STDIN_PATH else options.stream.name}"
    if options.trace is not None:
        return f"trace {Path(options.trace).name}"
    if options.random_walk is not None:
        start = "" if options.initial is InitialRate.RANDOM else f" from {options.initial} %"
        return f"random walk, δ = {options.random_walk:g} %{start}"
    if options.oversize:
        return "oversize partitions"
    return "Zipf with a daily wave" if options.zipf else "flash crowds"


def parse_capacity(options: SimulateOptions) -> float:
    """Return the capacity in bytes/s. Raises SettingError, also unless there is exactly one source."""
    sources = {
        "--stream": options.stream is not None,
        "--trace": options.trace is not None,
        "--random-walk": options.random_walk is not None,
        "--zipf": options.zipf,
        "--flash-crowd": options.flash_crowd,
        "--oversize": options.oversize,
    }
    given = [flag for flag, is_given in sources.items() if is_given]
    if len(given) != 1:
        problem = f"{' and '.join(given)} are given" if given else "no stream is given"
        raise SettingError(
            f"{problem}; choose one source: --stream FILE, --trace NAME, --random-walk δ, --zipf, "
            "--flash-crowd or --oversize"
        )
    if options.capacity is None and (flag := _measured_source(options)):
        raise SettingError(f'{flag} needs the capacity of a consumer: --capacity "2.3 MB/s"')
    text = options.capacity or GENERATED_STREAM_CAPACITY
    rate = parse_rate(text, "--capacity")
    if rate <= 0:
        raise SettingError(f"--capacity {text!r} must be above 0")
    if not MIN_CAPACITY_BYTES_PER_S <= rate <= MAX_BYTES_PER_S:
        raise SettingError(
            f"--capacity {text!r} must be {MIN_CAPACITY_BYTES_PER_S:g} to {MAX_BYTES_PER_S:g} bytes/s"
        )
    return rate


def _measured_source(options: SimulateOptions) -> str | None:
    """Return the option that gives rates in bytes/s; None if they are percentages of a consumer."""
    if options.stream is not None:
        return "--stream"
    return "--trace" if options.trace is not None and not is_packaged(options.trace) else None


def load_streams(options: SimulateOptions, capacity: float) -> list[WriteRateStream]:
    """Return the streams, one per seed. Raises InvalidStreamError, SettingError."""
    if options.stream is not None:
        return [_load_stream(options.stream)]
    generator = _create_generator(options, capacity)
    seeds = range(options.seed, options.seed + options.seeds)
    return [generator.generate_stream(np.random.default_rng(seed)) for seed in seeds]


def _create_generator(options: SimulateOptions, capacity: float) -> StreamGenerator:
    given = parse_pairs("--shape", options.shape)
    common = (options.partitions, options.ticks, capacity, not options.unclamped)
    if options.random_walk is not None:
        if given:
            raise SettingError(f"--shape {next(iter(given))}: a random walk's only shape is its δ")
        initial = None if options.initial is InitialRate.RANDOM else float(options.initial)
        return RandomWalk(options.random_walk, *common, initial=initial)
    kind = ZipfLoad if options.zipf else FlashCrowd if options.flash_crowd else OversizeLoad
    known = {f.name: f.type for f in fields(kind) if f.name not in COMMON_GENERATOR_FIELDS}
    if kind is OversizeLoad:
        known["delta"] = float  # only a random walk has an option for its δ
    shape: dict[str, Any] = {name: _parse_shape(name, value, known) for name, value in given.items()}
    return kind(*common, **shape)


def _load_stream(file: Path) -> WriteRateStream:
    try:
        content = sys.stdin.buffer.read() if file == STDIN_PATH else file.read_bytes()
    except OSError as error:
        raise SettingError(f"--stream: {file} cannot be read: {error.strerror}") from error
    stream = parse_stream(content)
    if not stream.partitions:
        raise InvalidStreamError(f"--stream: {file} names no partition in any tick; nothing to simulate")
    return stream


def _parse_shape(name: str, value: Any, known: Mapping[str, Any]) -> float | int:
    if name not in known:
        raise SettingError(f"--shape {name} is not known; there is: {', '.join(known)}")
    whole = known[name] is int
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        raise SettingError(f"--shape {name}={value!r} must be a {'whole ' * whole}number")
    if not math.isfinite(value):  # YAML reads .nan and .inf
        raise SettingError(f"--shape {name}={value!r} must be a finite number")
    return value
