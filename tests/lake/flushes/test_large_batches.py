"""Batches whose decoded columns would take too much memory: committed in parts, every record once."""

from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import pytest

from support.lake.read_by_others import read_rows
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.decoding import json_decoder, registry_decoders, value_reader

pytestmark = pytest.mark.spark

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
RECORDS = 100
NAMES = ["id", *(f"c{at}" for at in range(50))]
ROW = {"type": "record", "name": "Row", "fields": [{"name": n, "type": ["null", "long"]} for n in NAMES]}
UPSERT = {"lake_write": "upsert", "lake_changes": "keyed", "lake_key": "id"}


def encode_json(numbers: range) -> list[bytes]:
    """Return one value per number; every tenth is broken."""
    return [b'{"id":%d,"c1":%s}' % (at, b"7" if at % 10 else b"?") for at in numbers]


def encode_avro(numbers: range, prefix: bytes) -> list[bytes]:
    """Return the same values in Avro."""
    schema, values = fastavro.parse_schema(ROW), list[bytes]()
    for at in numbers:
        data = BytesIO()
        fastavro.schemaless_writer(data, schema, dict.fromkeys(NAMES) | {"id": at, "c1": 7})
        values.append(prefix + (data.getvalue() if at % 10 else b""))
    return values


@pytest.fixture(params=["json", "avro"])
def source(
    request: pytest.FixtureRequest, registry: Any
) -> tuple[dict[TopicPartition, list[bytes]], dict[str, str]]:
    """Return the records of each partition, and the settings that read them."""
    numbers = {P0: range(RECORDS), P1: range(RECORDS, 2 * RECORDS)}
    if request.param == "json":
        columns = ", ".join(f"{name} BIGINT" for name in NAMES)
        log = {p: encode_json(of) for p, of in numbers.items()}
        return log, {"lake_decoder": "json", "lake_schema": columns}
    prefix = b"\0" + registry.add("s", ROW).to_bytes(4)
    log = {p: encode_avro(of, prefix) for p, of in numbers.items()}
    return log, {"lake_decoder": "avro", "schema_registry_url": registry.url}


@pytest.fixture(autouse=True)
def low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (json_decoder, registry_decoders):
        monkeypatch.setattr(module, "MAX_COLUMN_BYTES", 30_000)
    for module in (value_reader, registry_decoders):
        monkeypatch.setattr(module, "MAX_READ_VALUES", 1000)


@pytest.mark.parametrize("settings", [{}, UPSERT], ids=["append", "upsert"])
@pytest.mark.parametrize("lake", ["iceberg", "delta_arrow"], indirect=True)
def test_a_batch_of_many_columns_is_committed_in_parts(
    lake: Any,
    writers: Callable[..., Any],
    source: Any,
    namespace: str,
    warehouse: Path,
    settings: dict[str, str],
) -> None:
    """A record of a few bytes has a value in each column: 64 MB of them would be 20 GB."""
    log, decoding = source
    consumer, writer = writers(log, **decoding, **settings)
    consumer.assign(writer, P0, P1)
    writer.write(consumer.consume(2 * RECORDS))
    writer.close()
    assert consumer.committed == {P0: RECORDS, P1: RECORDS}
    table, letters = (lake.open_table(f"{namespace}.orders{end}") for end in ("", "_dead_letter"))
    assert table.count_snapshots() > 3
    rows = read_rows(table, warehouse)
    assert [row["id"] for row in rows] == [at for at in range(2 * RECORDS) if at % 10]
    assert {(row["c1"], row["c2"]) for row in rows} == {(7, None)}
    assert len(read_rows(letters, warehouse, "offset")) == 2 * RECORDS // 10
