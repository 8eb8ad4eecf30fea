"""Partition values that Delta would change: refused by name, before anything is written."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from support.lake.read_by_others import read_rows
from trimtab.assignor.model import TopicPartition
from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.formats.delta.table import DeltaLake
from trimtab.consumer_sdk.lake.formats.spark_lake import SparkLake
from trimtab.consumer_sdk.lake.model.partition_spec import parse_partitioning
from trimtab.consumer_sdk.lake.offsets.table_offsets import CommittedOffsets

pytestmark = pytest.mark.spark

P0 = TopicPartition("orders", 0)
EVERY_FORMAT = pytest.mark.parametrize("lake", ["iceberg", "delta"], indirect=True)
TEXTS = ["a", "", "__HIVE_DEFAULT_PARTITION__", "b\0", "a/b=c%41", " ", "null", None, "é"]
UNSTORABLE = ["", "__HIVE_DEFAULT_PARTITION__", "b\0"]
# 02:30 twice
REPEATED = [datetime(2024, 10, 27, 0, 30, tzinfo=UTC), datetime(2024, 10, 27, 1, 30, tzinfo=UTC)]


def write(lake: SparkLake, name: str, values: Any, rule: str) -> Any:
    """Commit these values of a column `p`, by which the table is partitioned."""
    rows = lake.to_frame(pa.table({"id": pa.array(range(len(values)), pa.int64()), "p": values}))
    table = lake.create_table(name, rows, parse_partitioning(rule).topic_tables)
    table.commit(table.stage_rows(rows, "a"), CommittedOffsets({"g": {P0: 1}}), table.read_offsets())
    return table


def encode_avro(schema: Any, row: dict[str, Any]) -> bytes:
    """Return a row as Avro writes it."""
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), row)
    return data.getvalue()


@pytest.fixture
def berlin(delta: DeltaLake, warehouse: Path) -> DeltaLake:
    """A lake in a session whose clocks are set back in October."""
    session = delta.spark.newSession()
    session.conf.set("spark.sql.defaultCatalog", "spark_catalog")
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    return DeltaLake(session, f"file:{warehouse}", file_writer="spark")


@pytest.fixture
def read(lake: SparkLake, namespace: str, warehouse: Path) -> Callable[..., list[dict[str, Any]]]:
    """Return the rows of a table as others read them."""
    return lambda name, key="id": read_rows(lake.open_table(f"{namespace}.{name}"), warehouse, key)


@EVERY_FORMAT
def test_changes_keep_every_text_or_name_it(
    writers: Callable[..., Any], lake: SparkLake, namespace: str, warehouse: Path
) -> None:
    """Each text is a row of its own, also after it was written again, or a dead letter."""
    values: list[bytes | None] = [json.dumps({"id": 1, "p": p}).encode() for p in TEXTS * 2]
    upsert = {"lake_write": "upsert", "lake_changes": "keyed", "lake_key": ["id", "p"]}
    texts = {"lake_decoder": "json", "lake_schema": "id INT, p STRING", "lake_partition": "p"}
    lake_format = "delta" if isinstance(lake, DeltaLake) else "iceberg"
    consumer, writer = writers({P0: values}, **upsert, **texts, lake_format=lake_format)
    consumer.assign(writer, P0)
    for _ in range(2):
        writer.write(consumer.consume(len(TEXTS)))
        writer.flush()
    writer.close()
    kept = [p for p in TEXTS if p is not None and (lake_format == "iceberg" or p not in UNSTORABLE)]
    table, letters = (lake.open_table(f"{namespace}.orders{end}") for end in ("", "_dead_letter"))
    assert sorted(row["p"] for row in read_rows(table, warehouse)) == sorted(kept)
    reasons = [row["error"] for row in read_rows(letters, warehouse, "offset")]
    named = [text for text in reasons if "is no partition value of a Delta table" in text]
    assert [text.split(" is ")[0] for text in named] == [
        f"p: {p!r}" for p in (UNSTORABLE * 2 if lake_format == "delta" else [])
    ]


@pytest.mark.parametrize("lake", ["delta"], indirect=True)
@pytest.mark.parametrize("policy", ["dead-letter", "null"])
def test_appends(
    writers: Callable[..., Any], lake: SparkLake, registry: Any, namespace: str, warehouse: Path, policy: str
) -> None:
    """Values of a registry: a dead letter, or null by the policy that says so."""
    fields = [{"name": "id", "type": "int"}, {"name": "p", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "Order", "fields": fields}
    prefix = b"\0" + registry.add("s", schema).to_bytes(4)
    values = [prefix + encode_avro(schema, {"id": at, "p": p}) for at, p in enumerate(TEXTS)]
    settings = {"lake_decoder": "avro", "schema_registry_url": registry.url, "lake_partition": "p"}
    consumer, writer = writers({P0: values}, **settings, lake_format="delta", lake_out_of_range=policy)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(len(values)))
    writer.close()
    rows = read_rows(lake.open_table(f"{namespace}.orders"), warehouse)
    if policy == "null":
        assert [row["p"] for row in rows] == [None if p in UNSTORABLE else p for p in TEXTS]
    else:
        assert [row["p"] for row in rows] == [p for p in TEXTS if p not in UNSTORABLE]
        assert lake.spark.table(f"{namespace}.orders_dead_letter").count() == len(UNSTORABLE)


@pytest.mark.parametrize("policy", ["dead-letter", "null"])
@pytest.mark.parametrize(
    "numbers",
    [
        ("INT", ["-2147483640", "2147483647"], "-2147483641"),
        ("BIGINT", ["-9223372036854775800"], "-9223372036854775808"),
        ("TINYINT", ["-128"], None),
        ("DECIMAL(9,2)", ["-9999999.90", "9999999.99"], "-9999999.91"),
    ],
)
def test_numbers_whose_partition_would_be_out_of_range(
    writers: Callable[..., Any],
    read: Callable[..., Any],
    numbers: tuple[str, list[str], str | None],
    policy: str,
) -> None:
    """Iceberg's truncate rounds down: a decimal would halt the table, an int is in another partition."""
    kind, kept, lost = numbers
    values = [
        b'{"id":%d,"n":%s}' % (at, n.encode()) for at, n in enumerate([*kept, *([lost] if lost else [])])
    ]
    rule = {"lake_decoder": "json", "lake_schema": f"id INT, n {kind}", "lake_partition": "truncate(10, n)"}
    consumer, writer = writers({P0: values}, **rule, lake_out_of_range=policy)
    consumer.assign(writer, P0)
    writer.write(consumer.consume(len(values)))
    writer.close()
    found = [None if row["n"] is None else str(row["n"]) for row in read("orders")]
    assert found == kept + ([None] if policy == "null" and lost else [])
    if lost and policy == "dead-letter":
        (letter,) = read("orders_dead_letter", "offset")
        assert (letter["field"], letter["error"].partition(" is out")[0]) == ("n", f"n: truncate(10, {lost})")


