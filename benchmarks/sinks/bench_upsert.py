"""Inserts, updates and deletes by key into a table, compared with other tools.

- `trimtab_iceberg`, `trimtab_delta`: Trimtab's commit of keyed changes, files written from Arrow.
- `trimtab_iceberg_spark`, `trimtab_delta_spark`: the same, files written by Spark (lake.file.writer).
- `trimtab_iceberg_json`, `trimtab_delta_json`: files written from Arrow; the changes are records of a topic,
  Debezium's envelopes in JSON, which are decoded. Reading them from a broker is not a part of it.
- `spark_merge_iceberg`, `spark_merge_delta`: Spark's MERGE INTO with deletion vectors on the same tables.
- `pyiceberg`: its upsert and delete, in batches of --peer-batch: it takes minutes for larger ones.
- `delta_rs`: its MERGE, which rewrites the touched data files.

Each case is a separate process, which fills the table and applies one batch as a warm-up before the
clock starts. Half of a batch are updates, a tenth deletes, the rest inserts; keys are chosen evenly from
the whole table. CPU includes child processes such as the JVM, and compactions between two batches
(--compact). With --beside, `trimtab tables compact` runs again and again in a process of its own, whose CPU
does not count; one of them must succeed. The first and the last ten batches are compared. Afterwards every
table is compared with a replay in plain Python, row for row.

--files is the number of commits, and so of data files, that fill the table. With --store s3 the tables are on
an S3 server of this machine, Iceberg's in a REST catalog, whose CPU does not count; `requests_per_batch` are
those to S3, by the process (`process`) and by the catalog. pyiceberg and delta-rs are left out there. Needs
`make object-store` and PYTHONPATH=tests.
"""

import json
import subprocess
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any

import yaml
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.ingest_meter import cpu_seconds
from benchmarks.lake_store import DISK, S3, STORES, LakeStore, serve_store
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, ICEBERG_FORMAT

HOST = "benchmarks.sinks.upsert_host"
CASES = (
    "trimtab_iceberg",
    "trimtab_delta",
    "trimtab_iceberg_spark",
    "trimtab_delta_spark",
    "trimtab_iceberg_json",
    "trimtab_delta_json",
    "spark_merge_iceberg",
    "spark_merge_delta",
    "pyiceberg",
    "delta_rs",
)
SMALL_BATCHES = ("pyiceberg",)
ONLY_ON_DISK = ("pyiceberg", "delta_rs")
LOAD_ROWS = 250_000  # of one commit of the first load


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of a case."""

    changes: int
    seconds: float
    cpu: float
    first: float  # changes per CPU second of the first ten batches
    last: float
    rows: int  # of the table, afterwards
    compactions: Sequence[int]  # exit codes of those beside
    requests: Mapping[str, float]  # of a batch, by who sends them

    def rounded(self) -> dict[str, float]:
        """Return the figures in the units of the RESULT line."""
        return {
            "changes_per_cpu_s": round(self.changes / self.cpu),
            "changes_per_s": round(self.changes / self.seconds),
            "first_ten": round(self.first),
            "last_ten": round(self.last),
            "changes": self.changes,
            "rows": self.rows,
        }


def main() -> None:
    options = _arguments()
    results = {name: measured(name, options) for name in options.cases}
    show(results)
    harness.result(
        {
            "store": options.store,
            "table_rows": options.rows,
            "files": options.files,
            "batch": options.batch,
            **{
                figure: {n: f.rounded()[figure] for n, f in results.items()}
                for figure in ("changes_per_cpu_s", "changes_per_s", "first_ten", "last_ten")
            },
            "compactions_beside": {n: f.compactions.count(0) for n, f in results.items()},
            "failed_compactions": {
                n: len(f.compactions) - f.compactions.count(0) for n, f in results.items()
            },
            "requests_per_batch": {n: f.requests for n, f in results.items()},
        }
    )
    if options.beside and (idle := [n for n in results if is_ours(n) and 0 not in results[n].compactions]):
        sys.exit(f"no compaction succeeded beside {', '.join(idle)}: give them more --batches")


def _arguments() -> Namespace:
    arguments = ArgumentParser(description=__doc__)
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    arguments.add_argument("--store", choices=STORES, default=DISK)
    arguments.add_argument("--rows", type=int, default=100_000, help="rows of the table")
    arguments.add_argument("--files", type=int, help=f"data files of the table; default: of {LOAD_ROWS} rows")
    arguments.add_argument("--batches", type=int, default=2)
    arguments.add_argument("--compact", type=int, default=0, help="batches between two compactions")
    arguments.add_argument("--beside", action="store_true", help="compact in another process meanwhile")
    arguments.add_argument("--batch", type=int, default=10_000, help="changes of a batch")
    arguments.add_argument("--peer-batch", type=int, default=1000, help="changes of a batch of pyiceberg")
    options = arguments.parse_args()
    options.files = options.files or -(-options.rows // LOAD_ROWS)
    if options.store == S3:
        options.cases = [name for name in options.cases if name not in ONLY_ON_DISK]
    return options


def build_settings(name: str, store: LakeStore) -> dict[str, Any]:
    """Return the settings of a case's lake."""
    table_format = find_format(name)
    file_writer = "spark" if name.endswith("_spark") else "arrow"
    return {**store.settings, "lake.format": table_format, "lake.file.writer": file_writer}


