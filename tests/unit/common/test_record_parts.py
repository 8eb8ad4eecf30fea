"""Large control values: split into records, joined again, and never half a value."""

import json
import random
import tracemalloc
import zlib
from itertools import permutations
from typing import Any

import pytest

from trimtab.common.control_topics import record_parts
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.record_parts import (
    MAX_RECORD_BYTES,
    MAX_VALUE_BYTES,
    PartAssembler,
    split_value,
)
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import InvalidPayloadError

RANDOM = random.Random(7)  # noqa: S311 - repeatable
SMALL = GroupPlan("g", 3, 1.0, 2, "mbf", 1000.0).encode()


def large_value(megabytes: int = 1) -> bytes:
    """Return random digits that compress to about this size."""
    return RANDOM.randbytes(megabytes * 1_000_000).hex().encode()


def records_of(value: bytes, group: str = "g") -> list[bytes]:
    return [record for _, record in split_value(group, "k", value)]


def read(records: list[bytes], group: str = "g") -> list[bytes]:
    """Return the values that a reader of these records gets, in order."""
    assembler = PartAssembler(group)
    return [value for record in records if (value := assembler.add_record(record)) is not None]


def changed(record: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(record), **fields}, separators=(",", ":")).encode()


def write_rates(partitions: int) -> TopicWriteRates:
    figure = RANDOM.random
    loads = {n: PartitionLoad(figure(), figure(), figure(), n, figure(), figure()) for n in range(partitions)}
    return TopicWriteRates("g", "t", 1.0, 30.0, "offsets", loads)


def test_a_small_value_is_one_record_as_before() -> None:
    """A value that fits has its own key and bytes, so that every version reads it."""
    assert list(split_value("g", "k", SMALL)) == [("k", SMALL)]
    assert read([SMALL]) == [SMALL]


def test_a_large_value_fits_into_records_and_is_joined() -> None:
    """100,000 partitions become records below the limit, in any order, with keys that are a set."""
    rates = write_rates(100_000)
    value = rates.encode()
    records = list(split_value("g", rates.key, value))
    assert max(len(record) for _, record in records) <= MAX_RECORD_BYTES < len(value)
    assert len({key for key, _ in records}) == len(records)
    assert records[-1][0] == rates.key  # last: until then the previous value stays in force
    (joined,) = read([record for _, record in reversed(records)])
    assert TopicWriteRates.decode(joined) == rates


def test_a_reader_of_version_1_skips_parts_by_name() -> None:
    """A member of the version before logs that it needs an upgrade, and keeps what it has."""
    for record in records_of(large_value()):
        with pytest.raises(InvalidPayloadError, match=r"version 2 needs a reader of version 2.*upgrade"):
            GroupPlan.decode(record)


def test_half_a_value_is_none() -> None:
    """Without any one of its parts, a value does not exist; the previous one stays."""
    records = records_of(large_value(2))
    assert len(records) >= 3
    for missing in range(len(records)):
        assert read([SMALL, *records[:missing], *records[missing + 1 :]]) == [SMALL]


def test_parts_of_two_writes_are_not_combined() -> None:
    """Whatever the order, parts of two writes of one key give either write, or nothing."""
    first, second = large_value(), large_value()
    one, two = records_of(first), records_of(second)
    assert len(one) == len(two) == 2
    assert read([one[0], two[1]]) == []
    for order in permutations([*one, *two]):
        assert set(read(list(order))) <= {first, second}
    assert read([one[0], *two, *one]) == [second, first]


def test_a_write_of_fewer_parts_follows_one_of_more() -> None:
    """Parts that remain of a larger value spoil no later one."""
    larger, smaller = large_value(2), large_value(1)
    assert read([*records_of(larger)[:-1], *records_of(smaller)]) == [smaller]


