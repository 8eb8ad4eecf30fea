"""`trimtab tables connect`: the printed lines, executed as they are."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.cli.main import main
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.formats.table_format import resolve_requirements
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets
from trimtab.consumer_sdk.lake.options.settings import SessionConfig

pytestmark = pytest.mark.spark

P0 = TopicPartition("orders", 0)
DUCKDB = Path(__file__).parents[3] / "build" / "duckdb"
BOTH_FORMATS = pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)


@pytest.fixture
def lines(
    lake: SparkLake, namespace: str, warehouse: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Callable[[str], str]:
    """Make a table of three rows; print an engine's lines for it."""
    table_format = "delta" if isinstance(lake, DeltaLake) else "iceberg"
    rows = lake.to_frame(pa.table({"id": pa.array([1, 2, 3], pa.int64())}))
    table = lake.create_table(f"{namespace}.orders", rows)
    table.commit(table.stage_rows(rows, "a"), CommittedOffsets({"g": {P0: 3}}), table.read_offsets())
    file = tmp_path / "ingest.yaml"
    file.write_text(f"lake.format: {table_format}\nlake.warehouse: {warehouse}\n")

    def run(engine: str) -> str:
        assert main(["tables", "connect", engine, table.name, "--config", str(file)]) == 0
        return capsys.readouterr().out

    return run


@pytest.mark.parametrize("lake", ["iceberg", pytest.param("delta", marks=pytest.mark.slow)], indirect=True)
def test_spark(lake: SparkLake, lines: Callable[[str], str], warehouse: Path, tmp_path: Path) -> None:
    """A session of one's own with the printed settings, in its own JVM."""
    printed = lines("spark")
    name = "delta" if isinstance(lake, DeltaLake) else "iceberg"
    requirements = resolve_requirements(SessionConfig(warehouse=str(warehouse), format=name))
    packages, settings = "spark.jars.packages " + ",".join(requirements.coordinates), tmp_path / "spark.conf"
    assert packages in printed
    jars = ",".join(map(str, requirements.fetch_jars()))  # downloaded already
    settings.write_text(printed.replace(packages, f"spark.jars {jars}"))
    query = printed.splitlines()[-1].removeprefix("# ")
    program = (
        "import sys; from pyspark.sql import SparkSession\n"
        "print('ids', [row.id for row in SparkSession.builder.getOrCreate().sql(sys.argv[1]).collect()])"
    )
    arguments = f"--properties-file {settings} --master local[1] pyspark-shell"
    done = subprocess.run(
        [sys.executable, "-c", program, query],
        env=os.environ | {"PYSPARK_SUBMIT_ARGS": arguments},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "ids [1, 2, 3]" in done.stdout, done.stderr


def test_pyiceberg(lines: Callable[[str], str]) -> None:
    """By its catalog of SQL."""
    found: dict[str, Any] = {}
    exec(lines("pyiceberg"), found)  # noqa: S102 - what a user does
    assert found["rows"].column("id").to_pylist() == [1, 2, 3]


@BOTH_FORMATS
@pytest.mark.skipif(not DUCKDB.exists(), reason="`make build/duckdb` installs DuckDB with its extensions")
def test_duckdb(lines: Callable[[str], str], tmp_path: Path) -> None:
    """By its command line's API, in a process that has the version with extensions."""
    program = (
        "import sys, duckdb, pathlib; connection = duckdb.connect()\n"
        "for file in pathlib.Path(sys.path[1]).glob('**/*.duckdb_extension'):\n"
        "    connection.execute(f\"INSTALL '{file}'\")\n"
        "print('rows', connection.execute(sys.argv[1]).fetchall())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, lines("duckdb")],
        env={"PYTHONPATH": str(DUCKDB), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert "rows [(1,), (2,), (3,)]" in done.stdout, done.stderr


@BOTH_FORMATS
def test_trino(lake: SparkLake, lines: Callable[[str], str], namespace: str, warehouse: Path) -> None:
    """Only compared: no test runs Trino."""
    printed = lines("trino")
    if isinstance(lake, DeltaLake):
        place = (warehouse / namespace / "orders").as_uri()
        assert f"register_table('{namespace}', 'orders', '{place}')" in printed
    else:
        assert f"iceberg.jdbc-catalog.connection-url=jdbc:sqlite:{warehouse / 'catalog.db'}" in printed


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
def test_an_engine_that_does_not_read_the_format(
    lines: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names those that do; tables of a catalog are reached by its own settings."""
    with pytest.raises(AssertionError):
        lines("pyiceberg")
    assert "the tables are Delta's; write spark, duckdb, trino" in capsys.readouterr().err
    file = tmp_path / "rest.yaml"
    file.write_text("lake.catalog.type: rest\nlake.catalog.uri: http://catalog\n")
    assert main(["tables", "connect", "spark", "--config", str(file)]) == 2
    assert "lake.catalog.*" in capsys.readouterr().err
