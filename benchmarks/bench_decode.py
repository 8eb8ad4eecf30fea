"""Decoding of schema-registry values into Arrow: MB and records per second of CPU, one thread.

The registry is in memory, so the figures exclude the schema request of a first batch.

    python benchmarks/bench_decode.py
"""

import json
import time
from base64 import b64encode
from collections.abc import Callable
from io import BytesIO
from typing import Any, Final

import fastavro
import pyarrow as pa
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from harness import result

from trimtab.consumer_sdk.lake.decoding.registry_decoders import RegistryDecoder
from trimtab.consumer_sdk.lake.decoding.schema_registry import RegisteredSchema
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA

RECORDS: Final = 60_000
RUNS: Final = 4
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


def main() -> None:
    figures: dict[str, float] = {}
    for name, codec in (("avro", avro()), ("protobuf", protobuf())):
        registry, write = codec
        for size, pad in (("200B", 150), ("1KB", 970)):
            values = [write(row(n, pad)) for n in range(RECORDS)]
            records, total = batch(values), sum(map(len, values))
            decoder = RegistryDecoder(registry, name)  # type: ignore[arg-type]
            times = []
            for _ in range(RUNS):
                start = time.process_time()
                assert decoder.decode_batch(records).dead_letters is None
                times.append(time.process_time() - start)
            best = min(times)
            speed, rate = total / 1e6 / best, RECORDS / best
            figures[f"{name}_{size}"] = round(speed, 1)
            print(f"{name:9} {total / RECORDS:5.0f} B {speed:6.1f} MB/s {rate:9,.0f} records/s")
    result({"mb_per_cpu_second": figures})


if __name__ == "__main__":
    main()
