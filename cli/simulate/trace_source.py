"""The streams of `--trace`: windows of real traffic, of both halves of its time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.resampling import (
    RateSamples,
    ResampledTrace,
    busiest_percentile,
    resample_rates,
    select_windows,
    split_halves,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.assignor.model import TopicPartition
from trimtab.cli.simulate.options import SimulateOptions, TraceHalf
from trimtab.cli.simulate.trace_files import (
    PACKAGED_TRACES,
    list_trace_names,
    read_csv_trace,
    read_packaged_trace,
)
from trimtab.common.errors import InvalidStreamError, SettingError
from trimtab.common.units import format_count

PACKAGED_SPEED: Final = 24.0  # a day of a packaged data set in an hour
WINDOW_TICKS: Final = 840  # a week at that speed and ticks of 30 s
KEYED_PARTITIONS: Final = 24
CAPACITY_PERCENTILE: Final = 99.9
"""Of the busiest partition in the first half: a consumer of 100 sustains it."""


@dataclass(frozen=True, slots=True)
class TraceStreams:
    """Windows of both halves, and lines that tell how they were made."""

    first: tuple[WriteRateStream, ...]
    second: tuple[WriteRateStream, ...]
    notes: tuple[str, ...]

    def of_half(self, half: TraceHalf) -> tuple[WriteRateStream, ...]:
        """Return the windows of a half."""
        return self.first if half is TraceHalf.FIRST else self.second


def is_packaged(trace: str) -> bool:
    """Return whether a trace is a packaged data set; else it is a file."""
    return trace in PACKAGED_TRACES


def is_keyed(trace: str) -> bool:
    """Return whether a trace's events have keys, so that any number of partitions is possible."""
    return is_packaged(trace) and PACKAGED_TRACES[trace].keyed


def check_trace(trace: str) -> None:
    """Raise SettingError unless the name is known, or a file is there."""
    if not is_packaged(trace) and not Path(trace).is_file():
        raise SettingError(
            f"--trace: {trace!r} is neither a file nor one of the data sets {', '.join(list_trace_names())}"
        )


def load_trace(options: SimulateOptions, setup: SimulationSetup) -> TraceStreams:
    """Return the streams of a trace. Raises SettingError, InvalidStreamError, MissingExtraError."""
    name = options.trace or ""
    packaged = is_packaged(name)
    speed = options.speed or (PACKAGED_SPEED if packaged else 1.0)
    samples = _read_samples(name, options)
    if not samples:
        raise InvalidStreamError(f"--trace: {name} has no sample; nothing to simulate")
    resampled = resample_rates(samples, setup.tick, speed)
    halves = split_halves(resampled.stream)
    notes = _describe_resampling(resampled, setup.tick, speed)
    if packaged:
        whole = busiest_percentile(halves[0], CAPACITY_PERCENTILE)
        halves = (_scale(halves[0], 100 / whole), _scale(halves[1], 100 / whole))
        notes = (*notes, _describe_scale(whole))
    ticks = options.ticks if "ticks" in options.given else WINDOW_TICKS
    first, second = (select_windows(half, options.windows, ticks) for half in halves)
    return TraceStreams(first, second, notes)


def load_windows(trace: str, windows: int, ticks: int, setup: SimulationSetup) -> TraceStreams:
    """Return `windows` windows of `ticks` ticks of each half of a trace, as `--ticks` and `--windows` do.

    Raises InvalidStreamError if a half is shorter, SettingError and MissingExtraError.
    """
    given = frozenset({"ticks"})
    return load_trace(SimulateOptions(trace=trace, windows=windows, ticks=ticks, given=given), setup)


def _read_samples(name: str, options: SimulateOptions) -> Mapping[TopicPartition, RateSamples]:
    if not is_packaged(name):
        return read_csv_trace(Path(name))
    partitions = options.partitions if "partitions" in options.given else KEYED_PARTITIONS
    return read_packaged_trace(name, partitions)


def describe_windows(streams: Sequence[WriteRateStream], half: TraceHalf, *, tuned: bool) -> str:
    """Return which half the figures are of, as a sentence."""
    count = f"{format_count(len(streams), 'window')} of {format_count(len(streams[0].rates), 'tick')}"
    begin = f"Figures of the {half} half of the time, {count}"
    return f"{begin}; the setting was chosen on the first half." if tuned else f"{begin}."


def _describe_resampling(trace: ResampledTrace, tick: float, speed: float) -> tuple[str, ...]:
    partitions = format_count(len(trace.stream.partitions), "partition")
    resampled = (
        f"{partitions}, resampled to ticks of {tick:g} s, {tick * speed:g} s of "
        "the trace in each; rates change linearly between samples."
    )
    gaps = (
        f"Gaps: {trace.bridged_gaps} of up to {format_span(trace.max_gap)} are bridged; partitions are "
        f"absent in longer ones, {trace.absent_share:.1%} of the time."
    )
    return resampled, gaps


def format_span(seconds: float) -> str:
    """Return a span of the trace in hours, minutes or seconds."""
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"


def _describe_scale(whole: float) -> str:
    return (
        f"Rate 100 is {whole:.0f} events an hour: in the first half the busiest partition has at most that "
        f"{CAPACITY_PERCENTILE:g} % of the time."
    )


def _scale(stream: WriteRateStream, factor: float) -> WriteRateStream:
    return WriteRateStream(stream.partitions, stream.rates * factor)
