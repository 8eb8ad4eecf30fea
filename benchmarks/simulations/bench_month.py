"""A simulated month of traffic under Trimtab's sidecar and under lag-threshold autoscalers.

36 partitions with Zipf's law and a daily wave, read by 1 to 24 consumers of 1 MB/s. A broker is
replaced, offsets expire, a record is poisoned and a topic is deleted (`month_world`). The sidecar is
the real control loop, one iteration per tick, with windows of two ticks (`month_autoscalers`); KEDA's Kafka
scaler with the HPA also runs once per tick, with thresholds of 2, 5 and 30 seconds of a consumer's
capacity, that of 5 also with `excludePersistentLag`. The consumers are the same for all autoscalers and join
one tick after their start.

Traffic is late if it arrives while its partition's oldest unread byte has waited for more than 10 s;
`late_of_faults_percent` is its part in partitions that were unreadable at the time. For each fault
the table has the minimum and maximum number of consumers, and the number that the write rate needs at
headroom 0.9.

    PYTHONPATH=tests python -m benchmarks.simulations.bench_month [--days 30] [--plot FILE]   # 15 min
"""

import argparse
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from benchmarks.harness import result
from benchmarks.simulations.month_autoscalers import AutoscalerResults, KedaAutoscaler, TrimtabAutoscaler
from benchmarks.simulations.month_world import Fault, Month, World, WorldFigures, generate_month
from trimtab.assignor.analysis.simulation import SimulationSetup

if TYPE_CHECKING:
    from multiprocessing.queues import SimpleQueue

CAPACITY, HEADROOM = 1e6, 0.9
HOUR = 3600.0
STRIDE, SHOWN = 50, 0.5  # ticks between progress reports of a run; seconds between updates of the display
THRESHOLDS = {"keda_2s": 2.0, "keda_5s": 5.0, "keda_5s_patient": 5.0, "keda_30s": 30.0}
NAMES = ("trimtab", *THRESHOLDS)

_progress_queue: "SimpleQueue[tuple[str, int]]"


class Scaling(Protocol):
    """Interface of an autoscaler that scales the consumers."""

    results: AutoscalerResults

    def turn(self) -> None: ...


@dataclass(frozen=True)
class Run:
    """One autoscaler's month."""

    tick_figures: WorldFigures
    tick: float
    results: AutoscalerResults

    def figures(self) -> dict[str, float]:
        figures = self.tick_figures
        arrived, hours = sum(figures.arrived), self.tick / HOUR
        return {
            "consumer_hours": round(sum(figures.replicas) * hours, 1),
            "late_percent": round(100 * sum(figures.late) / arrived, 3),
            "late_of_faults_percent": round(100 * sum(figures.late_of_faults) / arrived, 3),
            "scalings": self.results.scalings,
            "rebalances": sum(figures.rebalanced[1:]),
            "partitions_moved": figures.moved,
            "stopped_while_owning": figures.cut_off,
        }

    def around(self, fault: Fault) -> dict[str, Any]:
        counts = self.tick_figures.replicas[fault.begin : fault.watched]
        by_tick = [self.results.reasons.get(tick, ()) for tick in range(fault.begin, fault.end)]
        named = sorted(
            {text.split(": ")[0] for reasons in by_tick for text in reasons if _parse_odd_number(text)}
        )
        remarks = {"told": named[:3]} if named else {}
        return {"least": min(counts), "most": max(counts), **remarks}


def _parse_odd_number(text: str) -> bool:
    return any(word in text for word in ("seems stuck", "unknown", "not be described"))


def create_autoscaler(name: str, world: World) -> Scaling:
    if name == "trimtab":
        return TrimtabAutoscaler(world)
    return KedaAutoscaler(world, THRESHOLDS[name], patient=name.endswith("patient"))


def run_autoscaler(name: str, written: Month, setup: SimulationSetup) -> Run:
    """Run one autoscaler; reports its progress to the queue of its process."""
    world = World(written, setup)
    scaling = create_autoscaler(name, world)
    for tick in range(len(written.stream.rates) - 1):
        scaling.turn()
        if tick % STRIDE == 0:
            _progress_queue.put((name, tick))
    return Run(world.tick_figures, setup.tick, scaling.results)


def run_all(autoscalers: Sequence[str], written: Month, setup: SimulationSetup) -> dict[str, Run]:
    """Run all autoscalers, one per core at a time, and show their progress."""
    reports: SimpleQueue[tuple[str, int]] = get_context().SimpleQueue()
    with (
        Progress(console=Console(stderr=True)) as progress,
        ProcessPoolExecutor(initializer=_set_queue, initargs=(reports,)) as pool,
    ):
        ticks = len(written.stream.rates) - 1
        bars = {name: progress.add_task(name, total=ticks) for name in autoscalers}
        futures = {name: pool.submit(run_autoscaler, name, written, setup) for name in autoscalers}
        while not all(future.done() for future in futures.values()):
            wait(futures.values(), timeout=SHOWN)
            while not reports.empty():
                name, tick = reports.get()
                progress.update(bars[name], completed=tick)
        for bar in bars.values():
            progress.update(bar, completed=ticks)
        return {name: future.result() for name, future in futures.items()}


def _set_queue(queue: "SimpleQueue[tuple[str, int]]") -> None:
    global _progress_queue  # noqa: PLW0603 - a process of the pool has one
    _progress_queue = queue


def compare_around_fault(fault: Fault, written: Month, runs: Mapping[str, Run]) -> dict[str, Any]:
    need = written.need[fault.begin : fault.watched]
    counts: dict[str, Any] = {"needed": {"least": int(need.min()), "most": int(need.max())}}
    return counts | {name: of.around(fault) for name, of in runs.items()}


def print_runs(runs: Mapping[str, Run], faults: Mapping[str, Any]) -> None:
    console = Console(width=130)
    columns = list(next(iter(runs.values())).figures())
    table = Table("", *(c.replace("_", " ") for c in columns))
    for name, of in runs.items():
        table.add_row(name, *(f"{v:,}" for v in of.figures().values()))
    console.print(table)
    table = Table("least to most consumers", "needed", *runs)
    for fault, counts in faults.items():
        table.add_row(fault, *(f"{of['least']} to {of['most']}" for of in counts.values()))
    console.print(table)
    for fault, counts in faults.items():
        for text in counts["trimtab"].get("told", ()):
            console.print(f"{fault}: {text}", style="dim")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--days", type=float, default=1.0)
    parser.add_argument("--tick", type=float, default=60.0, help="seconds per tick")
    parser.add_argument("--partitions", type=int, default=36)
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    setup = SimulationSetup(CAPACITY, HEADROOM, tick=options.tick)
    written = generate_month(options.days, options.partitions, setup, options.seed)
    runs = run_all(options.only, written, setup)
    faults = {str(f.kind): compare_around_fault(f, written, runs) for f in written.faults.values()}
    print_runs(runs, faults)
    if options.plot:
        from benchmarks.simulations.month_plot import draw_month  # noqa: PLC0415 - matplotlib takes a second

        counts = {n: np.array(r.tick_figures.replicas, dtype=np.int32) for n, r in runs.items()}
        draw_month(options.plot, written, counts, options.tick)
    needed = float(written.need.sum()) * options.tick / HOUR
    figures: dict[str, Any] = {name: of.figures() for name, of in runs.items()}
    result(
        {
            "days": options.days,
            "needed_consumer_hours": round(needed, 1),
            **figures,
            "consumers_around": faults,
        }
    )


if __name__ == "__main__":
    main()
