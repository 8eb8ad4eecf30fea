"""`trimtab ingest` of a pattern, on a real broker: a new topic whose table cannot be made ends nothing."""

import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from support.lake.halting import COUNT, TIMES, changes, drop_table, ids, make_by_hand, unreachable, values
from trimtab.common.clock import SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.writer import ingest
from trimtab.sidecar.diagnostics.doctor.broker_checks import run_broker_checks
from trimtab.sidecar.settings.settings import load_settings

pytestmark = [pytest.mark.spark, pytest.mark.broker]


@pytest.fixture
def produce(bootstrap: str, admin: AdminClient) -> Callable[[str, list[bytes]], None]:
    """Write records; creates a topic that does not exist."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "enable.idempotence": True})

    def send(topic: str, records: list[bytes]) -> None:
        with suppress(KafkaException):  # it exists; a broker lists a new one a moment later
            admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
        for value in records:
            producer.produce(topic, value, b"k", 0)
        assert producer.flush(60) == 0

    return send


@pytest.fixture
def pattern(
    ingest_settings: dict[str, Any], namespace: str, topic: Callable[..., str]
) -> tuple[str, dict[str, Any]]:
    """A topic whose table can be made, and settings of a pattern that also finds new ones."""
    orders = topic(partitions=1)
    new = f"{orders}-new"
    return orders, {
        **ingest_settings,
        "topics": f"^{re.escape(orders)}.*",
        "metadata.max.age.ms": 500,
        "lake.tables": {orders: f"{namespace}.orders", new: f"{namespace}.new"},
        "lake.decoder": "json",
        "lake.partition": "day(ts)",
        "lake.schema": {orders: TIMES, new: "id BIGINT"},
    }


class RunningIngest:
    """An ingest on a thread, and the error that ended it."""

    def __init__(self, settings: dict[str, Any], lake: SparkLake) -> None:
        self.error: TrimtabError | None = None
        self._stop = threading.Event()
        self._settings, self._lake = ingest.parse_ingest_settings(settings), lake
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def has(self, table: str, count: int) -> bool:
        assert self._thread.is_alive()
        return self._lake.open_table(table) is not None and ids(self._lake, table) == [*range(count)]

    def _run(self) -> None:
        try:
            ingest.run_ingest(self._settings, self._lake, self._stop)
        except TrimtabError as error:
            self.error = error


def find_halts(settings: dict[str, Any]) -> str:
    """Return what `trimtab doctor` says of halted partitions."""
    values = {"bootstrap": settings["bootstrap.servers"], "group": settings["group.id"], "capacity": "1 MB/s"}
    findings = run_broker_checks(load_settings(None, values), SystemClock())
    return "; ".join(found.message for found in findings if found.check == "PartitionsHalted")


def owned_topics(settings: dict[str, Any]) -> list[set[str]]:
    """Return the topics of each member of the group."""
    group, admin = settings["group.id"], AdminClient({"bootstrap.servers": settings["bootstrap.servers"]})
    try:
        members = admin.describe_consumer_groups([group])[group].result(30).members
    except KafkaException:  # the broker loads its groups at the first use
        return []
    owned = ({p.topic for p in member.assignment.topic_partitions} for member in members)
    return sorted(owned, key=sorted)


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_a_new_topic_ends_no_ingest(
    pattern: tuple[str, dict[str, Any]],
    lake: SparkLake,
    write: str,
    produce: Callable[[str, list[bytes]], None],
    eventually: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever may create a matching topic stops no table; the halted one is written once it has a table."""
    caplog.set_level("INFO", "trimtab.lake")
    topic, settings = pattern
    orders, new = settings["lake.tables"].values()
    more = {name.replace("_", "."): value for name, value in changes(write).items()}
    produce(topic, values("ts")[:3])
    with RunningIngest(settings | more, lake) as running:
        eventually(lambda: running.has(orders, 3), timeout=90)
        produce(f"{topic}-new", values(""))
        eventually(lambda: any("no column ts" in line for line in caplog.messages), timeout=60)
        produce(topic, values("ts")[3:])
        eventually(lambda: running.has(orders, COUNT), timeout=60)
        eventually(lambda: "no column ts" in find_halts(settings), timeout=30)
        make_by_hand(lake, new, write)
        eventually(lambda: running.has(new, COUNT), timeout=60)
        eventually(lambda: any(f"{new} resumed" in line for line in caplog.messages))
        eventually(lambda: not find_halts(settings), timeout=30)
    assert running.error is None


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_a_table_that_is_unreachable_is_named_by_the_doctor_and_exact_afterwards(
    pattern: tuple[str, dict[str, Any]],
    lake: SparkLake,
    write: str,
    warehouse: Path,
    produce: Callable[[str, list[bytes]], None],
    eventually: Callable[..., None],
) -> None:
    """For longer than lake.flush.timeout; the process goes on, and so does the other topic."""
    topic, settings = pattern
    orders, new = settings["lake.tables"].values()
    more = {name.replace("_", "."): value for name, value in changes(write).items()}
    more |= {"lake.schema": "id BIGINT, n BIGINT", "lake.partition": "n", "lake.flush.timeout": "4 s"}
    for name in (topic, f"{topic}-new"):
        produce(name, values("n")[:3])
    with RunningIngest(settings | more, lake) as running:
        eventually(lambda: running.has(orders, 3) and running.has(new, 3), timeout=90)
        with unreachable(warehouse, new):
            for name in (topic, f"{topic}-new"):
                produce(name, values("n")[3:])
            eventually(lambda: running.has(orders, COUNT), timeout=60)
            eventually(lambda: "storage do not respond" in find_halts(settings), timeout=60)
        eventually(lambda: running.has(new, COUNT), timeout=60)
        eventually(lambda: not find_halts(settings), timeout=30)
    assert running.error is None


@pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
@pytest.mark.parametrize("write", ["append", "upsert"])
def test_a_member_that_owns_only_the_bad_topic_halts_no_other(
    pattern: tuple[str, dict[str, Any]],
    lake: SparkLake,
    write: str,
    produce: Callable[[str, list[bytes]], None],
    eventually: Callable[..., None],
) -> None:
    """Both members live on, and the table heals once another engine's ALTER has added its column."""
    topic, settings = pattern
    orders, new = settings["lake.tables"].values()
    more = {name.replace("_", "."): value for name, value in changes(write).items()}
    more |= {
        "lake.schema": {topic: TIMES, f"{topic}-new": "id BIGINT, n BIGINT"},
        "lake.schema.evolution": "fail",
    }
    more |= {"lake.partition": {orders: "day(ts)"}}
    make_by_hand(lake, new, write)
    for name, fields in ((topic, "ts"), (f"{topic}-new", "n")):
        produce(name, values(fields)[:3])
    with RunningIngest(settings | more, lake) as one, RunningIngest(settings | more, lake) as other:
        eventually(lambda: owned_topics(settings) == [{topic}, {f"{topic}-new"}], timeout=90)
        eventually(lambda: one.has(orders, 3), timeout=60)
        for name, fields in ((topic, "ts"), (f"{topic}-new", "n")):
            produce(name, values(fields)[3:])
        eventually(lambda: one.has(orders, COUNT), timeout=60)
        eventually(lambda: f"{topic}-new" in find_halts(settings), timeout=60)
        assert f"partition 0 of {topic}:" not in find_halts(settings)
        lake.spark.sql(f"ALTER TABLE {new} ADD COLUMNS (n BIGINT)")
        eventually(lambda: other.has(new, COUNT) and one.has(new, COUNT), timeout=60)
        eventually(lambda: not find_halts(settings), timeout=30)
        assert one.has(orders, COUNT)
        assert other.has(orders, COUNT)
    assert [one.error, other.error] == [None, None]
    assert {row.n for row in lake.spark.table(new).collect()} == {1}


@pytest.mark.parametrize(
    ("lake", "case"),
    [
        ("iceberg", ("append", "restored")),
        ("iceberg", ("upsert", "empty")),
        ("delta", ("append", "empty")),
        ("delta", ("upsert", "restored")),
    ],
    indirect=["lake"],
)
def test_a_table_that_another_program_drops_halts_alone_until_it_is_back(
    pattern: tuple[str, dict[str, Any]],
    lake: SparkLake,
    warehouse: Path,
    case: tuple[str, str],
    produce: Callable[[str, list[bytes]], None],
    eventually: Callable[..., None],
) -> None:
    """Restored, it has every row; created anew, those from where the dropped one stopped."""
    topic, settings = pattern
    write, comes_back = case
    orders, new = settings["lake.tables"].values()
    more = {name.replace("_", "."): value for name, value in changes(write).items()}
    more |= {"lake.schema": "id BIGINT, n BIGINT", "lake.partition": None}
    more = {name: value for name, value in (settings | more).items() if value is not None}
    for name in (topic, f"{topic}-new"):
        produce(name, values("n")[:3])
    with RunningIngest(more, lake) as running:
        eventually(lambda: running.has(orders, 3) and running.has(new, 3), timeout=90)
        restore = drop_table(lake, warehouse, new)
        for name in (topic, f"{topic}-new"):
            produce(name, values("n")[3:])
        eventually(lambda: "dropped" in find_halts(settings), timeout=60)
        eventually(lambda: running.has(orders, COUNT), timeout=60)
        assert lake.open_table(new) is None
        if comes_back == "restored":
            restore()
        else:
            make_by_hand(lake, new, write, ("n", pa.int64()))
        first = 0 if comes_back == "restored" else 3
        eventually(lambda: ids(lake, new) == [*range(first, COUNT)], timeout=60)
        eventually(lambda: not find_halts(settings), timeout=30)
    assert running.error is None


def test_a_topic_whose_table_is_another_ones_is_named_by_the_doctor(
    pattern: tuple[str, dict[str, Any]],
    lake: SparkLake,
    namespace: str,
    produce: Callable[[str, list[bytes]], None],
    eventually: Callable[..., None],
) -> None:
    """No position of it is kept; its reason is committed where its first record stands."""
    topic, settings = pattern
    shared = {
        name: value for name, value in settings.items() if name not in ("lake.tables", "lake.partition")
    }
    shared |= {"lake.table": f"{namespace}.{{topic}}", "lake.schema": "id BIGINT"}
    for name in (f"{topic}-new", f"{topic}_new"):
        produce(name, values(""))
    with RunningIngest(shared, lake):
        eventually(lambda: "both map to table" in find_halts(settings), timeout=90)
