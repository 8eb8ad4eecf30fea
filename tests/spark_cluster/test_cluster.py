"""The sink with Spark's standalone cluster: each way to write files, and workers that die in a batch."""

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from spark_cluster.standalone import SLOW_TRANSFORM, StandaloneCluster, session_settings
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.iceberg.table import IcebergLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.formats.table_format import hadoop_path, resolve_requirements
from trimtab.consumer_sdk.lake.options.settings import SessionConfig
from trimtab.consumer_sdk.lake.session.spark_session import start_session
from trimtab.consumer_sdk.lake.writer import ingest

pytestmark = [pytest.mark.spark_cluster, pytest.mark.broker]

COUNT = 600  # records of a topic
PARTITIONS = 2


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="module")
def lakes(standalone: StandaloneCluster, warehouse: Path) -> Iterator[dict[str, SparkLake]]:
    """The lakes of one session on two workers, by format and file writer."""
    standalone.add_worker()
    standalone.add_worker()
    folder = str(warehouse)
    delta = resolve_requirements(SessionConfig(warehouse=folder, format="delta"))
    jars = {"spark.jars": ",".join(map(str, delta.fetch_jars()))}
    config = SessionConfig(
        warehouse=folder, spark={**delta.settings, **session_settings(standalone.url), **jars}
    )
    spark = start_session(config)
    other = spark.newSession()
    other.conf.set("spark.sql.defaultCatalog", "spark_catalog")
    made: dict[str, SparkLake] = {}
    for writer in ("spark", "arrow"):
        made[f"iceberg-{writer}"] = IcebergLake(spark, config.catalog_name, file_writer=writer)
        made[f"delta-{writer}"] = DeltaLake(other, hadoop_path(folder), file_writer=writer)
    yield made
    spark.stop()


class Run:
    """An ingest of two topics, in a thread of this process."""

    def __init__(self, lake: SparkLake, config: dict[str, Any]) -> None:
        self.lake, self.topics = lake, config["topics"]
        self.namespace = config["lake.table"].partition(".")[0]
        self.error: Exception | None = None
        self._settings = ingest.parse_ingest_settings(config)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ingest)
        self._thread.start()

    def _ingest(self) -> None:
        try:
            ingest.run_ingest(self._settings, self.lake, self._stop)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def count_written(self) -> int:
        tables = filter(None, map(self.lake.open_table, self._list_tables()))
        groups = [table.read_offsets().offsets.groups for table in tables]
        return sum(sum(offsets.values()) for group in groups for offsets in group.values())

    def read_keys(self) -> list[list[int]]:
        """Return the keys of each table's rows, sorted, with duplicates."""
        frames = [self.lake.spark.table(table).select("key") for table in self._list_tables()]
        return [sorted(int(row.key) for row in frame.collect()) for frame in frames]

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(120)

    def _list_tables(self) -> list[str]:
        return [f"{self.namespace}.{topic.replace('-', '_')}" for topic in self.topics]


@pytest.fixture
def start(
    bootstrap: str, group: str, namespace: str, topic: Callable[..., str], lakes: dict[str, SparkLake]
) -> Iterator[Callable[..., Run]]:
    started: list[Run] = []

    def start_one(lake: str, **changes: Any) -> Run:
        topics = [topic(partitions=PARTITIONS) for _ in range(2)]
        for name in topics:
            produce(bootstrap, name)
        form, writer = lake.split("-")
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "topics": topics,
            "lake.format": form,
            "lake.file.writer": writer,
            "lake.warehouse": "/unused",  # the lake is open
            "lake.table": f"{namespace}.{{topic}}",
            "batch.bytes": "30 kB",
            "batch.max.age": "1 s",
        }
        started.append(Run(lakes[lake], config | changes))
        return started[-1]

    yield start_one
    for run in started:
        run.stop()


def produce(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for n in range(COUNT):
        producer.produce(topic, b"x" * 100, str(n).encode(), n % PARTITIONS)
    assert producer.flush(60) == 0


@pytest.mark.parametrize("lake", ["iceberg-spark", "iceberg-arrow", "delta-spark", "delta-arrow"])
def test_each_record_is_written_once_with_a_cluster(
    lake: str, start: Callable[..., Run], eventually: Callable[..., None]
) -> None:
    """Files by Spark are written by the executors, files from Arrow by the driver."""
    run = start(lake)
    eventually(lambda: run.count_written() == 2 * COUNT, timeout=120)
    assert run.read_keys() == [list(range(COUNT))] * 2


@pytest.mark.parametrize("lake", ["iceberg-spark", "delta-spark"])
def test_workers_that_die_in_a_batch_lose_nothing(
    lake: str,
    start: Callable[..., Run],
    standalone: StandaloneCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    eventually: Callable[..., None],
) -> None:
    """Both are killed while their tasks run, a new one goes on, and each record is there once."""
    (tmp_path / "slowly.py").write_text(SLOW_TRANSFORM)
    monkeypatch.syspath_prepend(tmp_path)
    run = start(lake, **{"lake.transform": "slowly:slow"})
    tracker = run.lake.spark.sparkContext.statusTracker()
    while standalone.workers:
        eventually(lambda: len(tracker.getActiveStageIds()) > 0, timeout=120)
        standalone.kill_worker()
    assert run.count_written() < 2 * COUNT
    standalone.add_worker()
    standalone.add_worker()
    eventually(lambda: run.count_written() == 2 * COUNT, timeout=180)
    assert run.read_keys() == [list(range(COUNT))] * 2


@pytest.mark.parametrize("lake", ["iceberg-spark", "delta-spark"])
def test_files_on_other_machines_are_not_committed(
    lake: str,
    start: Callable[..., Run],
    standalone: StandaloneCluster,
    warehouse: Path,
    eventually: Callable[..., None],
) -> None:
    """A worker on another machine has another folder at the same path: the ingest ends, no offset moves."""
    standalone.add_worker(hide_folder(warehouse))
    while len(standalone.workers) > 1:
        standalone.kill_worker()
    run = start(lake)
    eventually(lambda: run.error is not None, timeout=120)
    assert isinstance(run.error, SettingError)
    assert re.search(rf"{run.namespace}.*wrote {warehouse}/.* on other machines", str(run.error))
    assert run.count_written() == 0


def hide_folder(folder: Path) -> list[str]:
    """Return a command that runs another one with an empty folder in its place."""
    if subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("mounting a folder for one process needs root")
    return ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"', str(folder)]
