"""The closed loop on real traffic: what heuristics cost, move and leave late on the packaged traces.

`trimtab simulate --trace NAME --live` with the sidecar's default settings. For each heuristic the headroom
is chosen on the first half of the trace's time: the cheapest that keeps late traffic within 1 %, or the one
with the least late traffic. The figures are those of the second half, at that headroom. KEDA is not tuned.
A cell has consumer-hours, mean R, moves an hour, and late traffic in percent.

    python -m benchmarks.simulations.bench_traces  # a small part; make tables-traces: four days of each half
"""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence

from benchmarks.harness import result
from trimtab.assignor.analysis.simulation import (
    RunSummary,
    SettingCandidate,
    SimulationSetup,
    average_summaries,
    parse_contender,
    recommend_setting,
    summarize_runs,
)
from trimtab.assignor.analysis.streams.replay import lower_bounds
from trimtab.assignor.analysis.streams.stream import WriteRateStream
from trimtab.cli.simulate.run import open_progress
from trimtab.cli.simulate.trace_files import list_trace_names
from trimtab.cli.simulate.trace_source import load_windows
from trimtab.cli.simulate.worker_pool import SimulationJob, run_jobs
from trimtab.sidecar.simulation.live_settings import LiveSettings

HEURISTICS = ("steady:tight", "steady:balanced", "steady:calm", "mwf", "mbf", "mbfp", "bfd", "keda:sticky")
HEADROOMS = (1.0, 0.9, 0.8, 0.7)
SETUP = SimulationSetup(headroom=0.9)
LATE_LIMIT_PERCENT = 1.0

Summaries = Mapping[tuple[str, float], RunSummary]
"""Mean figures over the windows by heuristic and headroom."""


def main() -> None:
    """Tune and judge on each trace; print a table as soon as its runs are done."""
    arguments = parse_arguments()
    found: dict[str, object] = {}
    for trace in arguments.trace:
        streams = load_windows(trace, arguments.windows, arguments.ticks, SETUP)
        tuned = simulate_streams(f"{trace}, tuning", list_candidates(arguments.heuristic), streams.first)
        chosen = choose_headrooms(tuned)
        figures = simulate_streams(f"{trace}, figures", [*chosen.items()], streams.second)
        print(f"\n{trace}: {' '.join(streams.notes)}\n")
        print("\n".join(format_table(figures)), flush=True)
        found[trace] = {
            name: {"headroom": headroom, **round_figures(summary)}
            for (name, headroom), summary in figures.items()
        }
    result(found)


def parse_arguments() -> argparse.Namespace:
    """Return the arguments; the defaults are a small part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", nargs="+", choices=list_trace_names(), default=list_trace_names())
    parser.add_argument("--windows", type=int, default=1)
    parser.add_argument("--ticks", type=int, default=60)
    parser.add_argument("--heuristic", nargs="+", default=HEURISTICS)
    return parser.parse_args()


def list_candidates(heuristics: Iterable[str]) -> list[tuple[str, float]]:
    """Return the settings to try; a lag autoscaler has no headroom."""
    return [(h, at) for h in heuristics for at in (SETUP.headroom, *HEADROOMS) if is_tuned(h, at)]


def is_tuned(heuristic: str, headroom: float) -> bool:
    """Return whether a heuristic is tried at this headroom."""
    return headroom == SETUP.headroom or parse_contender(heuristic).is_trimtab_setting


def simulate_streams(
    title: str, settings: Sequence[tuple[str, float]], streams: Sequence[WriteRateStream]
) -> dict[tuple[str, float], RunSummary]:
    """Return the mean figures of each setting."""
    jobs = [SimulationJob(n, *one) for one in dict.fromkeys(settings) for n in range(len(streams))]
    with open_progress() as progress:
        task = progress.add_task(title, total=len(jobs))
        runs = run_jobs(jobs, streams, SETUP, None, lambda _: progress.advance(task), live=LiveSettings())
    bounds = [lower_bounds(stream, SETUP.capacity) for stream in streams]
    summaries: dict[tuple[str, float], list[RunSummary]] = {}
    for job, run in runs.items():
        summary = summarize_runs({job.name: run}, SETUP, bounds[job.stream])[job.name]
        summaries.setdefault((job.name, job.headroom), []).append(summary)
    return {setting: average_summaries(each) for setting, each in summaries.items()}


def choose_headrooms(tuned: Summaries) -> dict[str, float]:
    """Return the headroom of each heuristic."""
    chosen: dict[str, float] = {}
    for name in dict.fromkeys(name for name, _ in tuned):
        candidates = [SettingCandidate(n, at, summary) for (n, at), summary in tuned.items() if n == name]
        best = recommend_setting(candidates, LATE_LIMIT_PERCENT)
        assert best is not None
        chosen[name] = best.chosen.headroom
    return chosen


def format_table(figures: Summaries) -> Iterator[str]:
    """Yield the lines of a Markdown table."""
    yield "| | headroom | consumer-hours | mean R | moves /h | rebalances /h | late % | over headroom |"
    yield "|---" * 8 + "|"
    for (name, headroom), s in figures.items():
        at = f"{headroom:g}" if is_tuned(name, 0) else "\N{EN DASH}"
        yield (
            f"| `{name}` | {at} | {s.consumer_hours:.1f} | {s.mean_r:.3f} | {s.moves_per_hour:.0f} | "
            f"{s.rebalances_per_hour:.1f} | {s.late_percent:.2f} | {s.over_headroom:.0f} |"
        )


def round_figures(summary: RunSummary) -> dict[str, float | None]:
    """Return the figures, rounded."""
    return {name: None if v is None else round(v, 4) for name, v in summary.to_dict().items()}


if __name__ == "__main__":
    main()
