"""Spark's standalone cluster writes to an object store with a REST catalog, as in docs/spark-cluster.md."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from object_store.ingest import ALL_PLACES, COUNT, ChangedTable, Ingest
from object_store.readers import Place, read_rest_rows
from object_store.rig import ObjectStoreRig
from spark_cluster.standalone import SLOW_TRANSFORM, StandaloneCluster, session_settings

pytestmark = [pytest.mark.object_store, pytest.mark.spark_cluster, pytest.mark.broker]

WORKERS = 2


@pytest.fixture
def cluster_settings(
    standalone: StandaloneCluster, object_store: ObjectStoreRig, credentials: None
) -> dict[str, Any]:
    """Settings of an ingest by the cluster; its workers have the store's credentials in their environment."""
    del credentials  # a worker inherits them from this process
    while len(standalone.workers) < WORKERS:
        standalone.add_worker()
    spark = {**session_settings(standalone.url), "spark.cores.max": WORKERS}
    return {**object_store.settings("iceberg"), "lake.file.writer": "spark", **spark}


def test_a_worker_that_dies_in_a_batch_loses_nothing(
    ingest: Ingest,
    standalone: StandaloneCluster,
    object_store: ObjectStoreRig,
    cluster_settings: dict[str, Any],
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """It is killed in the middle of a task; the other one goes on, and each record is there once."""
    (tmp_path / "slowly.py").write_text(SLOW_TRANSFORM)
    settings = {**ingest.to_namespace("cluster"), "lake.transform": "slowly:slow", **cluster_settings}
    process = ingest.start(settings, PYTHONPATH=str(tmp_path))
    eventually(lambda: standalone.find_busy_worker() or process.poll() is not None, timeout=90)
    killed = standalone.find_busy_worker()
    assert killed, ingest.read_log()
    standalone.kill_worker(killed)
    assert killed.has_open_task()
    assert ingest.count_committed() < COUNT

    def read_places() -> list[Place]:
        rows = read_rest_rows(object_store, f"cluster.{ingest.table}", "partition", "offset")
        return sorted((row["partition"], row["offset"]) for row in rows)

    eventually(lambda: len(read_places()) >= COUNT or process.poll() is not None, timeout=90)
    assert ingest.stop() == [0], ingest.read_log()
    assert read_places() == ALL_PLACES


def test_a_table_of_changes_equals_a_replay(
    changes: Ingest,
    object_store: ObjectStoreRig,
    cluster_settings: dict[str, Any],
    eventually: Callable[..., None],
) -> None:
    """The second half of the changes updates and deletes rows of the first."""
    process = changes.start({**changes.to_namespace("cluster_changes"), **cluster_settings})
    names = ("id", "name", "n")
    table = ChangedTable(
        changes, lambda: read_rest_rows(object_store, f"cluster_changes.{changes.table}", *names), seed=12
    )
    for _ in range(2):
        table.write_half(process, eventually)
    assert changes.stop() == [0], changes.read_log()
    assert table.equals_replay()
