"""`trimtab tables expire` removes the files that failed tries left in an object store."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import time
from typing import Any

import pytest
import yaml

from object_store.readers import read_table
from object_store.rig import ObjectStoreRig
from object_store.staged_attempts import PLACES

pytestmark = [pytest.mark.object_store, pytest.mark.usefixtures("credentials")]

DAY = 86_400.0
LIMIT_S = 270  # of each of two commands; at a load of 20 one took more than 180


def run_writer(write: str, folder: Path, table: str, settings: dict[str, Any]) -> dict[str, list[Path]]:
    """Return the files of each attempt of a writer that was killed."""
    arguments = [write, str(folder), table, json.dumps(settings)]
    command = [sys.executable, "-m", "object_store.staged_attempts", *arguments]
    tests = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=tests, check=False, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S)
    assert done.returncode == -signal.SIGKILL
    return {attempt: [*map(Path, files)] for attempt, files in json.loads(done.stdout).items()}


def make_older(file: Path, age_s: float) -> None:
    """Set back the time that the store has for an object."""
    then = time() - age_s
    os.utime(file, (then, then))


def expire(table: str, config: Path) -> list[str]:
    """Run `trimtab tables expire` with the shortest ages; return the columns of the table's line."""
    ages = ["--older-than", "1 h", "--orphans-older-than", "1 d"]
    command = [sys.executable, "-m", "trimtab.cli", "tables", "expire", table, "--config", str(config), *ages]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (line for line in done.stdout.splitlines() if table in line)
    return [column.strip() for column in line.strip("│").split("│")]


@pytest.mark.parametrize(
    ("table_format", "write", "writer", "kinds"),
    [
        ("iceberg", "append", "spark", [".parquet"]),
        ("delta", "append", "arrow", [".parquet"]),
        ("delta", "append", "spark", [".parquet"]),
        ("iceberg", "upsert", "arrow", [".parquet", ".puffin"]),
        ("delta", "upsert", "arrow", [".bin", ".parquet"]),
    ],
    ids=["iceberg", "delta", "delta-spark", "iceberg-upsert", "delta-upsert"],
)
def test_old_orphans_are_removed(
    table_format: str, write: str, writer: str, kinds: list[str], object_store: ObjectStoreRig, tmp_path: Path
) -> None:
    """Those of a crashed try; neither those of a try in progress, nor a file of the table, however old."""
    namespace = f"orphans_{table_format}_{write}_{writer}"
    settings = {
        "lake.format": table_format,
        "lake.file.writer": writer,
        "spark.master": "local[1]",
        "spark.driver.memory": "512m",
        **object_store.settings(table_format),
    }
    name = f"{namespace}.t_{write}"  # its last part is enough to find it in the catalog's database
    files = run_writer(write, object_store.warehouse / namespace, name, settings)
    assert all(sorted(file.suffix for file in attempt) == kinds for attempt in files.values())
    for file in (*files["committed"], *files["crashed"]):
        make_older(file, 2 * DAY)
    config = tmp_path / "lake.yaml"
    config.write_text(yaml.safe_dump(settings))
    orphans = str(len(kinds))
    counted = ["0", orphans, "among them"] if table_format == "delta" else ["0", "0", orphans]
    assert expire(name, config) == [name, *counted]
    left = {attempt: [file.exists() for file in found] for attempt, found in files.items()}
    everything = [True] * len(kinds)
    assert left == {"committed": everything, "crashed": [False] * len(kinds), "in-progress": everything}
    assert read_table(object_store, table_format, name) == PLACES
