"""Tables that cannot be written, on real lakes: they are halted alone, tried again, and then exact."""

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pyarrow as pa
import pytest

from support.lake.halting import COUNT, TIMES, changes, ids, make_by_hand, unreachable, values
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.errors import TrimtabError
from trimtab.consumer_sdk.errors import LakeUnavailableError, TableWriteError
from trimtab.consumer_sdk.lake.flush.metrics import LakeMetrics
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake

LAKES = pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
WRITES = pytest.mark.parametrize("write", ["append", "upsert"])
pytestmark = pytest.mark.spark

ORDERS, HALTED = TopicPartition("p.orders", 0), TopicPartition("p.halted", 0)

Make = Callable[..., Any]


class SkippingClock(SystemClock):
    """The machine's clock, and seconds that are skipped."""

    skipped = 0.0

    def monotonic(self) -> float:  # type: ignore[override]
        return SystemClock.monotonic() + self.skipped


def resume(consumer: Any, writer: Any, clock: SkippingClock) -> None:
    """Let the delay pass; read on and write."""
    clock.skipped += 5.0
    writer.write([])  # begins the trial
    deadline = monotonic() + 60
    while not (messages := consumer.consume(100)) and monotonic() < deadline:
        writer.write([])  # the offsets may be asked for beside the reading
        sleep(0.05)
    writer.write(messages)
    writer.close()  # would raise the error of a halted table


# schema of the topic, fields of its records, what the error names
NO_COLUMN = ("id BIGINT", "", "no column ts")
NAME_TAKEN = (
    f"{TIMES}, ts_day STRING",
    "ts ts_day",
    r"^lake\.partition: .* by day\(ts\): .* have a column ts_day",
)


@LAKES
@WRITES
@pytest.mark.parametrize("problem", [NO_COLUMN, NAME_TAKEN], ids=["no column", "name taken"])
def test_a_topic_whose_table_cannot_be_made_halts_alone(
    writers: Make, lake: SparkLake, namespace: str, write: str, problem: tuple[str, str, str]
) -> None:
    """`lake.partition` suits the other topics. Once somebody makes the table, all its records are in it."""
    schema, fields, text = problem
    clock, metrics = SkippingClock(), LakeMetrics()
    consumer, writer = writers(
        {ORDERS: values("ts"), HALTED: values(fields)},
        clock=clock,
        metrics=metrics,
        lake_decoder="json",
        lake_partition="day(ts)",
        lake_schema={"p.orders": TIMES, "p.halted": schema},
        **changes(write),
    )
    consumer.assign(writer, ORDERS, HALTED)
    writer.write(consumer.consume(100))
    with pytest.raises(TrimtabError, match=text):
        writer.flush()
    assert ids(lake, f"{namespace}.p_orders") == [*range(COUNT)]
    table = f"{namespace}.p_halted"
    assert lake.open_table(table) is None
    assert metrics.registry.get_sample_value("trimtab_halted_tables", {"table": table}) == 1
    columns = [("ts", pa.timestamp("us", "UTC")), ("ts_day", pa.string())] if fields else []
    make_by_hand(lake, table, write, *columns)
    resume(consumer, writer, clock)
    assert ids(lake, table) == [*range(COUNT)]
    assert metrics.registry.get_sample_value("trimtab_halted_tables", {"table": table}) == 0


@LAKES
@WRITES
def test_a_table_that_is_altered_while_it_is_written_resumes(
    writers: Make, lake: SparkLake, namespace: str, write: str
) -> None:
    """Another engine drops a column and adds it again: no restart, no row twice, none lost."""
    clock = SkippingClock()
    consumer, writer = writers(
        {ORDERS: values("n"), HALTED: values("n")},
        clock=clock,
        lake_decoder="json",
        lake_schema="id BIGINT, n BIGINT",
        lake_schema_evolution="fail",
        **changes(write),
    )
    table = f"{namespace}.p_halted"
    make_by_hand(lake, table, write)  # as if n had been dropped
    consumer.assign(writer, ORDERS, HALTED)
    for _ in range(2):
        writer.write(consumer.consume(8))
        with pytest.raises(TrimtabError, match="no column for n"):
            writer.flush()
    assert ids(lake, f"{namespace}.p_orders") == [*range(COUNT)]
    assert ids(lake, table) == []
    lake.spark.sql(f"ALTER TABLE {table} ADD COLUMNS (n BIGINT)")
    resume(consumer, writer, clock)
    assert ids(lake, table) == [*range(COUNT)]


