"""Decoding of JSON and of schema-registry values into Arrow: MB and records per second of CPU, one thread.

The registry is in memory, so the figures exclude the schema request of a first batch. `pyarrow` is
pyarrow.json in the same run: it reads the same lines into the same columns, in one block.

    python -m benchmarks.sinks.bench_decode
"""

import json
import time
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from benchmarks.harness import result
from trimtab.consumer_sdk.lake.decoding.json_decoder import JsonDecoder
from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import RegisteredSchema
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

RECORDS: Final = 60_000
RUNS: Final = 4
JSON_SCHEMA: Final = pa.schema(
    [
        ("id", pa.int64()),
        ("customer", pa.string()),
        ("amount", pa.float64()),
        ("at", pa.timestamp("us", "UTC")),
        ("note", pa.string()),
        ("pad", pa.string()),
    ]
)
ORDER: Final = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "note", "type": ["null", "string"]},
        {"name": "pad", "type": "string"},
    ],
}


class MemoryRegistry:
    """Registry with one schema for every id."""

    def __init__(self, kind: str, text: str) -> None:
        self._schema = RegisteredSchema(kind, text)

    def fetch_schema(self, schema_id: int, form: str | None = None) -> RegisteredSchema:  # noqa: ARG002 - the interface
        return self._schema


def row(n: int, pad: int) -> dict[str, Any]:
    note = None if n % 2 else "gift"
    customer, at = f"customer-{n % 1000}", 1_700_000_000_000 + n
    return {"id": n, "customer": customer, "amount": n * 1.5, "at": at, "note": note, "pad": "x" * pad}


def avro() -> tuple[MemoryRegistry, Callable[[dict[str, Any]], bytes]]:
    parsed = fastavro.parse_schema(ORDER)

    def write(values: dict[str, Any]) -> bytes:
        data = BytesIO()
        fastavro.schemaless_writer(data, parsed, values)
        return b"\0\0\0\0\1" + data.getvalue()

    return MemoryRegistry("AVRO", json.dumps(ORDER)), write


def protobuf() -> tuple[MemoryRegistry, Callable[[dict[str, Any]], bytes]]:
    file = FileDescriptorProto(name="order.proto", package="shop", syntax="proto3")
    order = file.message_type.add(name="Order")
    kinds = {"id": Field.TYPE_INT64, "amount": Field.TYPE_DOUBLE, "at": Field.TYPE_INT64}
    for number, name in enumerate(("id", "customer", "amount", "at", "note", "pad"), 1):
        kind = kinds.get(name, Field.TYPE_STRING)
        order.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    pool = DescriptorPool()
    pool.Add(file)
    message = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))

    def write(values: dict[str, Any]) -> bytes:
        data: bytes = message(**values).SerializeToString()
        return b"\0\0\0\0\1\0" + data

    return MemoryRegistry("PROTOBUF", b64encode(file.SerializeToString()).decode()), write


def batch(values: list[bytes]) -> Any:
    columns = {"offset": pa.array(range(len(values)), pa.int64()), "value": values}
    nothing = {name: pa.nulls(len(values), RECORD_SCHEMA.field(name).type) for name in RECORD_SCHEMA.names}
    return pa.table(nothing | columns, schema=RECORD_SCHEMA)


def to_json(values: dict[str, Any]) -> bytes:
    at = datetime.fromtimestamp(values["at"] / 1000, UTC).isoformat()
    return json.dumps({**values, "at": at}, separators=(",", ":")).encode()


def decode(decoder: Any, records: Any) -> None:
    assert decoder.decode_batch(records).dead_letters is None


def read_by_pyarrow(records: Any) -> None:
    values = records.column("value").combine_chunks()
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
    table = pyarrow.json.read_json(
        pa.BufferReader(lines),
        pyarrow.json.ReadOptions(use_threads=False, block_size=lines.size + 1),
        pyarrow.json.ParseOptions(explicit_schema=JSON_SCHEMA),
    )
    assert table.num_rows == RECORDS


def main() -> None:
    figures: dict[str, float] = {}
    by_json = partial(decode, JsonDecoder(JSON_SCHEMA))
    cases: list[tuple[str, Callable[[Any], None], Callable[[dict[str, Any]], bytes]]] = [
        ("json", by_json, to_json),
        ("pyarrow", read_by_pyarrow, to_json),
    ]
    for name, (registry, write) in (("avro", avro()), ("protobuf", protobuf())):
        cases.append((name, partial(decode, RegistryDecoder(registry, name)), write))  # type: ignore[arg-type]
    for name, run, write in cases:
        for size, pad in (
            ("220B", 100 if write is to_json else 150),
            ("1KB", 880 if write is to_json else 970),
        ):
            values = [write(row(n, pad)) for n in range(RECORDS)]
            records, total = batch(values), sum(map(len, values))
            times = []
            for _ in range(RUNS):
                start = time.process_time()
                run(records)
                times.append(time.process_time() - start)
            best = min(times)
            speed, rate = total / 1e6 / best, RECORDS / best
            figures[f"{name}_{size}"] = round(speed, 1)
            print(f"{name:9} {total / RECORDS:5.0f} B {speed:6.1f} MB/s {rate:9,.0f} records/s")
    ratios = {
        size: round(figures[f"json_{size}"] / figures[f"pyarrow_{size}"], 2) for size in ("220B", "1KB")
    }
    result({"mb_per_cpu_second": figures, "json_to_pyarrow": ratios})


if __name__ == "__main__":
    main()
