"""Proof of exactly-once delivery: each table holds every produced record once, intact, no others.

Three independent sources must agree: Spark's counts of the tables, the broker's end offsets, and
the producers' tally of acknowledged records.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.cli.demo.producers import PartitionTally
from trimtab.cli.errors import DemoFailedError
from trimtab.common.units import format_count
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.session.factory import open_lake

# corrupt: the embedded checksum or position does not match; coalesce, since a NULL value compares as NULL
PROOF_COLUMNS: Final = """
    topic, partition,
    count(*) AS rows,
    count(DISTINCT offset) AS distinct,
    coalesce(max(offset), -1) + 1 AS next,
    sum(crc32(value)) AS checksums,
    count_if(NOT coalesce(
        encode(lpad(lower(hex(crc32(substring(value, 1, length(value) - 8)))), 8, '0'), 'UTF-8')
            = substring(value, -8, 8)
        AND startswith(value, encode(concat_ws(' ', topic, partition, offset, ''), 'UTF-8'))
        AND key = encode(concat_ws('-', topic, partition, offset), 'UTF-8'), false)) AS corrupt
"""


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """Rows of one partition in a table."""

    rows: int = 0
    distinct: int = 0  # offsets
    next: int = 0  # the largest offset + 1
    checksums: int = 0
    corrupt: int = 0


@dataclass(frozen=True, slots=True)
class DeliveryProof:
    """Result of the comparison; `records` is the broker's count, `faults` lists other failures."""

    records: int
    lost: int
    duplicated: int
    corrupt: int
    faults: tuple[str, ...] = ()

    @property
    def is_exactly_once(self) -> bool:
        """Whether every record arrived exactly once and intact."""
        return not (self.lost or self.duplicated or self.corrupt or self.faults or not self.records)

    def summary_line(self) -> str:
        """Return the result as one line."""
        if self.is_exactly_once:
            return f"exactly once: {format_count(self.records, 'record')}, 0 lost, 0 duplicated"
        faults = f"{self.lost} lost, {self.duplicated} duplicated, {self.corrupt} corrupt"
        return f"NOT exactly once: {format_count(self.records, 'record')}, {faults}"


def prove_delivery(
    stored: Mapping[TopicPartition, StoredPartition],
    ends: Mapping[TopicPartition, int],
    tally: Mapping[TopicPartition, PartitionTally],
    known_faults: Iterable[str] = (),
) -> DeliveryProof:
    """Compare tables, end offsets and tally per partition; `known_faults` are those of earlier phases."""
    lost = duplicated = corrupt = 0
    faults = list(known_faults)
    for where in sorted({*stored, *ends, *tally}):
        held, end = stored.get(where, StoredPartition()), ends.get(where, 0)
        lost += max(0, end - held.distinct)  # distinct: a duplicate must not hide a lost record
        duplicated += held.rows - held.distinct
        corrupt += held.corrupt
        faults += _find_faults(where, held, end, tally.get(where, PartitionTally()))
    return DeliveryProof(sum(ends.values()), lost, duplicated, corrupt, tuple(faults))


def _find_faults(p: TopicPartition, held: StoredPartition, end: int, sent: PartitionTally) -> Iterable[str]:
    if sent.records != end:
        acknowledged = format_count(sent.records, "record was", "records were")
        yield f"{p}: {acknowledged} acknowledged, the broker has {end}"
    if held.next > end:
        yield f"{p}: the table holds offset {held.next - 1}, the broker ends at {end}"
    # checksums of incomplete partitions differ anyway
    is_complete = held.rows == held.distinct == end == sent.records
    if is_complete and held.checksums != sent.checksums:
        yield f"{p}: the checksums of the table do not add up to those of the written records"


def query_tables(task: Mapping[str, Any], log: Path) -> dict[TopicPartition, StoredPartition]:
    """Query the tables of a `task` with Spark in a separate process. Raises DemoFailedError."""
    with log.open("wb") as errors:
        process = subprocess.run(  # noqa: S603 - our own module
            [sys.executable, "-m", __name__, json.dumps(task)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            check=False,
        )
    if process.returncode:
        raise DemoFailedError(f"Spark could not read the tables; see {log}")
    rows = json.loads(process.stdout.splitlines()[-1])  # Spark may print before it
    return {TopicPartition(topic, number): StoredPartition(**facts) for topic, number, facts in rows}


def read_stored_partitions(lake: SparkLake, tables: Iterable[str]) -> dict[TopicPartition, StoredPartition]:
    """Query the tables with Spark; a missing table counts as empty."""
    stored: dict[TopicPartition, StoredPartition] = {}
    for table in (table for table in tables if lake.open_table(table) is not None):
        query = f"SELECT {PROOF_COLUMNS} FROM {table} GROUP BY topic, partition"  # noqa: S608 - our names
        for row in lake.spark.sql(query).collect():
            facts: dict[str, Any] = row.asDict()
            where = TopicPartition(facts.pop("topic"), facts.pop("partition"))
            stored[where] = StoredPartition(**facts)
    return stored


def _run_query(task: Mapping[str, Any]) -> None:
    spark = {"spark.master": "local[2]", "spark.driver.extraJavaOptions": task["java"]}
    lake = open_lake(SessionConfig(warehouse=task["warehouse"], spark=spark, format=task["format"]))
    stored = read_stored_partitions(lake, task["tables"])
    lake.close()
    rows = [(where.topic, where.partition, asdict(facts)) for where, facts in stored.items()]
    sys.stdout.write(json.dumps(rows) + "\n")


if __name__ == "__main__":  # its own process: the demo holds no JVM
    _run_query(json.loads(sys.argv[1]))
