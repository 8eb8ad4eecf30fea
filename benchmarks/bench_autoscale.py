"""Head to head: the same stream, the same pods, steered by Trimtab or by KEDA's kafka scaler.

A skewed load with a wave and a flash crowd (`autoscale_load`) is written to the embedded broker,
once for each side, one after the other. Its consumers are processes of one throttled capacity, as
pods of a Deployment on a real API server with a real controller manager; they go by the same
heartbeat, session timeout and interval of commits on both sides.

- trimtab: our consumer, and the sidecar with target `kubernetes` and its default heuristic.
- keda: confluent-kafka's consumer with cooperative-sticky, KEDA 2.21 with its `kafka` scaler, and
  the HPA. A pod that is told to end commits and leaves.

Time is compressed. The stream stands for one `--factor` times as long (240 s x 15: one hour), so
the times by which either side follows the load are its defaults divided by that factor: how often
the HPA looks (15 s) and its window for scaling down (300 s), the sidecar's interval (10 s), its
window for scaling in (120 s), and so on (`autoscale_steer`). Starting a process, joining and
handing over are not compressed: they take a minute of that hour, as images and JVMs do elsewhere.

KEDA wants lag / lagThreshold replicas, so a group that needs n consumers rests at a lag of n
thresholds: the threshold is how late its records are to be, in what one consumer handles in that
time. KEDA's documentation gives no rule (the default is 10 records, which at any lag asks for the
most that there may be). Tried are what one consumer handles in KEDA's polling interval (30 s) and
half of it. Held against us is the run in which KEDA comes nearest to our figures, by the aims:
consumer-hours at most 0.8 times KEDA's and at most half its late traffic.

Late is a record that was handled later than `--late` seconds after it was produced (4 s: one
minute of that hour). Consumer-hours are lifetimes of processes. `within_one` is the share of the
time in which so many processes run as the write speeds need at the least, packed into whole
capacities, or one more, or one fewer. `burst` is the most that was written in two seconds, in parts
of what was to be: on a busy machine the producer may stop for a moment and catch up, for both.

Needs the programs of `tests/cluster`, and PYTHONPATH=tests: `make bench-autoscale` has both.
"""

import json
import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager
from multiprocessing import get_context
from pathlib import Path
from time import sleep, time
from typing import Any

import autoscale_figures as figures
import autoscale_plot
import harness
import numpy as np
from autoscale_figures import Figures, Seen
from autoscale_load import load, needed
from autoscale_rig import Rig, Watch, pods, rig
from autoscale_steer import COMMITS, HPA_LOOKS, HPA_SCALE_IN, POLLING, SCALE_IN, Times, keda, trimtab
from rich.console import Console
from rich.table import Table
from stream import TICK, Speeds, produce

from cluster.binaries import KEDAS, NAMES, there
from cluster.build import keda_source
from cluster.generations import generations

HOST = Path(__file__).parent / "autoscale_host.py"
AT_FIRST = 2
"""Replicas before anybody steers."""
SETTLE = 16.0
"""Seconds of the first load before what is measured: windows fill, the first count is found."""
TAIL = 4.0
"""Seconds after the last record before the age of what was not handled counts."""
REMEDY = (
    "`make bench-autoscale` builds the programs once into a cache (half an hour; it needs Go), or "
    "KUBEBUILDER_ASSETS names their folder"
)


def main() -> None:
    given = _arguments()
    missing = _missing()
    if missing:
        print(f"not run, missing: {', '.join(missing)}. {REMEDY}", file=sys.stderr)
        harness.result({"not_run": missing})
        return
    speeds = load(given.seconds, given.partitions, given.capacity, given.seed)
    thresholds = given.thresholds or _thresholds(given)
    with (
        tempfile.TemporaryDirectory() as folder,
        harness.broker(given.bootstrap) as bootstrap,
        rig(Path(folder), HPA_LOOKS / given.factor) as on,
    ):
        bench = Bench(on, bootstrap, speeds, given)
        ours = bench.run()
        theirs = [bench.run(threshold) for threshold in thresholds]
    best = figures.hardest(ours, theirs)
    show([ours, *theirs], given)
    if given.plot:
        consumers = (speeds.sum(axis=1) / given.capacity).tolist()
        autoscale_plot.draw(given.plot, {"trimtab": ours, "keda": best}, consumers, given.late)
        print(f"plot: {given.plot}")
    harness.result(_result(ours, best, theirs, given))


def _missing() -> list[str]:
    """Return what the rig needs and does not find; nothing is built here."""
    missing = [name for name in (*NAMES, *KEDAS) if there(name) is None]
    try:
        keda_source()
    except (OSError, RuntimeError) as error:
        missing.append(f"the Go module of KEDA ({error})")
    return missing


