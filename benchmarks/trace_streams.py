"""The packaged traces of real traffic, as streams of write rates."""

from collections.abc import Iterator, Sequence

from trimtab.assignor.analysis.simulation import SimulationSetup
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.simulate.options import SimulateOptions
from trimtab.cli.simulate.trace_files import list_trace_names
from trimtab.cli.simulate.trace_source import load_trace


def iterate_traces(
    ticks: int, windows: int, setup: SimulationSetup
) -> Iterator[tuple[str, Sequence[WriteRateStream]]]:
    """Yield each trace's name and `windows` streams of `ticks` ticks of its second half.

    Nothing was tuned on that half.
    """
    for name in list_trace_names():
        options = SimulateOptions(trace=name, windows=windows, ticks=ticks, given=frozenset({"ticks"}))
        yield name, load_trace(options, setup).second
