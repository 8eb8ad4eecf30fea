"""The bytes of messages: equal to kafka-python's in both directions, and harmless if a broker is hostile."""

import importlib
import pkgutil
import struct
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import kafka.protocol
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage

from trimtab.common.kafka_protocol import apis
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.errors import MalformedMessageError
from trimtab.common.kafka_protocol.fields import Field, Reader, compile_table, parse_table

APIS = [one for one in vars(apis).values() if isinstance(one, Api)]
EACH_API = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
AMPLIFICATION = 2_000  # bytes in memory for a byte of an answer


def find_stranger(name: str) -> Any:
    """Return kafka-python's class of a message; None if it has none."""
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        if module.name.split(".")[2] in ("admin", "consumer", "metadata", "sasl"):
            found = getattr(importlib.import_module(module.name), name, None)
            if found is not None and issubclass(found, ApiMessage):
                return found
    return None


STRANGERS = {
    api.name: (find_stranger(f"{api.name}Request"), find_stranger(f"{api.name}Response")) for api in APIS
}


def values_of(field: Field, version: int) -> st.SearchStrategy[Any]:
    """Return values of a field."""
    made: st.SearchStrategy[Any]
    if field.kind in NUMBERS:
        high = 1 << NUMBERS[field.kind] - 1
        made = st.integers(-high, high - 1)
    elif field.kind == "[" and isinstance(field.element, str):
        made = st.lists(values_of(Field("", field.element), version), max_size=3)
    elif field.kind == "[":
        made = st.lists(messages_of(field.element, version), max_size=3)  # type: ignore[arg-type]
    elif field.kind == "{":
        made = messages_of(field.element, version)  # type: ignore[arg-type]
    else:
        texts = st.text(st.characters(codec="utf-8"), max_size=200)
        made = {"bool": st.booleans(), "uuid": st.uuids(), "bytes": st.binary(max_size=200), "string": texts}[
            field.kind
        ]
    return st.none() | made if field.nullable else made


