"""A writer whose wall clock is 20 minutes off that of S3, of the catalog and of its own last commit."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from object_store.clock_writer import BATCHES, CLOCKS
from object_store.flushes import BATCH_RECORDS
from object_store.readers import read_delta, read_iceberg, rest_location
from object_store.rig import ObjectStoreRig

pytestmark = [pytest.mark.object_store, pytest.mark.usefixtures("credentials")]


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_batches_are_committed_once_by_clocks_20_minutes_apart(
    table_format: str, object_store: ObjectStoreRig, tmp_path: Path
) -> None:
    """S3 takes the requests, and the table format the commits."""
    settings = {**object_store.settings(table_format), "lake.format": table_format}
    name = f"clocks_{table_format}"
    arguments = [str(tmp_path), f"clocks.{name}", json.dumps(settings)]
    command = [sys.executable, "-m", "object_store.clock_writer", *arguments]
    subprocess.run(command, cwd=Path(__file__).parents[1], check=True, timeout=400)
    if table_format == "iceberg":
        places = read_iceberg(object_store, rest_location(object_store, name))
    else:
        places = read_delta(object_store, f"clocks.{name}")
    assert places == [(0, offset) for offset in range(len(CLOCKS) * BATCHES * BATCH_RECORDS)]
