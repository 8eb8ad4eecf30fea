"""`trimtab doctor --ingest` on real tables: the groups of their offsets, and tables that fail to open."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from support.lake.slow_on_delta import slow_on_delta
from trimtab.assignor.model import TopicPartition
from trimtab.cli.main import main
from trimtab.consumer_sdk.errors import CommittedOffsetsLostError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.options.settings import TABLE_FORMATS
from trimtab.consumer_sdk.lake.session import factory

pytestmark = [pytest.mark.spark, pytest.mark.broker]

EACH = pytest.mark.parametrize("lake", ["iceberg_arrow", "delta_arrow"], indirect=True)
SLOW_ON_DELTA = slow_on_delta("iceberg_arrow", "delta_arrow")


@pytest.fixture
def findings(
    lake: SparkLake,
    bootstrap: str,
    warehouse: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[..., dict[str, Any]]:
    """Run the doctor on the run's lake; return the findings by part."""
    monkeypatch.setattr(factory, "open_lake", lambda _: lake)
    kind = TABLE_FORMATS[type(lake).__name__.startswith("Delta")]

    def run(group: str, **more: str) -> dict[str, Any]:
        file = tmp_path / "ingest.yaml"
        given = {"bootstrap.servers": bootstrap, "group.id": group, "topics": ["orders"]}
        place = {"lake.warehouse": str(warehouse), "lake.format": kind}
        file.write_text(yaml.safe_dump({**given, **place, **more}))
        words = ["--bootstrap", bootstrap, "--group", "g", "--ingest", str(file)]
        main(["doctor", *words, "--format", "json"])
        return {f["check"]: f for f in json.loads(capsys.readouterr().out)["findings"]}

    return run


@EACH
def test_each_table_is_reported_with_the_groups_of_its_offsets(
    lake: SparkLake, namespace: str, findings: Callable[..., dict[str, Any]]
) -> None:
    """The ingest's group and catalog are compared with them."""
    frame = lake.to_frame(pa.table({"id": [1, 2]}))
    table = lake.create_table(f"{namespace}.orders", frame)
    offsets = CommittedOffsets({"lake-group": {TopicPartition("orders", 0): 2}})
    table.commit(table.stage_rows(frame, "a"), offsets, table.read_offsets())
    found = findings("g")
    finding = found[f"table {namespace}.orders"]
    assert (finding["level"], finding["message"]) == ("ok", "offsets of lake-group")
    assert found["catalog"]["level"] == "ok"
    assert found["settings of the consumers"]["level"] == "ok"
    assert findings("another")["settings of the consumers"]["level"] == "failed"


@SLOW_ON_DELTA
def test_a_missing_lake_is_a_finding(
    lake: SparkLake, tmp_path: Path, findings: Callable[..., dict[str, Any]]
) -> None:
    """A warehouse that does not exist is a failed check, not a traceback."""
    del lake
    found = findings("g", **{"lake.warehouse": str(tmp_path / "nowhere")})
    assert found["tables"]["level"] == "failed"
    assert "nowhere" in found["tables"]["message"]


@SLOW_ON_DELTA
def test_a_broken_table_does_not_hide_the_others(
    lake: SparkLake, namespace: str, findings: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is a failed check with its name, and the next table is examined."""
    frame = lake.to_frame(pa.table({"id": [1]}))
    for name in ("broken", "sound"):
        lake.create_table(f"{namespace}.{name}", frame)
    opened = type(lake).open_table

    def failing(self: SparkLake, name: str) -> Any:
        if name == f"{namespace}.broken":
            raise CommittedOffsetsLostError(f"{name}: its offsets are lost")
        return opened(self, name)

    monkeypatch.setattr(type(lake), "open_table", failing)
    found = findings("g")
    assert found[f"table {namespace}.broken"]["level"] == "failed"
    assert found[f"table {namespace}.sound"]["level"] == "ok"