def messages_of(fields: tuple[Field, ...], version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return messages without tagged fields."""
    there = [f for f in fields if f.since <= version <= f.until and f.tag is None]
    return st.fixed_dictionaries({f.name: values_of(f, version) for f in there})


@cache
def table_messages(table: str, version: int) -> st.SearchStrategy[dict[str, Any]]:
    """Return messages of a table, made once: building strategies takes most of the time."""
    return messages_of(parse_table(table), version)


def encode(api: Api, table: str, version: int, message: Mapping[str, Any]) -> bytes:
    out = bytearray()
    compile_table(table, version, flexible=version >= api.flexible)[1](out, message)
    return bytes(out)


def decode(api: Api, table: str, version: int, data: bytes) -> Any:
    return compile_table(table, version, flexible=version >= api.flexible)[0](Reader(data))


def contains(read: Any, written: Any) -> bool:
    """Return whether what was read, by either library, holds what was written."""
    if isinstance(written, Mapping):
        compared = {
            n: v for n, v in written.items() if not n.endswith("authorized_operations")
        }  # theirs are sets
        return all(contains(getattr(read, name), value) for name, value in compared.items())
    if isinstance(written, list):
        return len(read) == len(written) and all(map(contains, read, written))
    if isinstance(written, UUID):
        return str(read) == str(written)
    return bool(read == written) or (written is None and read is None)


@EACH_API
@given(data=st.data())
def test_what_is_written_is_read(api: Api, data: st.DataObject) -> None:
    """Requests and responses of every table and version."""
    version = data.draw(st.integers(api.first, api.last))
    for table in (api.request, api.response):
        message = data.draw(table_messages(table, version))
        written = encode(api, table, version, message)
        assert contains(decode(api, table, version, written), message)


COMMON = [
    (api, table, kind, min(api.last, kind.max_version))
    for api in APIS
    for table, kind in zip((api.request, api.response), STRANGERS[api.name], strict=True)
    if kind is not None
]


@pytest.mark.parametrize(
    ("api", "table", "kind", "last"), COMMON, ids=[kind.__name__ for _, _, kind, _ in COMMON]
)
@given(data=st.data())
def test_bytes_are_those_of_kafka_python(
    api: Api, table: str, kind: Any, last: int, data: st.DataObject
) -> None:
    """In both directions, for every version that both know."""
    version = data.draw(st.integers(api.first, last))
    message = data.draw(table_messages(table, version))
    if kind.__name__ == "ApiVersionsResponse":
        message["error_code"] = 0  # kafka-python reads a refusal as version 0
    ours = encode(api, table, version, message)
    theirs = kind.decode(ours, version=version)
    assert contains(theirs, message)
    theirs._header = None  # a message that was read lacks it
    assert bytes(theirs.encode(version=version)) == ours


def test_most_tables_are_compared() -> None:
    """The others are requests that kafka-python does not have."""
    compared = {api.name for api, *_ in COMMON}
    new = {
        "ConsumerGroupHeartbeat",
        "ConsumerGroupDescribe",
        "ShareGroupDescribe",
        "DescribeShareGroupOffsets",
    }
    assert {api.name for api in APIS} - compared == new


@EACH_API
@given(data=st.data())
def test_a_damaged_answer_is_a_named_error(api: Api, data: st.DataObject) -> None:
    """Cut off, or with other bytes: nothing else is raised."""
    version = data.draw(st.integers(api.first, api.last))
    message = data.draw(table_messages(api.response, version))
    whole = bytearray(encode(api, api.response, version, message))
    whole = bytearray(b"\0" if version >= api.flexible and api is not apis.API_VERSIONS else b"") + whole
    for at, byte in data.draw(
        st.lists(st.tuples(st.integers(0, max(0, len(whole) - 1)), st.integers(0, 255)), max_size=4)
    ):
        whole[at : at + 1] = bytes([byte])
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    with suppress(MalformedMessageError):
        api.decode_response(version, damaged)


@pytest.mark.parametrize("size", [0x7FFFFFFF, -2, 1 << 20])
def test_an_announced_size_allocates_nothing(size: int) -> None:
    """Arrays, texts and bytes that are announced but not there."""
    tracemalloc.start()
    try:
        for table in ("a:[int32]", "a:[b:string]", "a:string", "a:bytes"):
            packed = struct.pack(">i" if table != "a:string" else ">h", size if table != "a:string" else -3)
            with pytest.raises(MalformedMessageError):
                decode(SimpleNamespace(flexible=99), table, 0, packed + bytes(9))  # type: ignore[arg-type]
        assert tracemalloc.get_traced_memory()[1] < 50 * AMPLIFICATION
    finally:
        tracemalloc.stop()


def test_tagged_fields_of_a_newer_broker_are_skipped() -> None:
    """Known ones are read, whatever stands before and after them."""
    feature = b"\x02\x02f\x00\x01\x00\x03\x00"
    tagged = b"\x03" + b"\x00" + bytes([len(feature)]) + feature + b"\x02" + b"\x01\x01" + b"\x63\x02xy"
    body = struct.pack(">h", 0) + b"\x01" + struct.pack(">i", 0)
    answer = apis.API_VERSIONS.decode_response(3, body + tagged)
    assert [vars(one) for one in answer.supported_features] == [
        {"name": "f", "min_version": 1, "max_version": 3}
    ]
    assert answer.finalized_features == []


def test_a_text_that_is_none_does_not_hide_the_others() -> None:
    """A client may commit any bytes as metadata, and some brokers pass them on as they are."""
    table = "a:string b:string"
    read = decode(SimpleNamespace(flexible=0), table, 0, b"\x02\xff\x02b\x00")  # type: ignore[arg-type]
    assert (read.a, read.b) == ("\N{REPLACEMENT CHARACTER}", "b")


def test_unknown_and_missing_fields_are_errors_of_the_caller() -> None:
    """A misspelled field would be sent with its default."""
    with pytest.raises(ValueError, match="grups"):
        apis.DESCRIBE_GROUPS.encode_request(5, 1, "c", {"groups": [], "grups": []})
    with pytest.raises(KeyError):
        apis.DESCRIBE_GROUPS.encode_request(5, 1, "c", {})
