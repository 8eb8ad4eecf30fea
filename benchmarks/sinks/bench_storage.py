"""Appends to a table on S3 and on the local disk: Trimtab's flush compared with Spark's own append.

Sides: `trimtab_spark` and `trimtab_arrow` flush as the sink does with that `lake.file.writer`;
`spark_append` appends the same rows to such a table by `DataFrame.writeTo().append()`. Each is a
process of its own with batches of raw 1 kB records from memory, without Kafka, after two batches that
warm it up. S3 is versitygw on this machine, Iceberg's catalog on S3 a REST server.

CPU is that of the process and its JVM, without store and catalog. Requests are those of the store's
access log, divided by the batches: those of the process, and those of the catalog, which keeps the
table's metadata there.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, Final

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.ingest_meter import cpu_seconds
from benchmarks.lake_store import S3, STORES, count_requests, serve_store
from object_store import programs
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchFlusher, FlushBatch
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, ICEBERG_FORMAT, parse_lake_config
from trimtab.consumer_sdk.lake.projection.projection import TableProjection
from trimtab.consumer_sdk.lake.projection.topic_decoders import keep_raw
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.session.factory import open_lake

SIDES: Final = ("trimtab_spark", "trimtab_arrow", "spark_append")
FORMATS: Final = (ICEBERG_FORMAT, DELTA_FORMAT)
RECORD_BYTES: Final = 1000
DISTINCT_RECORDS: Final = 16_000  # before they repeat: more than a compressor's window
WARM_UPS: Final = 2
WHERE: Final = TopicPartition("t", 0)
TABLE: Final = "bench.storage"

AppendBatch = Callable[[Any], None]


def main() -> None:
    options = parse_arguments()
    if options.plan:
        harness.result(measure_side(json.loads(options.plan)))
        return
    if S3 in options.places and not programs.has_gateway():
        print("S3 is left out: run make object-store", file=sys.stderr)
        options.places = [place for place in options.places if place != S3]
    found: dict[str, Any] = {}
    for table_format in options.formats:
        for place in options.places:
            for side in options.sides:
                figures = run_side(side, table_format, place, options)
                found.setdefault(table_format, {}).setdefault(place, {})[side] = figures
                print(f"{table_format}, {place}, {side}: {figures}", file=sys.stderr)
    show(found)
    harness.result(found)


def parse_arguments() -> Namespace:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    arguments.add_argument("--places", nargs="+", choices=STORES, default=STORES)
    arguments.add_argument("--sides", nargs="+", choices=SIDES, default=SIDES)
    arguments.add_argument("--mb", type=float, default=8, help="megabytes of a batch")
    arguments.add_argument("--batches", type=int, default=4)
    arguments.add_argument("--keep-log", type=Path, help="append the access logs to this file")
    arguments.add_argument("--plan", help="one process's part, in JSON")
    return arguments.parse_args()


def run_side(side: str, table_format: str, place: str, options: Namespace) -> dict[str, Any]:
    """Measure a side in its own process, with its own store."""
    with tempfile.TemporaryDirectory() as folder, serve_store(place, Path(folder), table_format) as store:
        file_writer = "arrow" if side == "trimtab_arrow" else "spark"
        settings = {**store.settings, "lake.format": table_format, "lake.file.writer": file_writer}
        plan = {"side": side, "settings": settings, "mb": options.mb, "batches": options.batches}
        plan["logs"] = {name: str(log) for name, log in store.request_logs.items()}
        command = [sys.executable, "-m", "benchmarks.sinks.bench_storage", "--plan", json.dumps(plan)]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
        if options.keep_log and place == S3:
            with options.keep_log.open("a") as kept:
                kept.write(f"{side} {table_format}\n{store.request_logs['process'].read_text()}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
    return figures


def measure_side(plan: dict[str, Any]) -> dict[str, Any]:
    """Append the batches; return the figures."""
    config = parse_lake_config({**plan["settings"], "group.id": "bench", "enable.auto.commit": False})
    records = build_records(int(plan["mb"] * 1e6 / RECORD_BYTES))
    lake = open_lake(config.session, warm_up=True)
    flush = create_flush(lake)
    append = flush
    flush(records.slice(0, 1))  # creates the table, for all sides alike
    if plan["side"] == "spark_append":
        append = create_spark_append(lake)
    for _ in range(WARM_UPS):
        append(records)
    before = {name: count_requests(Path(log)) for name, log in plan["logs"].items()}
    cpu, start = cpu_seconds(os.getpid()), perf_counter()
    for _ in range(plan["batches"]):
        append(records)
    seconds, cpu = perf_counter() - start, cpu_seconds(os.getpid()) - cpu
    requests = {name: count_requests(Path(log)) - before[name] for name, log in plan["logs"].items()}
    check_rows(lake, 1 + records.num_rows * (WARM_UPS + plan["batches"]))
    lake.close()
    mb = plan["mb"] * plan["batches"]
    return {
        "mb_per_s": round(mb / seconds, 1),
        "cpu_s_per_gb": round(cpu / mb * 1000, 1),
        "requests": {
            name: {action: round(n / plan["batches"], 1) for action, n in sorted(found.items())}
            for name, found in requests.items()
        },
        "requests_per_batch": round(sum(map(Counter.total, requests.values())) / plan["batches"], 1),
    }


def create_flush(lake: SparkLake) -> AppendBatch:
    """Return the sink's flush of one batch after the other."""
    numbers, offset = count(), 0
    flusher = BatchFlusher(
        lake,
        "bench",
        lambda table: TableProjection(table, keep_raw),
        lambda: f"attempt-{next(numbers)}",
        on_step=lambda _: None,
    )

    def flush(records: Any) -> None:
        nonlocal offset
        span = OffsetSpan(offset or None, offset, offset + records.num_rows)
        backoff = RetryBackoff(random.Random(0))  # noqa: S311 - no secret
        done = flusher.flush_batch(FlushBatch(TABLE, {WHERE: span}, records), backoff)
        assert isinstance(done, BatchCommitted)
        offset = span.next

    return flush


