"""What the seasonal forecast saves: late traffic and consumer-hours of the closed loop with it, and without.

`trimtab simulate --live --season` with `steady`, the sidecar's default settings and a headroom of .9, on a
week of each packaged trace's second half, a daily wave and random walks. The first two seasons have no
forecast; so late traffic is also told from the third on. The aims: at most half of the late traffic, for no
more consumer-hours; on walks nothing is worse by more than 1 %.

    python -m benchmarks.simulations.bench_forecast    # a small part; make tables-forecast: the docs' table
"""

import argparse
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from benchmarks.harness import result
from trimtab.assignor.analysis.simulation import SimulationRun, SimulationSetup
from trimtab.assignor.analysis.streams.generators import RandomWalk, ZipfLoad
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.simulate.trace_files import list_trace_names
from trimtab.cli.simulate.trace_source import load_windows
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.sidecar.simulation.live_settings import LiveSettings

SETUP = SimulationSetup(headroom=0.9)
HEURISTIC = "steady"
TRACE_DAY = 120  # ticks of 30 s, at 24-fold speed
WAVE_DAY = 60
SEASONS_WITHOUT = 2


class ForecastInput(NamedTuple):
    """A stream and the length of its season in ticks."""

    stream: WriteRateStream
    season: int


class ForecastFigures(NamedTuple):
    """Figures of a run."""

    consumer_hours: float
    mean_r: float
    late_percent: float
    late_percent_from_third: float


class Comparison(NamedTuple):
    """A stream's figures without the forecast, and with it."""

    without: ForecastFigures
    with_forecast: ForecastFigures


def main() -> None:
    """Simulate each stream twice and print the table."""
    arguments = parse_arguments()
    found: dict[str, Comparison] = {}
    for title, given in iterate_streams(arguments):
        found[title] = Comparison(
            simulate(given, None, arguments.jobs), simulate(given, given.season, arguments.jobs)
        )
        print(f"{title}: {found[title]}", flush=True)
    print()
    print("\n".join(format_table(found)))
    result({title: {n: f._asdict() for n, f in one._asdict().items()} for title, one in found.items()})


def parse_arguments() -> argparse.Namespace:
    """Return the arguments; the defaults are a small part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--traces", nargs="*", choices=list_trace_names(), default=[])
    parser.add_argument("--days", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=60, help="Partitions of generated streams.")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--jobs", type=int)
    arguments = parser.parse_args()
    if arguments.days <= SEASONS_WITHOUT:
        parser.error(f"--days: {SEASONS_WITHOUT} seasons have no forecast; give more")
    return arguments


def iterate_streams(arguments: argparse.Namespace) -> Iterator[tuple[str, ForecastInput]]:
    """Yield the streams by title: traces, a daily wave and random walks."""
    for trace in arguments.traces:
        streams = load_windows(trace, 1, arguments.days * TRACE_DAY, SETUP)
        yield trace, ForecastInput(streams.second[0], TRACE_DAY)
    ticks = arguments.days * WAVE_DAY
    walks = {f"walk δ={delta}": RandomWalk(delta, arguments.partitions, ticks) for delta in (5, 15, 25)}
    generators = {"daily wave": ZipfLoad(arguments.partitions, ticks, day=WAVE_DAY), **walks}
    for title, generator in generators.items():
        yield title, ForecastInput(generator.generate_stream(np.random.default_rng(arguments.seed)), WAVE_DAY)


def simulate(given: ForecastInput, season: int | None, cores: int | None) -> ForecastFigures:
    """Return the figures with a season of this many ticks, or without one."""
    live = LiveSettings(season=None if season is None else season * SETUP.tick)
    jobs = [SimulationJob(0, HEURISTIC, SETUP.headroom)]
    (run,) = run_jobs(jobs, [given.stream], SETUP, cores, lambda _: None, live=live).values()
    return ForecastFigures(
        float(run.consumers.sum()) * SETUP.tick / 3600,
        float(run.r_score.mean()),
        measure_late(run, 0),
        measure_late(run, SEASONS_WITHOUT * given.season),
    )


def measure_late(run: SimulationRun, begin: int) -> float:
    """Return the late traffic of the ticks from this one on, in percent of what arrived in them."""
    return 100 * float(run.late[begin:].sum()) / float(run.arrived[begin:].sum())


def format_table(found: Mapping[str, Comparison]) -> Iterator[str]:
    """Yield the lines of a Markdown table; behind the equals sign stands the share."""
    yield "| | consumer-hours | mean R | late % | late %, from the third season on |"
    yield "|---" * 5 + "|"
    for title, one in found.items():
        cells = [
            format_change(one, name, digits)
            for name, digits in zip(ForecastFigures._fields, (2, 3, 2, 2), strict=True)
        ]
        yield f"| {title} | {' | '.join(cells)} |"


def format_change(one: Comparison, name: str, digits: int) -> str:
    """Return a figure without the forecast, and with it, and its share unless nothing was late."""
    before, after = getattr(one.without, name), getattr(one.with_forecast, name)
    share = f" = {after / before:.3f}" if before else ""
    return f"{before:.{digits}f} \N{RIGHTWARDS ARROW} {after:.{digits}f}{share}"


if __name__ == "__main__":
    main()
