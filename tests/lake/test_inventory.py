"""`trimtab tables`: what is in the lake."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition

P0, P3 = TopicPartition("orders", 0), TopicPartition("orders", 3)
pytestmark = pytest.mark.spark


def test_tables_are_listed_with_their_marks(
    writers: Callable[..., Any], spark: Any, namespace: str, warehouse: Path
) -> None:
    """Rows, files, snapshots and next offsets, also of a table that is not Trimtab's.

    By another process.
    """
    consumer, writer = writers({P0: [b"v"] * 3, P3: [b"v"] * 2})
    consumer.join(writer, P0, P3)
    writer.write(consumer.consume(10))
    writer.close()
    spark.sql(f"CREATE TABLE {namespace}.other (a INT) USING iceberg")
    command = [sys.executable, "-m", "trimtab.cli", "tables", "--warehouse", str(warehouse)]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, check=True)
    found = {facts["name"]: facts for facts in json.loads(done.stdout)["tables"]}
    assert {**found[f"{namespace}.orders"], "bytes": 0} == {
        "name": f"{namespace}.orders",
        "rows": 5,
        "files": 1,
        "bytes": 0,
        "snapshots": 1,
        "marks": {"g": {"orders": {"0": 3, "3": 2}}},
        "note": "",
    }
    assert found[f"{namespace}.other"]["rows"] == 0
    assert found[f"{namespace}.other"]["marks"] == {}


def test_a_folder_without_a_lake_is_a_bad_setting(tmp_path: Path) -> None:
    """Nothing is made just by looking."""
    command = [sys.executable, "-m", "trimtab.cli", "tables", "--warehouse", str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"there is no lake in" in done.stderr
    assert not (tmp_path / "x").exists()