def find_format(name: str) -> str:
    """Return the table format of a case."""
    return DELTA_FORMAT if "delta" in name else ICEBERG_FORMAT


def is_ours(name: str) -> bool:
    """Return whether a case is Trimtab's, not a peer's."""
    return name.startswith("trimtab")


def measured(name: str, options: Namespace) -> Figures:
    """Run a case in its own process. Exits if its table differs from the replay."""
    batch = options.peer_batch if name in SMALL_BATCHES else options.batch
    batches = 1 if name in SMALL_BATCHES else options.batches
    with (
        tempfile.TemporaryDirectory() as folder,
        serve_store(options.store, Path(folder), find_format(name)) as store,
    ):
        settings = build_settings(name, store)
        plan = {"settings": settings, "rows": options.rows, "files": options.files, "warm": 1}
        plan |= {"batches": batches, "batch": batch, "compact": options.compact}
        command = [sys.executable, "-m", HOST, name, json.dumps(plan)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
            try:
                beside = options.beside and is_ours(name)
                compacting = _compacting_beside(settings, Path(folder)) if beside else nullcontext([])
                figures = _watched(host, batches, batch, compacting, store)
            except BaseException:
                host.kill()
                raise
    print(f"{name}: {figures.rounded()}", file=sys.stderr)
    return figures


@contextmanager
def _compacting_beside(settings: Mapping[str, Any], folder: Path) -> Iterator[list[int]]:
    """Compact the case's table again and again; yield the list of the exit codes."""
    codes, stop = list[int](), Event()
    file = folder / "compact.yaml"
    file.write_text(yaml.safe_dump(dict(settings)))
    command = [sys.executable, "-m", "trimtab.cli", "tables", "compact", "--config", str(file)]

    def compact() -> None:
        while not stop.is_set():
            done = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
            codes.append(done.returncode)

    thread = Thread(target=compact)
    thread.start()
    try:
        yield codes
    finally:
        stop.set()
        thread.join()


def _watched(
    host: "subprocess.Popen[str]",
    batches: int,
    batch: int,
    compacting: AbstractContextManager[list[int]],
    store: LakeStore,
) -> Figures:
    assert host.stdin is not None
    assert host.stdout is not None
    _read_reply(host.stdout, "ready")
    with compacting as compactions:
        cpu, before = cpu_seconds(host.pid), store.count_requests()
        host.stdin.write("go\n")
        host.stdin.flush()
        seconds, first, last = _read_reply(host.stdout, "end")
        cpu = cpu_seconds(host.pid) - cpu
        requests = {name: now - before[name] for name, now in store.count_requests().items()}
    per_batch = {name: round(found.total() / batches, 1) for name, found in requests.items()}
    host.stdin.write("compare\n")
    host.stdin.flush()
    (rows,) = _read_reply(host.stdout, "found")
    return Figures(batches * batch, seconds, cpu, first, last, int(rows), compactions, per_batch)


def _read_reply(lines: IO[str], what: str) -> list[float]:
    """Return the values of the next line that starts with this word."""
    for line in lines:
        word, *figures = line.split()
        if word == what:
            return list(map(float, figures))
    sys.exit(f"the case ended before it printed {what!r}")


def show(results: dict[str, Figures]) -> None:
    """Print a table with a row per case."""
    table = Table(title="Changes by key into a table, one process")
    for column in ("case", "changes/CPU s", "changes/s", "first ten", "last ten", "changes", "rows"):
        table.add_column(column, justify="left" if column == "case" else "right")
    for name, figures in results.items():
        table.add_row(name, *(f"{v:,}" for v in figures.rounded().values()))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
