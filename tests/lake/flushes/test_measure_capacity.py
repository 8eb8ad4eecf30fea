"""`trimtab measure-capacity` on a real broker, with the lake's own writer."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from support.lake.slow_on_delta import slow_on_delta
from trimtab.cli.measure_capacity import run as command
from trimtab.cli.measure_capacity.capacity_settings import build_ingest_config, parse_cases
from trimtab.cli.measure_capacity.measurement import CapacityRig, fill_topics, make_values
from trimtab.common.clock import SystemClock
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@slow_on_delta("iceberg", "delta_arrow")
def test_every_record_of_the_backlog_is_written_and_topics_are_removed(
    lake: SparkLake, bootstrap: str, admin: Any, namespace: str, warehouse: Path
) -> None:
    """The throughput of a case is that of all its bytes, through the consumer into each topic's table."""
    client, lines = {"bootstrap.servers": bootstrap}, list[str]()
    given = {"lake.format": "iceberg" if isinstance(lake, IcebergLake) else "delta", "batch.bytes": "50 kB"}
    config = build_ingest_config(given, namespace, str(warehouse), is_embedded=False) | client
    rig = CapacityRig(config, client, lake, f"capacity-{namespace}", SystemClock(), lines.append)
    (case,) = parse_cases(["2:5:0.2"])
    measured = rig.measure_case(case, make_values(500), "case-1")
    assert measured.size == 200_000
    assert measured.rate == measured.size / measured.seconds > 0
    tables = [table for table in lake.list_tables() if table.startswith(f"{namespace}.")]
    rows = [lake.spark.table(table) for table in tables]
    assert sum(table.count() for table in rows) == 400
    assert sorted(table.select("partition").distinct().count() for table in rows) == [2, 3]
    assert not [topic for topic in admin.list_topics(timeout=10).topics if topic.startswith(rig.name)]
    assert "case-1: producing 200.0 kB into 5 partitions" in lines


@slow_on_delta("iceberg_arrow", "delta_arrow")
def test_changes_are_measured_with_values_of_a_file(
    lake: SparkLake, bootstrap: str, namespace: str, warehouse: Path
) -> None:
    """Upserts of the keys in the values: every table has one row for each of them."""
    client = {"bootstrap.servers": bootstrap}
    upserts = {"lake.write": "upsert", "lake.key": "id", "lake.decoder": "json", "lake.schema": "id BIGINT"}
    given = {"lake.format": "iceberg" if isinstance(lake, IcebergLake) else "delta", **upserts}
    config = build_ingest_config(given, namespace, str(warehouse), is_embedded=False) | client
    rig = CapacityRig(config, client, lake, f"capacity-{namespace}", SystemClock(), lambda _: None)
    (case,) = parse_cases(["1:2:0.02"])
    rig.measure_case(case, [b'{"op":"c","after":{"id":%d}}' % key for key in range(30)], "case-1")
    (table,) = (name for name in lake.list_tables() if name.startswith(f"{namespace}."))
    assert sorted(row.id for row in lake.spark.table(table).collect()) == list(range(30))


def test_folders_of_delta_are_removed(delta: SparkLake, namespace: str, warehouse: Path) -> None:
    """By the storage's own client, so also from an object storage."""
    folder = warehouse / namespace
    delta.spark.range(1).write.format("delta").save(str(folder / "t"))
    command.remove_folder(delta, f"file:{folder}")
    assert not folder.exists()


def test_refused_records_end_the_measurement(bootstrap: str, topic: Callable[..., str]) -> None:
    """It would wait for them for ever."""
    small = topic(partitions=1, **{"max.message.bytes": "200"})
    with pytest.raises(SettingError, match=r"refused 4 records .*--values"):
        fill_topics({"bootstrap.servers": bootstrap}, {small: 1}, 2000, make_values(500))


def test_tables_of_a_catalog_are_dropped_with_their_files(lake: SparkLake, namespace: str) -> None:
    """Nothing of a measurement stays in a catalog that has other tables."""
    lake.spark.sql(f"CREATE NAMESPACE {namespace}")
    lake.spark.range(1).writeTo(f"{namespace}.t").create()
    (file,) = [row.file_path for row in lake.spark.table(f"{namespace}.t.files").collect()]
    command.drop_tables(lake, namespace)
    assert not Path(str(file).removeprefix("file:")).exists()
    assert not lake.spark.sql("SHOW NAMESPACES").where(f"namespace = '{namespace}'").collect()