def create_spark_append(lake: SparkLake) -> AppendBatch:
    """Return Spark's append to the table that the sink has made."""
    return lambda records: lake.to_spark_frame(records).writeTo(TABLE).append()


def check_rows(lake: SparkLake, rows: int) -> None:
    """Exit if the table has not all rows."""
    table = lake.open_table(TABLE)
    assert table is not None
    if (found := table.read_totals()["rows"]) != rows:
        sys.exit(f"{found} rows, {rows} were appended")


def build_records(number: int) -> Any:
    """Return records of JSON text with random digits, which compress to about half."""
    rng = random.Random(1)  # noqa: S311 - filler
    values = [
        f'{{"text": "{rng.randbytes(RECORD_BYTES // 2).hex()}"}}'[:RECORD_BYTES].encode()
        for _ in range(min(number, DISTINCT_RECORDS))
    ]
    rows = [
        {"topic": "t", "partition": 0, "offset": n, "key": b"%04d" % (n % 9999), "value": value}
        for n, value in enumerate(values)
    ]
    block = pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)
    return pa.concat_tables([*[block] * (number // len(rows)), block.slice(0, number % len(rows))])


def show(found: dict[str, Any]) -> None:
    """Print a row per side."""
    table = Table(title="Appends of one process")
    for column in ("format", "place", "side", "MB/s", "CPU s/GB", "requests", "of the process"):
        table.add_column(column)
    for table_format, places in found.items():
        for place, sides in places.items():
            for side, row in sides.items():
                actions = ", ".join(f"{name} {n:g}" for name, n in row["requests"].get("process", {}).items())
                figures = [str(row[name]) for name in ("mb_per_s", "cpu_s_per_gb", "requests_per_batch")]
                table.add_row(table_format, place, side, *figures, actions)
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