@pytest.mark.parametrize("field", ["key", "digest"])
def test_parts_without_an_end_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    """Whatever field has their bytes: the oldest are forgotten."""
    monkeypatch.setattr(record_parts, "MAX_PENDING_BYTES", 1_000_000)
    part = records_of(large_value(2))[-1]
    assembler = PartAssembler("g")
    tracemalloc.start()
    try:
        for number in range(20):
            other = {"key": f"k{number}", "data": "", field: f"{number}" + "x" * 500_000}
            assert assembler.add_record(changed(part, **other)) is None
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_value_that_was_read_leaves_nothing_behind() -> None:
    """Neither does one that cannot be read: its key alone may have the size of a record."""
    part = records_of(large_value(2))[-1]
    assembler = PartAssembler("g")
    tracemalloc.start()
    try:
        for number in range(20):
            with pytest.raises(InvalidPayloadError):
                assembler.add_record(changed(part, key=f"{number}" + "x" * 500_000, part=0, parts=1))
        assert tracemalloc.get_traced_memory()[0] < 3_000_000
    finally:
        tracemalloc.stop()


def test_many_small_parts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each has a cost beside its texts; the oldest are forgotten."""
    monkeypatch.setattr(record_parts, "MAX_PENDING_BYTES", 100_000)
    part = records_of(large_value(2))[-1]
    assembler = PartAssembler("g")
    for number in range(1000):
        assert assembler.add_record(changed(part, key=f"k{number}", data="")) is None
    assert len(assembler._pending) < 100


def test_a_later_write_is_read_from_several_partitions() -> None:
    """A topic of several partitions keeps the order of a key only: the parts of two writes mix."""
    first, second = large_value(1), large_value(2)
    by_partition = [*zip(records_of(first), records_of(second)[-2:], strict=True)]
    for partition in (0, 1):
        one, two = by_partition[partition], by_partition[1 - partition]
        assert read([*records_of(second)[:-2], *one, *two])[-1] == second


def test_other_groups_are_ignored() -> None:
    """One topic holds the values of all groups."""
    assert read(records_of(large_value(), "other")) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"data": "!"},
        {"data": "ä"},
        {"data": 1},
        {"digest": "0" * 64, "parts": 1},
        {"part": -1},
        {"part": 99},
        {"part": True},
        {"parts": 0},
        {"parts": 10**400},
        {"parts": 129},
        {"key": None},
        {"group": ["g"]},
    ],
)
def test_a_bad_part_spoils_its_value_only(fields: dict[str, Any]) -> None:
    """It is refused by name, or never complete; the value behind it is read."""
    value = large_value()
    bad = [changed(record, **fields) for record in records_of(large_value())]
    assembler = PartAssembler("g")
    for record in bad:
        try:
            assert assembler.add_record(record) is None
        except InvalidPayloadError:
            continue
    assert [v for r in records_of(value) if (v := assembler.add_record(r))] == [value]


def test_a_truncated_compression_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed data that ends early, or is none, is refused by name."""
    compress = zlib.compress

    def truncate(data: bytes, level: int) -> bytes:
        return compress(data, level)[:-9]

    def keep(data: bytes, _: int) -> bytes:
        return data

    for spoilt in (truncate, keep):
        monkeypatch.setattr(zlib, "compress", spoilt)
        with pytest.raises(InvalidPayloadError, match=r"k in [0-9]+ parts: "):
            read(records_of(large_value()))


def test_a_bomb_is_decompressed_up_to_the_limit() -> None:
    """A few kilobytes that would decompress to a gigabyte are refused, without the gigabyte."""
    bomb = zlib.compress(b" " * (MAX_VALUE_BYTES + 1), 9)
    with pytest.raises(InvalidPayloadError, match="more than 64000000 bytes"):
        record_parts.decompress(bomb, "k")
    assert record_parts.decompress(zlib.compress(b"x"), "k") == b"x"


def test_a_value_beyond_the_limit_is_refused_by_its_writer() -> None:
    """The error names the key and what to do."""
    with pytest.raises(InvalidPayloadError, match=r"the value of k has .* use a topic of fewer partitions"):
        records_of(b" " * (MAX_VALUE_BYTES + 1))


def test_incomplete_parts_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest incomplete value is forgotten first."""
    monkeypatch.setattr(record_parts, "MAX_PENDING_BYTES", 3 * MAX_RECORD_BYTES)
    value = large_value()
    assembler = PartAssembler("g")
    part = records_of(large_value())[0]
    first, last = records_of(value)
    assert assembler.add_record(first) is None
    for number in range(10):
        assert assembler.add_record(changed(part, key=f"k{number}")) is None
    assert assembler.add_record(last) is None  # the first part is forgotten
    assert assembler.add_record(first) == value
