"""Ingest of several topics by one consumer, by the number of workers of Spark's standalone cluster.

A worker has one core of Spark, and a control group grants it `--cores` of a real one, so that several fit
on a machine of two cores. The limit begins after a warm-up, in which the executors start. JSON is parsed, so
most of the work is the executors'. The clock runs from the first record received to the last one in
its table; rows are counted afterwards. Each number of workers has a process, a cluster and topics of its own.

Needs root, for the control groups, and PYTHONPATH=tests: `make bench-spark-cluster` provides the latter.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event
from time import monotonic, perf_counter
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.sinks.bench_ingest import build_record
from benchmarks.sinks.cpu_limit import CpuLimit
from benchmarks.sinks.ingest_host import counted
from spark_cluster.standalone import StandaloneCluster, session_settings
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.session.factory import open_lake
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter

PARTITIONS = 4
RECORD_BYTES = 1000
BODIES = 16_000
WARM_MB = 8
"""Megabytes of each topic by which the executors start and compile."""


def main() -> None:
    options = _parse_arguments()
    if options.only:
        print(json.dumps(measure_workers(options, options.only)))
        return
    if os.geteuid() != 0:
        print("left out: control groups need root", file=sys.stderr)
        harness.result({"mb_per_s": {}})
        return
    speeds: dict[int, float] = {}
    with harness.broker(options.bootstrap) as bootstrap:
        for workers in options.workers:
            speeds[workers] = measure_in_process(options, bootstrap, workers)
            print(f"{workers} workers: {speeds[workers]} MB/s", file=sys.stderr)
    print_table(speeds, options)
    harness.result(
        {
            "cores_per_worker": options.cores,
            "topics": options.topics,
            "format": options.format,
            "mb_per_s": speeds,
        }
    )


def _parse_arguments() -> Namespace:
    arguments: ArgumentParser = harness.parser(__doc__ or "")
    arguments.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4], help="numbers of workers")
    arguments.add_argument("--topics", type=int, default=4, help="topics, and so tables flushed side by side")
    arguments.add_argument("--cores", type=float, default=0.2, help="of a core that each worker gets")
    arguments.add_argument("--mb", type=float, default=20, help="megabytes of each topic")
    arguments.add_argument("--batch", default="4 MB", help="batch.bytes")
    arguments.add_argument("--format", choices=["iceberg", "delta"], default="iceberg")
    arguments.add_argument("--only", type=int, help="measure this number of workers in this process")
    return arguments.parse_args()


def measure_in_process(options: Namespace, bootstrap: str, workers: int) -> float:
    """Return the MB/s of a number of workers, measured in a process of its own."""
    given = ["--bootstrap", bootstrap, "--only", str(workers), "--cores", str(options.cores)]
    more = [
        "--mb",
        str(options.mb),
        "--topics",
        str(options.topics),
        "--batch",
        options.batch,
        "--format",
        options.format,
    ]
    command = [sys.executable, "-m", "benchmarks.sinks.bench_spark_cluster", *given, *more]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(json.loads(done.stdout.splitlines()[-1]))


def measure_workers(options: Namespace, workers: int) -> float:
    """Start a cluster, ingest the warm-up, limit the workers, and return the MB/s of the other topics."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        cluster, limits = stack.enter_context(_start_cluster(Path(folder), workers))
        settings = {
            **session_settings(cluster.url),
            "lake.warehouse": f"{folder}/lake",
            "lake.format": options.format,
            "lake.decoder": "json",
            "lake.schema": "id BIGINT, text STRING",
            "batch.bytes": options.batch,
            "lake.flush.parallelism": options.topics,
            "bootstrap.servers": options.bootstrap,
        }
        lake = open_lake(_parse_settings({**settings, "topics": ["none"], "group.id": "none"}).lake.session)
        assert isinstance(lake, SparkLake)
        stack.callback(lake.spark.stop)
        ingest_topics(lake, settings, options.topics, WARM_MB)
        for limit in limits:
            limit.limit(options.cores)
        seconds = ingest_topics(lake, settings, options.topics, options.mb)
        return round(options.topics * options.mb / seconds, 1)


@contextmanager
def _start_cluster(folder: Path, workers: int) -> Iterator[tuple[StandaloneCluster, Sequence[CpuLimit]]]:
    limits = [CpuLimit() for _ in range(workers)]
    (folder / "spark").mkdir()
    cluster = StandaloneCluster(folder / "spark", _wait_until)
    try:
        for limit in limits:
            cluster.add_worker(limit.wrapper)
        yield cluster, limits
    finally:
        cluster.close()
        for limit in limits:
            _wait_until(limit.remove)


def _wait_until(condition: Callable[[], bool], timeout: float = 60) -> None:
    deadline = monotonic() + timeout
    while not condition():
        if monotonic() > deadline:
            sys.exit(f"no {condition} within {timeout} s")
        Event().wait(0.05)


def _parse_settings(settings: dict[str, Any]) -> ingest.IngestSettings:
    return ingest.parse_ingest_settings(settings)


def ingest_topics(lake: SparkLake, settings: dict[str, Any], topics: int, mb: float) -> float:
    """Fill new topics, ingest them, check the rows; return the seconds from the first record on."""
    count = int(mb * 1e6 / RECORD_BYTES)
    names = [_fill_topic(settings["bootstrap.servers"], count) for _ in range(topics)]
    config = _parse_settings({**settings, "topics": names, "group.id": names[0]})
    with Consumer(config.consumer_config) as consumer, LakeWriter(consumer, config.lake, lake=lake) as writer:
        consumer.subscribe(names, writer.on_assign, writer.on_revoke, writer.on_lost)
        began, got = 0.0, 0
        while got < topics * count:
            messages = consumer.consume(ingest.INGEST_FETCH_RECORDS, timeout=0.2)
            began = began or (perf_counter() if messages else 0.0)
            writer.write(messages)
            writer.raise_if_halted()
            got += len(messages)
        writer.flush()
        seconds = perf_counter() - began
    for topic in names:
        _check_rows(lake, topic, count)
    return seconds


def _fill_topic(bootstrap: str, count: int) -> str:
    topic = harness.new_topic(bootstrap, PARTITIONS)
    rng = random.Random(count)  # noqa: S311 - filler
    bodies = [build_record(rng, number, RECORD_BYTES) for number in range(min(count, BODIES))]
    harness.fill(bootstrap, topic, PARTITIONS, count, bodies)
    return topic


def _check_rows(lake: SparkLake, topic: str, count: int) -> None:
    rows, distinct = counted(lake.spark.table(f"lake.{topic.replace('-', '_')}"))
    if (rows, distinct) != (count, count):
        sys.exit(f"{topic}: {rows} rows of {distinct} records, {count} were produced")


def print_table(speeds: dict[int, float], options: Namespace) -> None:
    """Print a row per number of workers."""
    table = Table(title=f"One consumer, {options.topics} tables, workers of {options.cores} cores each")
    for column in ("workers", "MB/s", "to the first"):
        table.add_column(column, justify="right")
    first = next(iter(speeds.values()))
    for workers, speed in speeds.items():
        table.add_row(str(workers), f"{speed:.1f}", f"{speed / first:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
