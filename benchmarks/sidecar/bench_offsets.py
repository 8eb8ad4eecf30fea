"""Cost of a table's offsets: bytes of one snapshot, and a commit beside many snapshots (Iceberg).

Each snapshot keeps the offsets of all partitions, and each commit writes the metadata file of all
snapshots. Offsets have nine digits; commits are without rows, into a warehouse in a local folder.
The figures are those after the last snapshot; commits are medians of the last ten.
"""

import random
import statistics
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa

from benchmarks import harness
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.model.interfaces import StagedFiles, new_attempt_id
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets, OffsetSpan
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.lake.session.factory import open_lake

GROUP = "lake"
NAME = "bench.offsets"


def main() -> None:
    arguments = _parse_arguments()
    sizes = {n: len(_generate_offsets(n).encode()) for n in (100, 1_000, 10_000, 100_000)}
    harness.result(
        {"bytes_by_partitions": sizes, **_time_snapshots(arguments.partitions, arguments.snapshots)}
    )


def _parse_arguments() -> Namespace:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--snapshots", type=int, default=200)
    return parser.parse_args()


def _generate_offsets(partitions: int) -> CommittedOffsets:
    rng = random.Random(1)  # noqa: S311 - no secret
    return CommittedOffsets(
        {GROUP: {TopicPartition("orders", p): rng.randrange(10**8, 10**9) for p in range(partitions)}}
    )


def _time_snapshots(partitions: int, snapshots: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        lake = open_lake(SessionConfig(warehouse=folder))
        table = lake.create_table(NAME, lake.to_frame(pa.Table.from_pylist([], RECORD_SCHEMA)))
        table.commit(StagedFiles(new_attempt_id()), _generate_offsets(partitions), table.read_offsets())
        times = [_commit_next(table) for _ in range(snapshots - 1)]
        newest = max(Path(folder).rglob("*.metadata.json"), key=lambda file: file.stat().st_mtime)
        found = {"partitions": partitions, "snapshots": snapshots, "metadata_bytes": newest.stat().st_size}
        lake.close()
    return found | {"commit_s": round(statistics.median(times[-10:]), 3)}


def _commit_next(table: Any) -> float:
    """Commit one record of one partition, as a flush does; return the seconds."""
    begun = perf_counter()
    seen = table.read_offsets()
    where = TopicPartition("orders", 0)
    first = seen.offsets.next_offset(GROUP, where)
    spans = {where: OffsetSpan(first, first, first + 1)}
    table.commit(StagedFiles(new_attempt_id()), seen.offsets.advanced_by(GROUP, spans), seen)
    return perf_counter() - begun


if __name__ == "__main__":
    main()
