"""Rehearses one flush before the join, in a temporary table outside the catalog.

The first flush of a JVM loads thousands of classes and takes several times as long as the second.
Before the join it delays no partition: their old owners still read them.
"""

import logging
import tempfile
from typing import Final

import pyarrow as pa

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

log = logging.getLogger("trimtab.lake")

_REHEARSAL_ROWS: Final = [
    {"topic": "t", "partition": 0, "offset": 0, "value": b'{"id": 1}', "headers": [("h", b"")]},
    {"topic": "t", "partition": 0, "offset": 1},
]


def rehearse_flush(lake: SparkLake) -> None:
    """Stage and commit two rows; failures are logged only."""
    if not str(lake.spark.sparkContext.master).startswith("local"):
        return  # a cluster's executors do not share this machine's folders
    with tempfile.TemporaryDirectory(prefix="trimtab-", ignore_cleanup_errors=True) as folder:
        try:
            rows = lake.to_frame(pa.Table.from_pylist(_REHEARSAL_ROWS, schema=RECORD_SCHEMA))
            table = lake.create_scratch_table(folder, rows)
            staged = table.stage_rows(rows, "trimtab-rehearsal")
            table.commit(staged, CommittedOffsets(), table.read_offsets())
        except TrimtabError as error:
            # the first real flush fails with the same error, and raises it
            log.debug("the rehearsal failed: %s", error)
