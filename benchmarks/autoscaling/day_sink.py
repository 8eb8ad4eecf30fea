"""A sink beside a side of bench_day: `trimtab ingest` writes the side's topic to an Iceberg table meanwhile.

It is a group of its own, and its process has all the CPU time that it takes: the sides' capacities are those
of their own consumers. Once the day is over and the table has every record, the rows are compared with
the topic's offsets.
"""

import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from time import monotonic

import yaml

from benchmarks.bridge_streams import count_record_differences
from trimtab.consumer_sdk.lake import LakeReader, LakeRows

TABLE = "bench.day"
BATCH_AGE = "10 s"  # four minutes of the day
PATIENCE = 300.0
"""Seconds for the table to have every record of the topic."""


@contextmanager
def run_sink(bootstrap: str, topic: str, folder: Path, found: dict[str, int]) -> Generator[None]:
    """Write the topic to a table within the context; then `found` has the numbers of records and differences.

    Raises RuntimeError if the table lacks records after PATIENCE.
    """
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": f"{topic}-lake",
        "topics": [topic],
        "lake.tables": {topic: TABLE},
        "lake.warehouse": str(folder / "lake"),
        "batch.max.age": BATCH_AGE,
        "spark.driver.memory": "1g",
    }
    file = folder / "ingest.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "trimtab.cli", "ingest", "--config", str(file)]
    process = subprocess.Popen(command, stdout=sys.stderr)  # the last line on stdout is RESULT
    try:
        yield
        with LakeReader(TABLE, config) as reader:
            found.update(_compare(_read_whole_table(reader)))
    finally:
        process.terminate()
        process.wait(PATIENCE)


def _read_whole_table(reader: LakeReader) -> LakeRows:
    """Read until no record is behind the table's marks."""
    pause, deadline = Event(), monotonic() + PATIENCE
    while True:
        rows = reader.read()
        if (
            rows.table_version
            and rows.topic_ranges
            and all(gap.first == gap.next for gap in rows.topic_ranges.values())
        ):
            return rows
        if monotonic() > deadline:
            raise RuntimeError(f"the table lacks {rows.topic_ranges} after {PATIENCE:g} s")
        pause.wait(1.0)


def _compare(rows: LakeRows) -> Mapping[str, int]:
    ends = {where.partition: gap.next for where, gap in rows.topic_ranges.items()}
    return {"records": sum(ends.values()), **count_record_differences(rows.to_arrow(), ends)}
