"""Duration of a flush (`BatchFlusher.flush_batch`) by table format and batch size.

Raw records of 204 bytes (key + value) of one partition, one Spark session per format, after a
warm-up as in `trimtab ingest`. "stage" lasts from the start to the staged files, "commit" from
there to the offsets in the table; medians. `--table N` commits into a table with N earlier commits.
"""

import json
import random
import statistics
import subprocess
import sys
import tempfile
import uuid
from argparse import ArgumentParser, Namespace
from pathlib import Path
from time import perf_counter

import pyarrow as pa
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.commits.retry import RetryBackoff
from trimtab.consumer_sdk.lake.flush.flush import BatchCommitted, BatchFlusher, FlushBatch
from trimtab.consumer_sdk.lake.offsets.table_offsets import OffsetSpan
from trimtab.consumer_sdk.lake.options.settings import DELTA_FORMAT, ICEBERG_FORMAT, SessionConfig
from trimtab.consumer_sdk.lake.projection.projection import TableProjection
from trimtab.consumer_sdk.lake.projection.topic_decoders import keep_raw
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.session.factory import open_lake

RECORD = 204
FORMATS = (ICEBERG_FORMAT, DELTA_FORMAT)
WHERE = TopicPartition("t", 0)
NAME = "bench.flush"


def main() -> None:
    arguments = _arguments()
    if len(arguments.formats) == 1:
        harness.result(_measure(arguments, arguments.formats[0]))
        return
    results = {form: _run_separately(arguments, form) for form in arguments.formats}
    shown = Table("format", "batch", "stage", "commit", "flush", "MB/s")
    for form, sizes in results.items():
        for size, times in sizes.items():
            seconds = [f"{times[name]:.2f} s" for name in ("stage", "commit", "flush")]
            shown.add_row(form, f"{size} MB", *seconds, f"{float(size) / times['flush']:.1f}")
    Console().print(shown)
    harness.result({"flush_s": results})


def _arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=FORMATS)
    parser.add_argument("--mb", nargs="+", type=float, default=[0.1, 1.0, 16.0, 64.0])
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--table", type=int, default=0)
    return parser.parse_args()


def _run_separately(arguments: Namespace, form: str) -> dict[str, dict[str, float]]:
    """Measure in a separate process: one JVM serves one format."""
    sizes = [str(size) for size in arguments.mb]
    options = ["--repeat", str(arguments.repeat), "--table", str(arguments.table)]
    command = [
        sys.executable,
        "-m",
        "benchmarks.sinks.bench_flush",
        "--formats",
        form,
        "--mb",
        *sizes,
        *options,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    results: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1].removeprefix(b"RESULT "))
    return results


def _measure(arguments: Namespace, form: str) -> dict[str, dict[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        config = SessionConfig(warehouse=str(Path(folder)), format=form, file_writer="spark")
        lake = open_lake(config, warm_up=True)
        steps: dict[str, float] = {}

        def note(step: str) -> None:
            steps[step] = perf_counter()

        flush = BatchFlusher(
            lake, "g", lambda t: TableProjection(t, keep_raw), lambda: uuid.uuid4().hex, note
        )
        at: int | None = None
        results: dict[str, dict[str, float]] = {}
        small = _records(1)
        for size, records, times in (
            *((None, small, 1) for _ in range(arguments.table + 1)),
            *((size, _records(int(size * 1e6 / RECORD)), arguments.repeat) for size in arguments.mb),
        ):
            runs = []
            for _ in range(times):
                first = at or 0
                span = OffsetSpan(at, first, first + records.num_rows)
                start = perf_counter()
                done = flush.flush_batch(
                    FlushBatch(NAME, {WHERE: span}, records),
                    RetryBackoff(random.Random(0)),  # noqa: S311 - no secret
                )
                ended = perf_counter()
                assert isinstance(done, BatchCommitted)
                at = span.next
                runs.append((steps["staged"] - start, ended - steps["staged"], ended - start))
            if size is not None:
                medians = map(statistics.median, zip(*runs, strict=True))
                results[f"{size:g}"] = dict(zip(("stage", "commit", "flush"), medians, strict=True))
        lake.close()
        return results


def _records(count: int) -> pa.Table:
    rng = random.Random(1)  # noqa: S311 - filler
    values = [rng.randbytes(RECORD - 4) for _ in range(min(count, 5000))]
    rows = [
        {"topic": "t", "partition": 0, "offset": n, "key": b"%04d" % (n % 9999), "value": v}
        for n, v in enumerate(values)
    ]
    block = pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)
    blocks = [block] * (count // len(rows)) + [block.slice(0, count % len(rows))]
    return pa.concat_tables(blocks)


if __name__ == "__main__":
    main()
