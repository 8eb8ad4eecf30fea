"""Throughput of one consumer by the workers of Spark's standalone cluster that write its files.

    PYTHONPATH=tests python benchmarks/bench_spark_cluster.py

Master and workers are processes of this machine. Each worker offers one core, and a cgroup gives it and
its executor --cap of a core at most (needs root and cgroup v1): without a cap, workers compete with the
consumer for the same cores. Each number of workers is measured by `trimtab measure-capacity` on a
cluster of its own. The last line is RESULT {"cap_cores": ..., "mb_per_s": {"1": ..., "2": ...}, ...}.
"""

import json
import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from time import monotonic
from typing import Any, Final

import harness
import yaml

from spark_cluster.standalone import StandaloneCluster, session_settings

CPU_CONTROLLER: Final = Path("/sys/fs/cgroup/cpu")
PERIOD_US: Final = 50_000  # a worker is stopped for the rest of each, once its share is used
START_SECONDS: Final = 60.0  # on a busy machine


def main() -> None:
    options = _arguments()
    rates = {}
    for workers in options.workers:
        rates[workers] = measure_cluster(workers, options)
        print(f"{workers} workers: {rates[workers]} MB/s", file=sys.stderr)
    first, last = options.workers[0], options.workers[-1]
    harness.result(
        {
            "case": options.case,
            "cap_cores": options.cap if CPU_CONTROLLER.exists() else None,
            "mb_per_s": rates,
            "growth": round(rates[last] / rates[first], 2),
        }
    )


def _arguments() -> Namespace:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--workers", nargs="+", type=int, default=[1, 2], help="numbers of workers")
    arguments.add_argument("--cap", type=float, default=0.3, help="cores of a worker")
    arguments.add_argument("--case", default="4:8:64", help="TABLES:PARTITIONS:MB of measure-capacity")
    return arguments.parse_args()


def measure_cluster(workers: int, options: Namespace) -> float:
    """Return the MB/s of one consumer whose files so many workers write."""
    with tempfile.TemporaryDirectory() as folder, run_cluster(Path(folder), workers, options.cap) as cluster:
        file = Path(folder, "ingest.yaml")
        settings = {
            **session_settings(cluster.url),
            "lake.warehouse": f"{folder}/lake",
            "lake.flush.parallelism": max(options.workers),
            "batch.bytes": "4 MB",  # several flushes of each table
        }
        file.write_text(yaml.safe_dump(settings))
        command = ["-m", "trimtab.cli", "measure-capacity", "--config", str(file), "--case", options.case]
        done = subprocess.run([sys.executable, *command], check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
    return round(figures["capacity_bytes_per_s"] / 1e6, 2)


@contextmanager
def run_cluster(folder: Path, workers: int, cap: float) -> Generator[StandaloneCluster]:
    """Yield a standalone cluster with so many workers, each with at most `cap` cores of CPU time."""
    groups = [CPU_CONTROLLER / f"trimtab-{os.getpid()}-{number}" for number in range(workers)]
    cluster = StandaloneCluster(folder, wait_until)
    try:
        for group in groups:
            cluster.add_worker(limit_cpu(group, cap) if CPU_CONTROLLER.exists() else ())
        yield cluster
    finally:
        cluster.close()
        wait_until(lambda: all(map(remove_group, groups)))


def limit_cpu(group: Path, cap: float) -> list[str]:
    """Make a control group; return the beginning of a command that runs in it with its children."""
    group.mkdir()
    (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
    (group / "cpu.cfs_quota_us").write_text(str(int(cap * PERIOD_US)))
    return ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]


def remove_group(group: Path) -> bool:
    """Remove a control group; return whether it is gone, which needs the end of its processes."""
    with suppress(OSError):
        group.rmdir()
    return not group.exists()


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    pause, deadline = Event(), monotonic() + START_SECONDS
    while not condition():
        if monotonic() > deadline:
            raise TimeoutError(f"not within {START_SECONDS:.0f} s")
        pause.wait(0.1)


if __name__ == "__main__":
    main()
