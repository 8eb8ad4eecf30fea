"""A writer that is killed after it staged the same rows three times and committed the first attempt.

`python -m object_store.staged_attempts FOLDER TABLE SETTINGS` prints the data file of each attempt in JSON;
FOLDER is where the store keeps the objects of the table's namespace, SETTINGS are JSON.
"""

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from trimtab.consumer_sdk.lake.factory import open_lake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.settings import parse_session_config

PLACES: Final = [(0, 1), (0, 2)]
COMMITTED: Final = "committed"
ATTEMPTS: Final = (COMMITTED, "crashed", "in-progress")


def stage_attempts(folder: Path, name: str, settings: dict[str, Any]) -> dict[str, str]:
    """Return the data file of each attempt."""
    files = dict[str, str]()
    lake = open_lake(parse_session_config(settings))
    partitions, offsets = zip(*PLACES, strict=True)
    rows = lake.to_frame(pa.table({"partition": partitions, "offset": offsets}))
    table = lake.create_table(name, rows)
    for attempt in ATTEMPTS:
        staged = table.stage_rows(rows, attempt)
        (files[attempt],) = {str(file) for file in folder.rglob("*.parquet")} - {*files.values()}
        if attempt == COMMITTED:
            table.commit(staged, CommittedOffsets(), table.read_offsets())
    return files


if __name__ == "__main__":
    print(json.dumps(stage_attempts(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))), flush=True)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)
