"""Ingest from a filled Kafka topic into a table, one process, compared with other tools.

- `trimtab_iceberg`, `trimtab_delta`: Trimtab's consumer and sink with `lake.file.writer: spark`.
- `trimtab_arrow`, `trimtab_arrow_delta`: the same with `lake.file.writer: arrow`.
- `trimtab_iceberg_json`, `trimtab_arrow_json` and `structured_streaming_json`, only with `--cases`: into
  Iceberg, with the records' JSON parsed into two columns.
- `plain_loop`: confluent-kafka's consumer, reads each value and writes nothing.
- `plain_loop_tuned`: the same with `fetch.queue.backoff.ms=20`, as in Trimtab; librdkafka's default
  of one second slows the plain loop down whenever it falls behind.
- `structured_streaming`, `structured_streaming_delta`: Spark Structured Streaming, `availableNow`, into
  an Iceberg or a Delta table, without headers.
- `delta_rs`: the tuned loop with deltalake, which appends batches of the same size.
- `trimtab_ranges`: a prototype in which Spark's Kafka source reads ranges of offsets
  and the sink commits them; designs/ranges-read-by-spark.md says why it is not in the product.
- `spark_python_ranges`, only with `--cases`: the same with a data source in Python, whose tasks read by
  librdkafka.

Each case is a separate process. Its start (the JVM, Spark) and a warm-up on another topic are
timed separately. The clock runs from the first record received (Structured Streaming: from the
start of the query) to the last one in the table. CPU and resident memory include child processes
such as the JVM, but not the broker. Afterwards the rows and distinct records of every table are
counted.

Records are JSON text with random hexadecimal digits, which compress to about half.
"""

import json
import random
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import IO, Any

from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.ingest_meter import Peak, cpu_seconds
from benchmarks.sinks import ingest_plot

HOST = "benchmarks.sinks.ingest_host"
CASES = (
    "trimtab_iceberg",
    "trimtab_delta",
    "trimtab_arrow",
    "trimtab_arrow_delta",
    "plain_loop",
    "plain_loop_tuned",
    "structured_streaming",
    "structured_streaming_delta",
    "delta_rs",
    "trimtab_ranges",
)
ON_DEMAND = ("trimtab_iceberg_json", "trimtab_arrow_json", "structured_streaming_json", "spark_python_ranges")
"""Cases that `--cases` has to name."""
BOUNDED = ("trimtab_iceberg", "trimtab_arrow")
"""Cases that also run with a longer backlog."""

PARTITIONS = 6
MIDDLE = 1000
"""Record size of the headline figures, in bytes."""

POOL = 16_000_000
"""Bytes before the records repeat: more than a compressor's window."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a case; `mb` is the size of the values read, in 10^6 bytes."""

    mb: float
    records: int
    seconds: float
    cpu: float
    peak: int
    start: float

    @property
    def speed(self) -> float:
        """MB/s."""
        return self.mb / self.seconds

    @property
    def cpu_s_per_gb(self) -> float:
        """CPU time by size."""
        return self.cpu / self.mb * 1000

    def rounded(self) -> dict[str, float]:
        """Return the figures in the units of the RESULT line."""
        return {
            "mb_per_s": round(self.speed, 1),
            "records_per_s": round(self.records / self.seconds),
            "cpu_s_per_gb": round(self.cpu_s_per_gb, 1),
            "peak_mb": round(self.peak / 1e6),
            "start_s": round(self.start, 1),
        }


def main() -> None:
    options = _arguments()
    results: dict[int, dict[str, Figures]] = {}
    backlogs: dict[str, list[Figures]] = {}
    with harness.broker(options.bootstrap) as bootstrap:
        for size in options.sizes:
            topics = Topics.filled(bootstrap, size, options.warm, options.mb)
            results[size] = {name: measured(bootstrap, name, topics) for name in options.cases}
        if options.backlog and MIDDLE in results:
            longer = Topics.filled(bootstrap, MIDDLE, options.warm, options.mb * options.backlog)
            for name in (n for n in BOUNDED if n in options.cases):
                backlogs[name] = [results[MIDDLE][name], measured(bootstrap, name, longer)]
    show(results, backlogs)
    if options.plot:
        ingest_plot.draw_results(options.plot, {s: _by_name(cases) for s, cases in results.items()})
        print(f"plot: {options.plot}")
    harness.result(_result(results, backlogs))


def _arguments() -> Namespace:
    arguments: ArgumentParser = harness.parser(__doc__ or "")
    arguments.add_argument("--cases", nargs="+", choices=CASES + ON_DEMAND, default=CASES)
    arguments.add_argument("--sizes", nargs="+", type=int, default=[MIDDLE])
    arguments.add_argument("--mb", type=float, default=150, help="megabytes per case and size")
    arguments.add_argument("--warm", type=float, default=70, help="megabytes of the warm-up")
    arguments.add_argument("--backlog", type=float, default=0, help="also run with this multiple of --mb")
    arguments.add_argument("--plot", type=Path, help="write the plot to this file")
    arguments.add_argument("--quick", action="store_true", help="2 MB of 1 kB, no long backlog")
    options = arguments.parse_args()
    if options.quick:
        options.sizes, options.mb, options.warm, options.backlog = [MIDDLE], 2, 0.2, 0
    return options


