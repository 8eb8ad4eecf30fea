"""The streams of `--trace`: windows of real traffic, of both halves of its time."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trimtab.assignor.analysis.streams.resampling import (
    ResampledTrace,
    resample_rates,
    select_windows,
    split_halves,
)
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.simulate.options import SimulateOptions, TraceHalf
from trimtab.cli.simulate.trace_files import read_csv_trace
from trimtab.common.errors import InvalidStreamError, SettingError
from trimtab.common.units import format_count

WINDOW_TICKS: Final = 840  # seven hours of ticks of 30 s


@dataclass(frozen=True, slots=True)
class TraceStreams:
    """Windows of both halves, and lines that tell how they were made."""

    first: tuple[WriteRateStream, ...]
    second: tuple[WriteRateStream, ...]
    notes: tuple[str, ...]

    def of_half(self, half: TraceHalf) -> tuple[WriteRateStream, ...]:
        """Return the windows of a half."""
        return self.first if half is TraceHalf.FIRST else self.second


def check_trace(trace: Path) -> None:
    """Raise SettingError unless the file is there."""
    if not trace.is_file():
        raise SettingError(f"--trace: {trace} is no file")


def load_trace(file: Path, options: SimulateOptions, tick: float) -> TraceStreams:
    """Return the streams of a trace. Raises SettingError, InvalidStreamError."""
    samples = read_csv_trace(file)
    if not samples:
        raise InvalidStreamError(f"--trace: {file} has no sample; nothing to simulate")
    resampled = resample_rates(samples, tick, options.speed)
    ticks = options.ticks if "ticks" in options.given else WINDOW_TICKS
    first, second = (select_windows(half, options.windows, ticks) for half in split_halves(resampled.stream))
    return TraceStreams(first, second, _describe_resampling(resampled, tick, options.speed))


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
