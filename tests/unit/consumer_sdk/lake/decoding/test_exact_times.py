"""Times of a schema registry: whole microseconds, or a dead letter, as in JSON."""

import json
from base64 import b64encode
from io import BytesIO
from typing import Any

import fastavro
import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.timestamp_pb2 import Timestamp

from trimtab.consumer_sdk.lake.decoding.avro import create_avro_reader
from trimtab.consumer_sdk.lake.decoding.protobuf import create_protobuf_reader
from trimtab.consumer_sdk.lake.decoding.value_ranges import InexactValueError, ValueRanges

NULLS = ValueRanges(nulls=True)


def avro_reader(name: str, ranges: ValueRanges) -> Any:
    kind = {"type": "long", "logicalType": name}
    schema = {"type": "record", "name": "R", "fields": [{"name": "at", "type": ["null", kind]}]}
    return create_avro_reader(json.dumps(schema), {}, ranges).read


def avro(number: int) -> bytes:
    data = BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(["null", "long"]), number)
    return data.getvalue()


def protobuf_reader(ranges: ValueRanges) -> Any:
    file = FileDescriptorProto(name="r.proto", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    file.message_type.add(name="R").field.add(
        name="at",
        number=1,
        label=Field.LABEL_OPTIONAL,
        type=Field.TYPE_MESSAGE,
        type_name=".google.protobuf.Timestamp",
    )
    return create_protobuf_reader(b64encode(file.SerializeToString()).decode(), {}, (0,), ranges).read


def protobuf(seconds: int, nanos: int) -> bytes:
    time = Timestamp(seconds=seconds, nanos=nanos).SerializeToString()
    return b"\x0a" + bytes([len(time)]) + time


@pytest.mark.parametrize("ranges", [ValueRanges(), NULLS], ids=["dead letters", "nulls"])
@pytest.mark.parametrize("name", ["timestamp-nanos", "local-timestamp-nanos"])
def test_a_part_of_a_microsecond_of_avro_is_a_dead_letter(name: str, ranges: ValueRanges) -> None:
    """Two keys within a microsecond would become one row."""
    read = avro_reader(name, ranges)
    assert [read(avro(at))["at"] for at in (-1000, 0, 1_001_000)] == [-1, 0, 1_001]
    for nanos in (1_001, -1):
        with pytest.raises(
            InexactValueError, match=f"^at: {nanos} ns since 1970 are not exact in a timestamp"
        ):
            read(avro(nanos))


@pytest.mark.parametrize("ranges", [ValueRanges(), NULLS], ids=["dead letters", "nulls"])
def test_a_part_of_a_microsecond_of_protobuf_is_a_dead_letter(ranges: ValueRanges) -> None:
    """Of a time before 1970, too, whose nanoseconds count forwards."""
    read = protobuf_reader(ranges)
    assert read(protobuf(-1, 999_999_000))["at"] == -1
    for nanos in (999_999_999, 1):
        with pytest.raises(InexactValueError, match=f"^at: {nanos - 10**9} ns since 1970 are not exact"):
            read(protobuf(-1, nanos))


def test_a_part_of_a_microsecond_in_a_row_that_is_not_written_is_null() -> None:
    """The `before` of an update; a key there is not null."""
    inside = ValueRanges(nulls_within="at", key_fields=frozenset({"id"})).within("at")
    for ranges in (inside, inside.within("n")):
        assert avro_reader("timestamp-nanos", ranges)(avro(1_001)) == {"at": None}
    with pytest.raises(InexactValueError):
        avro_reader("timestamp-nanos", inside.within("id"))(avro(1_001))
