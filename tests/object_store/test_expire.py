"""Files that failed tries left in an object store are removed with `trimtab tables expire`'s rules."""

import os
import shutil
from pathlib import Path
from time import time

import pyarrow as pa
import pytest

from object_store.rig import ObjectStoreRig
from trimtab.consumer_sdk.lake.factory import create_maintenance, open_lake
from trimtab.consumer_sdk.lake.maintenance import ExpiryPolicy
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.settings import parse_session_config

pytestmark = [pytest.mark.object_store, pytest.mark.usefixtures("credentials")]

DAY = 86_400.0
TABLE = "orphans.t"


def leave_behind(file: Path, age: float) -> Path:
    """Copy a data file, as a try that was not committed leaves one behind."""
    orphan = file.with_name(f"orphan-{age:.0f}.parquet")
    shutil.copy2(file, orphan)
    then = time() - age
    os.utime(orphan, (then, then))
    return orphan


def test_orphans_are_removed(object_store: ObjectStoreRig) -> None:
    """Those that are old enough, and no file of the table."""
    small = {"spark.master": "local[1]", "spark.driver.memory": "512m", "lake.file.writer": "arrow"}
    lake = open_lake(parse_session_config({**object_store.settings("iceberg"), **small}))
    try:
        rows = lake.to_frame(pa.table({"n": [1, 2]}))
        table = lake.create_table(TABLE, rows)
        table.commit(table.stage_rows(rows, "attempt"), CommittedOffsets(), table.read_offsets())
        (kept,) = object_store.warehouse.rglob("orphans/**/*.parquet")
        old, young = leave_behind(kept, 2 * DAY), leave_behind(kept, 60.0)
        found = create_maintenance(lake).expire_versions(TABLE, ExpiryPolicy(DAY, DAY), time())
        assert found.orphans == 1
        assert [file.exists() for file in (kept, young, old)] == [True, True, False]
    finally:
        lake.close()
