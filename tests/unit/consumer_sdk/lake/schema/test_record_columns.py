"""Messages to Arrow: keys and values stay unchanged."""

from dataclasses import dataclass

import pyarrow as pa
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.lake.schema import record_columns

P = TopicPartition("t", 3)
TWINS = [("x", pa.int32()), ("X", pa.int32())]
FIRST, LAST = -62_135_596_800_000, 253_402_300_799_999
"""The first millisecond of the year 1, and the last of 9999."""


@dataclass(frozen=True, slots=True)
class Message:
    """The used methods of confluent-kafka's message."""

    at: int
    payload: bytes | None = None
    stamp: tuple[int, int] = (0, 0)

    def topic(self) -> str:
        return P.topic

    def partition(self) -> int:
        return P.partition

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def key(self) -> bytes | None:
        return None if self.payload is None else self.payload[:1]

    def value(self) -> bytes | None:
        return self.payload

    def headers(self) -> None:
        return None

    def error(self) -> None:
        return None


@pytest.mark.parametrize(
    "values", [[b"a", b"", b"ccc"], [b"a", None, b""], [None, None], [b"", b""], [b"x" * 70_000]]
)
def test_bytes_and_nulls_are_kept(values: list[bytes | None]) -> None:
    """Empty values stay empty, nulls stay null, and the batch is valid Arrow."""
    batch = record_columns.build_record_batch(P, [Message(n, value) for n, value in enumerate(values)])
    batch.validate(full=True)
    assert batch.column("value").to_pylist() == values
    assert batch.column("key").to_pylist() == [v and v[:1] for v in values]
    assert batch.column("offset").to_pylist() == list(range(len(values)))
    assert pa.types.is_binary(batch.column("value").type)


def test_large_columns_use_arrow_s_conversion(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the capacity of one array, Arrow's own conversion is used."""
    monkeypatch.setattr(record_columns, "_MAX_BINARY_BYTES", 2)
    batch = record_columns.build_record_batch(P, [Message(0, b"ab"), Message(1, b"cd")])
    assert batch.column("value").to_pylist() == [b"ab", b"cd"]


@pytest.mark.parametrize("too_large", [10**18, -(10**18), 2**63 - 1, -(2**63), LAST + 1, FIRST - 1])
def test_timestamp_out_of_range_is_null(too_large: int) -> None:
    """A timestamp out of range becomes null; its neighbours keep theirs."""
    stamps = [(1, 1), (1, too_large), (0, too_large), (2, LAST), (1, FIRST), (0, -1)]
    batch = record_columns.build_record_batch(P, [Message(n, None, stamp) for n, stamp in enumerate(stamps)])
    batch.validate(full=True)
    micros = batch.column("timestamp").cast(pa.int64()).to_pylist()
    assert micros == [1000, None, None, LAST * 1000, FIRST * 1000, None]


def test_unreadable_records_are_split_off() -> None:
    """Only the batch with such a record has a column for the reason; both parts keep their records."""
    readable = record_columns.build_record_batch(P, [Message(0, b"a")])
    reasons = pa.array(["why", None], pa.string())
    bad = record_columns.build_record_batch(P, [Message(1, b"b"), Message(2)]).append_column("error", reasons)
    assert record_columns.split_unreadable(pa.Table.from_batches([readable]))[1] is None
    rest, unreadable = record_columns.split_unreadable(record_columns.join_batches([readable, bad]))
    assert rest.schema == record_columns.RECORD_SCHEMA
    assert rest.column("offset").to_pylist() == [0, 2]
    assert unreadable is not None
    assert unreadable.select(["offset", "error"]).to_pylist() == [{"offset": 1, "error": "why"}]


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"a": pa.int32(), "b": pa.struct([("a", pa.int32())])}, None),
        (dict.fromkeys(["straße", "STRASSE", "é", "e\N{COMBINING ACUTE ACCENT}"], pa.int32()), None),
        ({"ID": pa.int32(), "id": pa.int32()}, "two columns 'id'"),
        ({"s": pa.int32(), "\N{LATIN SMALL LETTER LONG S}": pa.int32()}, "two columns 's'"),
        ({"k": pa.int32(), "\N{KELVIN SIGN}": pa.int32()}, "two columns 'k'"),
        ({"Topic": pa.int32(), "value_topic": pa.int32()}, "two columns 'value_topic'"),
        ({"": pa.int32()}, "a column without a name"),
        ({"m": pa.map_(pa.string(), pa.list_(pa.struct(TWINS)))}, "two columns 'x'"),
    ],
)
def test_names_that_no_table_can_have_are_found(fields: dict[str, pa.DataType], problem: str | None) -> None:
    """Case is ignored as Java does, character by character; within structs record columns are free names."""
    assert record_columns.find_name_problem(pa.schema(fields)) == problem
    assert record_columns.find_name_problem(pa.struct([("topic", pa.int32())]), str) is None
