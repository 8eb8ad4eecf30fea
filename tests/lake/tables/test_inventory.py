"""`trimtab tables`: the inventory of a lake."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.table_format import hadoop_path
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

P0, P3 = TopicPartition("orders", 0), TopicPartition("orders", 3)
pytestmark = pytest.mark.spark


def test_tables_are_listed_with_their_offsets(
    writers: Callable[..., Any], spark: Any, namespace: str, warehouse: Path
) -> None:
    """Another process prints rows, files, snapshots and offsets, also of a table of another writer."""
    consumer, writer = writers({P0: [b"v"] * 3, P3: [b"v"] * 2})
    consumer.assign(writer, P0, P3)
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
        "committed_offsets": {"g": {"orders": {"0": 3, "3": 2}}},
        "note": "",
    }
    assert found[f"{namespace}.other"]["rows"] == 0
    assert found[f"{namespace}.other"]["committed_offsets"] == {}


def test_a_delta_lake_is_detected_from_its_folder(delta: DeltaLake, tmp_path: Path) -> None:
    """Rows, files, versions and next offsets are listed without a format setting."""
    lake = DeltaLake(delta.spark, hadoop_path(str(tmp_path)), file_writer="spark")
    frame = delta.spark.range(3).coalesce(1)
    table = lake.create_table("here.things", frame)
    table.commit(table.stage_rows(frame, "a"), CommittedOffsets({"g": {P0: 3}}), table.read_offsets())
    command = [sys.executable, "-m", "trimtab.cli", "tables", "--warehouse", str(tmp_path)]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, check=True)
    (found,) = json.loads(done.stdout)["tables"]
    assert {**found, "bytes": 0} == {
        "name": "here.things",
        "rows": 3,
        "files": 1,
        "bytes": 0,
        "snapshots": 2,
        "committed_offsets": {"g": {"orders": {"0": 3}}},
        "note": "",
    }


def test_what_the_jvm_writes_stays_out_of_the_json(
    delta: DeltaLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java writes its log to standard output, here that of its collections; the inventory stays readable."""
    frame = delta.spark.range(1).coalesce(1)
    DeltaLake(delta.spark, hadoop_path(str(tmp_path)), file_writer="spark").create_table("here.things", frame)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xlog:startuptime,gc*,safepoint*:stdout")
    command = [sys.executable, "-m", "trimtab.cli", "tables", "--warehouse", str(tmp_path)]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, check=True)
    (found,) = json.loads(done.stdout)["tables"]
    assert found["name"] == "here.things"
    assert b"[gc" in done.stderr  # the JVM did write


def test_a_folder_without_a_lake_is_a_setting_error(tmp_path: Path) -> None:
    """Listing creates nothing."""
    command = [sys.executable, "-m", "trimtab.cli", "tables", "--warehouse", str(tmp_path / "x")]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"there is no lake in" in done.stderr
    assert not (tmp_path / "x").exists()