@LAKES
def test_a_transform_that_fails_for_one_topic_halts_it(
    writers: Make, lake: SparkLake, namespace: str
) -> None:
    """Also with an error that is none of ours."""
    broken, clock = [True], SkippingClock()

    def transform(frame: Any) -> Any:
        if broken and frame.first().topic == HALTED.topic:
            raise ZeroDivisionError("one of mine")
        return frame

    log = {ORDERS: values(""), HALTED: values("")}
    settings = {"lake_decoder": "json", "lake_schema": "id BIGINT", "lake_transform": transform}
    consumer, writer = writers(log, clock=clock, **settings)
    consumer.assign(writer, ORDERS, HALTED)
    writer.write(consumer.consume(100))
    with pytest.raises(TrimtabError, match="one of mine"):
        writer.flush()
    assert ids(lake, f"{namespace}.p_orders") == [*range(COUNT)]
    broken.clear()
    resume(consumer, writer, clock)
    assert ids(lake, f"{namespace}.p_halted") == [*range(COUNT)]


@LAKES
def test_a_partition_value_that_is_too_long_for_a_folder_halts_its_table(
    writers: Make, lake: SparkLake, namespace: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The storage answers: it is no outage, which would be retried for ever and hold up the other tables.

    Java's output has nothing of it, whose stack would come with each trial.
    """
    long = [json.dumps({"id": at, "name": "x" * 300}).encode() for at in range(COUNT)]
    settings = {
        "lake_decoder": "json",
        "lake_schema": "id BIGINT, name STRING",
        "lake_partition": "name",
        "lake_flush_timeout": "60 s",
    }
    consumer, writer = writers({ORDERS: values(""), HALTED: long}, **settings)
    consumer.assign(writer, ORDERS, HALTED)
    writer.write(consumer.consume(100))
    with pytest.raises(TableWriteError, match=r"p_halted.*too long"):
        writer.flush()
    assert " ERROR " not in (output := capfd.readouterr().err)
    assert "\tat " not in output
    assert ids(lake, f"{namespace}.p_orders") == [*range(COUNT)]


def test_a_table_whose_metadata_is_gone_halts_alone_and_resumes(
    writers: Make, lake: SparkLake, namespace: str, warehouse: Path
) -> None:
    """Its assignment ends no process; once the file is restored, it is written from where it stopped."""
    log = {ORDERS: values(""), HALTED: values("")}
    settings = {"lake_decoder": "json", "lake_schema": "id BIGINT"}
    consumer, writer = writers(log, **settings)
    consumer.assign(writer, ORDERS, HALTED)
    writer.write(consumer.consume(3))
    writer.close()
    table, clock = f"{namespace}.p_halted", SkippingClock()
    files = [*Path(warehouse, *table.split("."), "metadata").glob("*.metadata.json")]
    for file in files:
        file.rename(file.with_suffix(".away"))
    consumer, writer = writers(log, clock=clock, **settings)
    consumer.assign(writer, ORDERS, HALTED)
    writer.write(consumer.consume(100))
    with pytest.raises(TableWriteError, match=r"p_halted: its metadata file is gone"):
        writer.flush()
    assert ids(lake, f"{namespace}.p_orders") == [*range(COUNT)]
    for file in files:
        file.with_suffix(".away").rename(file)
    resume(consumer, writer, clock)
    assert ids(lake, table) == [*range(COUNT)]


@LAKES
@WRITES
def test_a_table_whose_location_is_unreachable_halts_alone_and_is_exact_afterwards(
    writers: Make,
    lake: SparkLake,
    namespace: str,
    warehouse: Path,
    write: str,
    eventually: Callable[..., None],
) -> None:
    """Once lake.flush.timeout has passed; until then its flush waits, and the other topic is written on."""
    clock, metrics = SkippingClock(), LakeMetrics()
    settings = {"lake_decoder": "json", "lake_schema": "id BIGINT, n BIGINT", "lake_partition": "n"}
    log = {ORDERS: values("n"), HALTED: values("n")}
    consumer, writer = writers(log, clock=clock, metrics=metrics, **settings, **changes(write))
    consumer.assign(writer, ORDERS, HALTED)
    writer.write(consumer.consume(3))
    writer.flush()
    orders, halted = f"{namespace}.p_orders", f"{namespace}.p_halted"

    def is_halted() -> bool:
        writer.write(consumer.consume(2))
        return metrics.registry.get_sample_value("trimtab_halted_tables", {"table": halted}) == 1

    def has_orders() -> bool:
        return lake.open_table(orders) is not None and ids(lake, orders) == [*range(COUNT)]

    with unreachable(warehouse, halted):
        eventually(lambda: not is_halted() and has_orders(), timeout=120)
        eventually(lambda: not is_halted() and writer._flushes.find_failing() == {halted}, timeout=120)
        clock.skipped += 120.0
        eventually(is_halted, timeout=60)
        with pytest.raises(LakeUnavailableError, match="p_halted"):
            writer.raise_if_halted()
    assert ids(lake, halted) == [0, 1, 2]
    resume(consumer, writer, clock)
    assert ids(lake, halted) == [*range(COUNT)]
