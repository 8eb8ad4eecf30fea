"""`trimtab ingest` into an object store: each record is in the table once, read without Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from object_store.ingest import ALL_PLACES, COUNT, Ingest
from object_store.readers import Place, jdbc_location, read_delta, read_iceberg, read_table, rest_location
from object_store.rig import WAREHOUSE, ObjectStoreRig, storage_settings
from object_store.servers import Postgres
from trimtab.consumer_sdk.java.jars import NO_DEPENDENCIES, fetch_jars

pytestmark = [pytest.mark.object_store, pytest.mark.broker]

NO_BUCKET = "the bucket does not exist: create it"
POSTGRES_DRIVER = "org.postgresql:postgresql:42.7.7"


def check_complete(eventually: Any, ingest: Ingest, read: Callable[[], list[Place]]) -> None:
    """Wait until the table has as many rows as the topic; they must be the topic's."""
    eventually(lambda: len(read()) >= COUNT or not _all_alive(ingest), timeout=90)
    assert read() == ALL_PLACES, ingest.read_log()
    assert not any(ingest.stop()), ingest.read_log()
    assert read() == ALL_PLACES


def _all_alive(ingest: Ingest) -> bool:
    return all(process.poll() is None for process in ingest.started)


@pytest.mark.parametrize("writer", ["spark", "arrow"])
def test_iceberg_by_rest_is_exactly_once(
    writer: str, object_store: ObjectStoreRig, ingest: Ingest, eventually: Any
) -> None:
    """With both writers of data files."""
    settings = {**ingest.to_namespace("rest"), "lake.file.writer": writer}
    ingest.start(settings | object_store.settings("iceberg"))
    check_complete(
        eventually, ingest, lambda: read_iceberg(object_store, rest_location(object_store, ingest.table))
    )


def find_driver() -> str:
    """Return PostgreSQL's driver as a file, without its dependencies, which are annotations."""
    (jar,) = fetch_jars("postgres", (POSTGRES_DRIVER,), excludes=(NO_DEPENDENCIES,), is_pinned=False)
    return str(jar)


@pytest.mark.parametrize("setting", ["spark.jars.packages", "spark.jars"])
def test_iceberg_by_jdbc_is_exactly_once(
    setting: str, object_store: ObjectStoreRig, ingest: Ingest, eventually: Any, tmp_path: Path
) -> None:
    """The catalog is a PostgreSQL database; Spark downloads its driver, or is given a file."""
    with Postgres(tmp_path / "postgres.log") as postgres:
        settings = {
            "lake.catalog.type": "jdbc",
            "lake.catalog.uri": postgres.jdbc,
            "lake.catalog.jdbc.user": "lake",
            "lake.warehouse": WAREHOUSE,
            **ingest.to_namespace("jdbc"),
            setting: POSTGRES_DRIVER if setting == "spark.jars.packages" else find_driver(),
        }
        ingest.start(settings | storage_settings(object_store.store.address))
        check_complete(
            eventually, ingest, lambda: read_iceberg(object_store, jdbc_location(postgres, ingest.table))
        )


@pytest.mark.parametrize("writer", ["spark", "arrow"])
def test_delta_with_two_writers_is_exactly_once(
    writer: str, object_store: ObjectStoreRig, ingest: Ingest, eventually: Any
) -> None:
    """Two processes commit to one table's log, where S3 alone grants a version to one of them."""
    settings = {"lake.format": "delta", **ingest.to_namespace("delta"), "lake.file.writer": writer}
    for _ in range(2):
        ingest.start(settings | object_store.settings("delta"))
    check_complete(eventually, ingest, lambda: read_delta(object_store, f"delta.{ingest.table}"))


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
def test_a_missing_bucket_is_named_and_loses_nothing(
    table_format: str, ingest: Ingest, eventually: Any, tmp_path: Path
) -> None:
    """Once it has been created, the same process goes on, and each record is there once."""
    with ObjectStoreRig(tmp_path, with_catalog=table_format == "iceberg") as rig:
        rig.gateway.bucket.rmdir()
        settings = {"lake.format": table_format, **ingest.to_namespace("late")}
        settings["lake.flush.timeout"] = "60 s"  # a busy machine's first try is not the last one
        ingest.start(settings | rig.settings(table_format))
        eventually(lambda: NO_BUCKET in ingest.read_log() or not _all_alive(ingest), timeout=90)
        assert NO_BUCKET in ingest.read_log(), ingest.read_log()
        rig.gateway.bucket.mkdir()
        check_complete(eventually, ingest, lambda: read_table(rig, table_format, f"late.{ingest.table}"))
