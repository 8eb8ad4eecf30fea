"""A rehearsal of one flush before the group is joined, in a table that is thrown away.

The first flush of a JVM loads some thousand classes and takes several times as long as the second.
Done here, it delays nobody: the partitions are still with their old owners. Nothing of it is seen
in the catalog.
"""

import logging
import tempfile
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame

from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.lake.decoding.spark_decoders import decode
from trimtab.consumer_sdk.lake.lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import Marks
from trimtab.consumer_sdk.lake.schema.record_columns import SCHEMA

log = logging.getLogger("trimtab.lake")

_ROWS: Final = [
    {"topic": "t", "partition": 0, "offset": 0, "value": b'{"id": 1}', "headers": [("h", b"")]},
    {"topic": "t", "partition": 0, "offset": 1, "value": b"{"},
]


def rehearse(lake: SparkLake) -> None:
    """Stage and commit two rows; a failure is only logged, since the real flush will name it."""
    if not str(lake.spark.sparkContext.master).startswith("local"):
        return  # the executors do not share this machine's folders
    with tempfile.TemporaryDirectory(prefix="trimtab-", ignore_cleanup_errors=True) as folder:
        try:
            rows = lake.frame(pa.Table.from_pylist(_ROWS, schema=SCHEMA))
            in_spark = isinstance(rows, DataFrame)  # nothing else decodes in Spark
            decoded = decode(rows, "id BIGINT" if in_spark else None)
            table = lake.scratch(folder, decoded.good)
            staged = table.stage(decoded.good, "trimtab-rehearsal")
            table.commit(staged, Marks(), table.look())
            if decoded.bad is not None:
                decoded.bad.isEmpty()
        except TrimtabError as error:
            log.debug("the rehearsal failed: %s", error)
