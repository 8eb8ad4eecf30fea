"""A writer whose JVM's wall clock is right, then 20 minutes ahead, then as much behind, then right.

`python -m object_store.clock_writer FOLDER TABLE SETTINGS` writes two batches by each; SETTINGS are JSON.
"""

import json
import sys
from pathlib import Path
from typing import Final

from faults import wall_clock
from object_store.flushes import BATCH_RECORDS, flush_batches, open_small_lake

CLOCKS: Final = (0.0, 1200.0, -1200.0, 0.0)
BATCHES: Final = 2


def main(folder: Path, table: str, settings: str) -> None:
    file = folder / "ahead"
    wall_clock.install(wall_clock.build(folder), file)
    with open_small_lake(json.loads(settings)) as lake:
        for number, ahead in enumerate(CLOCKS):
            wall_clock.set_ahead(file, ahead)
            flush_batches(lake, table, number * BATCHES * BATCH_RECORDS, BATCHES)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