@dataclass(frozen=True, slots=True)
class Topics:
    """Two filled topics with their record counts: one for the warm-up, one for the measurement."""

    size: int
    warm: tuple[str, int]
    timed: tuple[str, int]

    @classmethod
    def filled(cls, bootstrap: str, size: int, warm: float, mb: float) -> "Topics":
        """Create both topics and fill them with records of `size` bytes."""
        rng = random.Random(size)  # noqa: S311 - filler
        bodies = [build_record(rng, number, size) for number in range(int(POOL / size))]
        pair = []
        for megabytes in (warm, mb):
            count = int(megabytes * 1e6 / size)
            topic = harness.new_topic(bootstrap, PARTITIONS)
            harness.fill(bootstrap, topic, PARTITIONS, count, bodies)
            pair.append((topic, count))
        return cls(size, *pair)


def build_record(rng: random.Random, number: int, size: int) -> bytes:
    """Return JSON of `size` bytes with a number and random text."""
    head, tail = f'{{"id": {10_000_000 + number}, "text": "', '"}'
    return (head + rng.randbytes(size).hex())[: size - len(tail)].encode() + tail.encode()


def measured(bootstrap: str, name: str, topics: Topics) -> Figures:
    """Run a case in its own process. Exits if a row is lost or duplicated."""
    with tempfile.TemporaryDirectory() as folder:
        plan = {"bootstrap": bootstrap, "folder": folder, "warm": topics.warm, "timed": topics.timed}
        command = [sys.executable, "-m", HOST, name, json.dumps(plan)]
        began = perf_counter()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
            try:
                figures = _watched(host, topics, began)
            except BaseException:
                host.kill()
                raise
    print(f"{topics.size:6d} B, {name}: {figures.rounded()}", file=sys.stderr)
    return figures


def _watched(host: "subprocess.Popen[str]", topics: Topics, began: float) -> Figures:
    assert host.stdin is not None
    assert host.stdout is not None
    count = topics.timed[1]
    _read_reply(host.stdout, "ready")
    start = perf_counter() - began
    cpu, peak = cpu_seconds(host.pid), Peak(host.pid)
    try:
        host.stdin.write("go\n")
        host.stdin.flush()
        (seconds,) = _read_reply(host.stdout, "end")
        cpu = cpu_seconds(host.pid) - cpu
    finally:
        most = peak.end()
    host.stdin.write("count\n")
    host.stdin.flush()
    rows, distinct = map(int, _read_reply(host.stdout, "found"))
    if (rows, distinct) != (count, count):
        sys.exit(f"{host.args}: {rows} rows of {distinct} records, {count} were produced")
    return Figures(count * topics.size / 1e6, count, float(seconds), cpu, most, start)


def _read_reply(lines: IO[str], what: str) -> Sequence[str]:
    """Return the values of the next line that starts with this word."""
    for line in lines:
        word, *figures = line.split()
        if word == what:
            return figures
    sys.exit(f"the case ended before it printed {what!r}")


def show(results: Mapping[int, Mapping[str, Figures]], backlogs: Mapping[str, Any]) -> None:
    """Print a table with a row per case and size, and the memory by backlog."""
    table = Table(title="Kafka to table, one process")
    columns = ("case", "record", "MB/s", "records/s", "CPU s/GB", "peak MB", "start s")
    for column in columns:
        table.add_column(column, justify="left" if column == "case" else "right")
    for size, cases in results.items():
        for name, figures in cases.items():
            table.add_row(name, f"{size} B", *(f"{v:,}" for v in figures.rounded().values()))
    Console(width=120).print(table)
    for name, runs in backlogs.items():
        line = ", ".join(f"{r.mb:,.0f} MB waiting: peak {r.peak / 1e6:,.0f} MB" for r in runs)
        print(f"{name}: {line}")


def _by_name(cases: Mapping[str, Figures]) -> dict[str, dict[str, float]]:
    return {name: figures.rounded() for name, figures in cases.items()}


def _result(
    results: Mapping[int, Mapping[str, Figures]], backlogs: Mapping[str, Sequence[Figures]]
) -> dict[str, Any]:
    headline = _by_name(results.get(MIDDLE, {}))
    return {
        "mb_per_s": {name: row["mb_per_s"] for name, row in headline.items()},
        "cpu_s_per_gb": {name: row["cpu_s_per_gb"] for name, row in headline.items()},
        "ratios": dict(_ratios(results.get(MIDDLE, {}), lambda of: of.speed)),
        "cpu_ratios": dict(_ratios(results.get(MIDDLE, {}), lambda of: of.cpu_s_per_gb)),
        "by_size": {f"{size}_byte_records": _by_name(cases) for size, cases in results.items()},
        "backlog": {
            name: [{"backlog_mb": round(r.mb), "peak_mb": round(r.peak / 1e6)} for r in runs]
            for name, runs in backlogs.items()
        },
    }


def _ratios(cases: Mapping[str, Figures], read: Callable[[Figures], float]) -> Iterator[tuple[str, float]]:
    """Yield the first case's figure as a multiple of the second one's."""
    for one, two in (
        ("trimtab_iceberg", "structured_streaming"),
        ("trimtab_arrow", "structured_streaming"),
        ("trimtab_ranges", "structured_streaming"),
        ("trimtab_delta", "structured_streaming_delta"),
        ("trimtab_arrow_delta", "structured_streaming_delta"),
        ("trimtab_arrow", "plain_loop"),
        ("trimtab_arrow", "plain_loop_tuned"),
        ("trimtab_arrow", "delta_rs"),
        ("trimtab_arrow_json", "trimtab_iceberg_json"),
        ("trimtab_arrow_json", "structured_streaming_json"),
    ):
        if one in cases and two in cases:
            yield f"{one}/{two}", round(read(cases[one]) / read(cases[two]), 2)


if __name__ == "__main__":
    main()