def _arguments() -> Namespace:
    arguments = harness.parser(__doc__ or "")
    arguments.add_argument("--seconds", type=float, default=60, help="measured, of each run")
    arguments.add_argument("--factor", type=float, default=15, help="by which time is compressed")
    arguments.add_argument(
        "--thresholds", type=int, nargs="+", help="lag of a replica, in records; default: half"
    )
    arguments.add_argument(
        "--scale-in", type=float, default=SCALE_IN, help="the sidecar's window for it, seconds"
    )
    arguments.add_argument("--hpa-scale-in", type=float, default=HPA_SCALE_IN, help="the HPA's, seconds")
    arguments.add_argument("--partitions", type=int, default=32)
    arguments.add_argument("--capacity", type=float, default=40_000, help="bytes/s of a consumer")
    arguments.add_argument("--size", type=int, default=400, help="bytes of a record")
    arguments.add_argument("--late", type=float, default=4, help="seconds from which it is late")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--plot", type=Path, help="write a picture there")
    arguments.add_argument("--logs", type=Path, help="keep what the sidecar said there")
    return arguments.parse_args()


def _thresholds(given: Namespace) -> list[int]:
    """Return what one consumer handles in half of KEDA's polling interval, in records."""
    return [round(given.capacity / given.size * POLLING / given.factor / 2)]


class Bench:
    """One rig and one stream, for all runs."""

    def __init__(self, on: Rig, bootstrap: str, speeds: Speeds, given: Namespace) -> None:
        self._on = on
        self._bootstrap = bootstrap
        self._given = given
        self._needed = needed(speeds, given.capacity)
        self._planned = (speeds.sum(axis=1) * TICK / given.size).tolist()
        before = np.repeat(speeds[:1], round(SETTLE / TICK), axis=0)
        self._speeds = np.concatenate([before, speeds])

    def run(self, threshold: int = 0) -> Figures:
        """Measure KEDA with a lag threshold, or Trimtab without."""
        name = harness.new_topic(self._bootstrap, self._given.partitions)
        watch = Watch(self._on, self._bootstrap, name)
        with tempfile.TemporaryDirectory() as folder:
            command = self._command("plain" if threshold else "trimtab", name, folder)
            with pods(self._on, name, AT_FIRST, command):
                watch.formed(AT_FIRST)
                with watch.looking(), self._steered(name, threshold):
                    written = self._written(name)
                    sleep(TAIL)
                    end = time()
            records = figures.read(Path(folder))
        rebalanced = generations(self._bootstrap, name)
        begin, at = written[0] + SETTLE, np.array(written)
        looks = (watch.samples, watch.deleted, rebalanced)
        seen = Seen(begin, end, at, records, *looks, self._needed, self._planned)
        called = f"keda, lag {threshold}" if threshold else "trimtab"
        found = figures.figures(called, seen, self._given.late)
        self._tell(found, name)
        return found

    def _written(self, topic: str) -> list[float]:
        """Write the stream from a process of its own, which nothing here keeps waiting."""
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            size = self._given.size
            return pool.submit(produce, self._bootstrap, topic, self._speeds, size).result()

    def _steered(self, name: str, threshold: int) -> AbstractContextManager[None]:
        times = Times(self._given.factor, self._given.scale_in, self._given.hpa_scale_in)
        if threshold:
            return keda(self._on, self._bootstrap, name, threshold, times)
        return trimtab(self._on, self._bootstrap, name, self._given.capacity, times)

    def _command(self, client: str, name: str, folder: str) -> list[str]:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "group.id": name,
            "topic": name,
            "heartbeat.interval.ms": 250,
            "session.timeout.ms": 10_000,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": round(COMMITS / self._given.factor * 1000),
        }
        words = (client, "$(POD_NAME)", f"{folder}/$(POD_NAME)", str(self._given.capacity))
        return [sys.executable, str(HOST), *words, json.dumps(settings)]

    def _tell(self, of: Figures, name: str) -> None:
        print(f"{of.side}: {of.told}, load average {os.getloadavg()[0]:.1f}", file=sys.stderr)
        log = self._on.plane.folder / f"{name}.log"
        if self._given.logs and log.exists():
            self._given.logs.write_text(log.read_text())


def show(found: Sequence[Figures], given: Namespace) -> None:
    """Print a table, a line a figure and a column a run."""
    table = Table(title=f"late: more than {given.late:g} s; load average {os.getloadavg()[1]:.1f}")
    table.add_column("")
    for of in found:
        table.add_column(of.side, justify="right")
    told = [of.told for of in found]
    for name in told[0]:
        table.add_row(name, *(str(of[name]) for of in told))
    Console(width=100).print(table)


def _result(ours: Figures, best: Figures, theirs: Sequence[Figures], given: Namespace) -> dict[str, Any]:
    return {
        "trimtab": ours.told,
        "keda": best.told,
        "kedas": {of.side: of.told for of in theirs},
        "held_against": best.side,
        "hours_of_kedas": round(ours.consumer_hours / best.consumer_hours, 3),
        "late_of_kedas": round(ours.late_traffic / max(best.late_traffic, 1e-9), 3),
        "late_s": given.late,
        "seconds": given.seconds,
        "factor": given.factor,
        "load_average": round(os.getloadavg()[2], 1),
    }


if __name__ == "__main__":
    main()