@pytest.mark.parametrize("text", UNSTORABLE)
def test_a_table_partitioned_by_hand_refuses_the_text(delta: DeltaLake, namespace: str, text: str) -> None:
    """Its rule is not in the settings, or a transform made the value: nothing is written."""
    with pytest.raises(
        TableSchemaMismatchError, match=r"p: '.*' is no partition value of a Delta table"
    ) as caught:
        write(delta, f"{namespace}.t", pa.array(["a", text]), "p")
    assert not caught.value.retryable
    table = delta.open_table(f"{namespace}.t")
    assert table is not None
    assert table.read_totals()["rows"] == 0


def test_times_in_a_session_with_daylight_saving(
    berlin: DeltaLake, delta: DeltaLake, iceberg: SparkLake, namespace: str, warehouse: Path
) -> None:
    """Two times of one name are refused, by the rule for a new table; without such hours they are exact."""
    times = pa.array(REPEATED, pa.timestamp("us", "UTC"))
    with pytest.raises(SettingError, match=r"lake\.partition: p is a timestamp, and Europe/Berlin.*day\(p\)"):
        write(berlin, f"{namespace}.new", times, "p")
    for lake, name in ((delta, "delta"), (iceberg, "iceberg")):
        table = write(lake, f"{namespace}.{name}", times, "p")
        assert [row["p"] for row in read_rows(table, warehouse)] == REPEATED
    existing = berlin.open_table(f"{namespace}.delta")
    assert existing is not None
    with pytest.raises(TableSchemaMismatchError, match="p is a timestamp, and Europe/Berlin"):
        existing.stage_rows(berlin.to_frame(pa.table({"id": [9, 9], "p": times})), "b")
    table = write(berlin, f"{namespace}.days", times, "day(p)")
    assert [row["p"] for row in read_rows(table, warehouse)] == REPEATED


NIGHTS = [datetime(2024, 12, 31, 23, 30, tzinfo=UTC), datetime(1969, 1, 1, 0, 30, 0, 1, tzinfo=UTC)]


@pytest.mark.parametrize(
    ("unit", "parts"),
    [
        ("year", ["2024", "1969"]),
        ("month", ["2024-12", "1969-01"]),
        ("day", ["2024-12-31", "1969-01-01"]),
        ("hour", ["2024-12-31-23", "1969-01-01-00"]),
    ],
)
def test_sessions_of_every_zone_find_the_rows(
    delta: DeltaLake, berlin: DeltaLake, namespace: str, unit: str, parts: list[str]
) -> None:
    """Delta's filters on partitions are in the zone of the reader, and were so in that of the writer."""
    for lake in (delta, berlin):
        times = pa.array(NIGHTS, pa.timestamp("us", "UTC"))
        table = write(lake, f"{namespace}.{unit}_{lake is berlin}", times, f"{unit}(p)")
        for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
            reader = lake.spark.newSession()
            reader.conf.set("spark.sql.defaultCatalog", "spark_catalog")
            reader.conf.set("spark.sql.session.timeZone", zone)
            for time, part in zip(NIGHTS, parts, strict=True):
                moment = f"TIMESTAMP'{time.isoformat()}'"
                found = reader.table(table.name).where(f"p = {moment}").collect()
                assert [str(row[f"p_{unit}"]) for row in found] == [part]


def test_bytes_are_no_partition(delta: DeltaLake, namespace: str) -> None:
    """Such as the record's key."""
    with pytest.raises(SettingError, match=r"lake\.partition: p is binary"):
        write(delta, f"{namespace}.t", pa.array([b"\xff", b"\0"]), "p")
