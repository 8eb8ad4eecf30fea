"""Age of records when a bridge read returns them, beside their age when the table has them.

A steady producer, `trimtab ingest` with batches of 60 s, and one warm reader that reads in a loop.
The age of a record is counted from its timestamp to the return of the first read with it; that of
the table alone to the first read whose version of the table has it. Every read is checked: each
record of the topic below the cut is there, once.

`--write upsert` produces changes by key: inserts, updates, deletes and tombstones. Each read is compared,
row for row, with a replay of the topic in plain Python up to the read's own cut (`bridge_streams`). A
record that a newer one replaces before any read has no age. Needs PYTHONPATH=tests.

With `--store s3` the table is on an S3 server of this machine, an Iceberg table in a REST catalog, and Spark
reads it. Needs `make object-store` and PYTHONPATH=tests.

`--disturb` runs two ingests with batches of 2 s. Once the lake is there, it kills and restarts one of them
again and again, and compacts the table meanwhile; the last lines that a compaction printed go to stderr. It
fails if no ingest was killed, or no compaction succeeded.
"""

import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from time import monotonic, time
from typing import IO, Any

import numpy as np
import yaml
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.bridge_streams import STREAMS, Stream
from benchmarks.lake_store import DISK, STORES, serve_store
from trimtab.consumer_sdk.lake import LakeReader, LakeRows
from trimtab.consumer_sdk.lake.options.settings import TABLE_FORMATS

TABLE = "bench.orders"
DISTURBANCE_S = 15.0
COMPACTION_EVERY = 3  # disturbances
COMPACTION_LINES = 20  # that are printed
DISTURBANCES = ("kills", "compactions")  # counts that must not be 0 with --disturb
WRONG = ("missing", "doubled", "stale")  # counts of a RESULT that must be 0


def main() -> None:
    arguments = _arguments()
    with ExitStack() as stack:
        bootstrap = stack.enter_context(harness.broker(arguments.bootstrap))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        topic = harness.new_topic(bootstrap, arguments.partitions)
        stream = stack.enter_context(STREAMS[arguments.write](bootstrap, topic, arguments))
        store = stack.enter_context(serve_store(arguments.store, Path(folder), arguments.format))
        config = {**_configure(arguments, bootstrap, topic), **store.settings, **stream.settings}
        file = Path(folder, "ingest.yaml")
        file.write_text(yaml.safe_dump(config))
        ingests = stack.enter_context(_running_ingests(file, 2 if arguments.disturb else 1))
        rate = arguments.rate / arguments.partitions
        stack.enter_context(harness.produced(bootstrap, topic, arguments.partitions, rate, stream.records))
        if arguments.store == DISK:
            _wait_for_lake(Path(store.settings["lake.warehouse"]))
        disturbances = Counter[str]()
        if arguments.disturb:
            disturbances = stack.enter_context(_disturbing(ingests, file))
        with LakeReader(TABLE, config, engine=arguments.engine) as reader:
            figures = _measure(reader, stream, arguments)
        disturbed = dict(disturbances)  # what ends later has disturbed no read
        # before the ingests end, for a busy machine may take minutes to end a compaction
        engine = arguments.engine or ("arrow" if arguments.store == DISK else "spark")
        case = {name: getattr(arguments, name) for name in ("format", "store", "write")} | {"engine": engine}
        harness.result({**case, **figures, **disturbed})
    if any(figures.get(name) for name in WRONG):
        sys.exit("rows are wrong: see RESULT")
    if arguments.disturb and not all(disturbed.values()):
        sys.exit("the reads were not disturbed enough: see RESULT; give them more --seconds")


def _wait_for_lake(folder: Path) -> None:
    """Wait until the first consumer has begun a lake: Spark's reader would have to create an empty one."""
    while not (folder / "catalog.db").exists() and not list(folder.rglob("_delta_log")):
        Event().wait(0.2)


def _arguments() -> Namespace:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--format", default=TABLE_FORMATS[0], choices=TABLE_FORMATS)
    parser.add_argument("--store", default=DISK, choices=STORES, help="s3: read by Spark")
    parser.add_argument("--engine", choices=["arrow", "spark"])
    parser.add_argument("--write", default="append", choices=sorted(STREAMS), help="lake.write")
    parser.add_argument("--keys", type=int, default=2000, help="of --write upsert")
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--rate", type=float, default=2000, help="records/s")
    parser.add_argument("--batch-age", type=float, default=60, help="batch.max.age in seconds")
    parser.add_argument("--reads", type=int, default=100, help="at least so many")
    parser.add_argument("--seconds", type=float, default=90, help="at least so long")
    parser.add_argument("--interval", type=float, default=0.1, help="between two reads, in seconds")
    parser.add_argument("--disturb", action="store_true")
    return parser.parse_args()


def _configure(arguments: Namespace, bootstrap: str, topic: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": bootstrap,
        "group.id": "bench-bridge",
        "topics": [topic],
        "lake.format": arguments.format,
        "lake.file.writer": "arrow",
        "lake.tables": {topic: TABLE},
        "batch.max.age": f"{2 if arguments.disturb else arguments.batch_age} s",
        # of the killed ones the others take the partitions soon; else a busy machine must not lose any
        "session.timeout.ms": 6000 if arguments.disturb else 45_000,
        "spark.driver.memory": "1g",
    }


@dataclass
class Ages:
    """Ages of records, of each partition in the order of their offsets."""

    seen: dict[Any, int]  # the offset behind the newest one
    ages_s: list[NDArray[np.float64]] = field(default_factory=list)

    def observe(self, columns: dict[str, NDArray[Any]], ends: dict[Any, int], now: float) -> None:
        """Add the ages of the records below `ends` that were not there before."""
        for where, end in ends.items():
            begin = self.seen[where]
            inside = (columns["offset"] >= begin) & (columns["offset"] < end)
            new = columns["timestamp"][inside & (columns["partition"] == where.partition)]
            self.ages_s.append(now - new / 1e6)
            self.seen[where] = max(begin, end)

    def summarize(self) -> dict[str, float]:
        whole = np.concatenate(self.ages_s) if self.ages_s else np.zeros(0)
        if not len(whole):
            return {}
        return {f"p{p}_s": round(float(np.percentile(whole, p)), 3) for p in (50, 99)}


def _measure(reader: LakeReader, stream: Stream, arguments: Namespace) -> dict[str, Any]:
    took, versions, pause = list[float](), set[Any](), Event()
    ranges = _read_first_version(
        reader, arguments.interval
    ).topic_ranges.items()  # records that are there already are older than a read
    bridge, table = Ages({p: gap.next for p, gap in ranges}), Ages({p: gap.next for p, gap in ranges})
    differences, begun = Counter[str](), monotonic()
    while len(took) < arguments.reads or monotonic() < begun + arguments.seconds:
        started_at = monotonic()
        rows = reader.read()
        arrow = rows.to_arrow()
        took.append(monotonic() - started_at)
        versions.add(rows.table_version)
        now, columns = time(), _to_columns(arrow)
        bridge.observe(columns, {p: gap.next for p, gap in rows.topic_ranges.items()}, now)
        table.observe(columns, {p: gap.first for p, gap in rows.topic_ranges.items()}, now)
        differences.update(_compare(stream, rows, arrow))
        pause.wait(arguments.interval)
    figures = {f"read_p{p}_s": round(harness.percentile(took, p), 3) for p in (50, 99)}
    counts = {"reads": len(took), "records": sum(bridge.seen.values()), "versions": len(versions)}
    ages = {"bridge": bridge.summarize(), "table_alone": table.summarize()}
    return {**counts, **figures, **ages, **differences}


def _read_first_version(reader: LakeReader, interval: float) -> LakeRows:
    """Read until the table has rows, which also warms the reader; return a read after that."""
    version = None
    while version is None:
        rows = reader.read()
        rows.to_arrow()
        version = rows.table_version
        Event().wait(interval)
    return reader.read()


def _to_columns(arrow: Any) -> dict[str, NDArray[Any]]:
    return {n: np.asarray(arrow.column(n).cast("int64")) for n in ("partition", "offset", "timestamp")}


def _compare(stream: Stream, rows: LakeRows, arrow: Any) -> Mapping[str, int]:
    """Return the numbers of differences from what the read must return, by kind; print them, if any."""
    ends = {where.partition: gap.next for where, gap in rows.topic_ranges.items()}
    found = stream.count_differences(arrow, ends)
    if any(found.values()):
        print(f"version {rows.table_version}, ranges {rows.topic_ranges}: {found}", file=sys.stderr)
    return found


Ingests = list[subprocess.Popen[bytes]]


@contextmanager
def _running_ingests(file: Path, count: int) -> Iterator[Ingests]:
    processes = [_start("ingest", "--config", file) for _ in range(count)]
    try:
        yield processes
    finally:
        for process in processes:
            _end(process)


@contextmanager
def _disturbing(ingests: Ingests, file: Path) -> Iterator[Counter[str]]:
    """Disturb the ingests within the context; yield the numbers of disturbances so far, by kind."""
    stop, disturbances = Event(), Counter(dict.fromkeys(DISTURBANCES, 0))
    thread = Thread(target=_disturb, args=(ingests, file, disturbances, stop))
    thread.start()
    try:
        yield disturbances
    finally:
        stop.set()
        thread.join()


def _disturb(ingests: Ingests, file: Path, disturbances: Counter[str], stop: Event) -> None:
    turn = 0
    while not stop.wait(DISTURBANCE_S):
        turn += 1
        if turn % COMPACTION_EVERY == 0:
            disturbances["compactions" if _compact(file) else "failed_compactions"] += 1
        else:  # its partitions move to the other one, and back
            ingests[-1].kill()
            ingests[-1].wait()
            ingests[-1] = _start("ingest", "--config", file)
            disturbances["kills"] += 1


def _compact(file: Path) -> bool:
    """Compact the table, print the last lines of the output, and return whether it succeeded."""
    output, begun = file.with_name("compaction.log"), monotonic()
    with output.open("wb") as stream:
        code = _start("tables", "compact", TABLE, "--config", file, output=stream).wait()
    lines = output.read_text(errors="replace").splitlines()[-COMPACTION_LINES:]
    ended = f"compaction ended with {code} after {monotonic() - begun:.0f} s:"
    print(ended, *lines, sep="\n  ", file=sys.stderr, flush=True)
    return code == 0


def _start(*arguments: str | Path, output: IO[bytes] | int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trimtab.cli", *map(str, arguments)]
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait(60)


if __name__ == "__main__":
    main()
