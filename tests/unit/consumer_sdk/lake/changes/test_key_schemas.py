"""A registry's schema without a column of `lake.key` refuses the batch; single records are dead letters."""

from functools import partial
from typing import Any

import pytest

from support.lake.avro_registry import AvroRegistry
from support.lake.change_records import ChangeRecord, build_records
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.changes.change_formats import (
    ChangeRecognizer,
    recognize_debezium,
    recognize_keyed_rows,
    recognize_mapped_rows,
)
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.change_settings import ChangeMapping
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection

Row = dict[str, Any]


def record_schema(title: str, /, **fields: Any) -> Row:
    return {"type": "record", "name": title, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


TEXT = ["null", "string"]
ROW = record_schema("Row", id=["null", "long"], name=TEXT)
RENAMED = record_schema("Renamed", number=["null", "long"], name=TEXT)
SCHEMAS = AvroRegistry(
    {
        1: record_schema("Key", id=["null", "long"]),
        2: record_schema("OtherKey", pk="long"),
        3: ROW,
        4: RENAMED,
        5: record_schema("Envelope", before=["null", ROW], after=["null", "Row"], op="string"),
        6: record_schema("Envelope2", before=["null", RENAMED], after=["null", "Renamed"], op="string"),
        7: record_schema("Change", kind="string", data=["null", ROW]),
        8: record_schema("Removal", kind="string"),
    }
)


def encode(schema_id: int, **row: Any) -> bytes:
    return SCHEMAS.encode(schema_id, row)


def build_projection(
    *key: str, recognize: ChangeRecognizer = recognize_debezium, soft_deletes: bool = False
) -> KeyedProjection:
    return KeyedProjection("lake.orders", SCHEMAS.build_decoder(), recognize, KeyRules(key, soft_deletes))


def read(projection: KeyedProjection, *records: ChangeRecord) -> tuple[list[Row], dict[int, str]]:
    """Return the rows, and the reasons of dead letters by offset."""
    changes, letters = projection.read_changes(build_records(records))
    found = [] if letters is None else letters.to_pylist()
    return changes.upserts.to_pylist(), {row["offset"]: row["error"] for row in found}


KEY = encode(1, id=1)
INSERT = encode(5, before=None, after={"id": 1, "name": "a"}, op="c")
REMOVAL = encode(5, before={"id": 1, "name": "a"}, after=None, op="d")


@pytest.mark.parametrize("soft_deletes", [False, True])
@pytest.mark.parametrize("key", [KEY, None, b'{"id": 1}'])
@pytest.mark.parametrize("value", [INSERT, REMOVAL])
def test_a_misspelled_key_is_named_at_the_first_record(
    key: bytes | None,
    value: bytes,
    soft_deletes: bool,  # noqa: FBT001 - pytest passes it by name
) -> None:
    """The error says the setting, the record, the columns that there are, and the nearest of them."""
    projection = build_projection("idd", "name", soft_deletes=soft_deletes)
    with pytest.raises(TableSchemaMismatchError) as caught:
        read(projection, ChangeRecord(key, value))
    text = str(caught.value)
    assert "lake.key: there is no column 'idd' in the schema of record orders-0 at offset 0" in text
    assert "its row has id, name, and its record key has" in text
    assert "did you mean 'id'? Nothing was written and no offset moved: correct lake.key" in text


def test_a_schema_that_lost_the_key_is_refused_whatever_is_beside_it() -> None:
    """Records of a good schema in the batch, or in the table, do not make it a dead letter."""
    renamed = encode(6, before=None, after={"number": 2, "name": "b"}, op="c")
    good, bad = ChangeRecord(None, INSERT), ChangeRecord(None, renamed)
    for records in ((bad,), (good, bad), (bad, good)):
        with pytest.raises(TableSchemaMismatchError, match=r"no column 'id'.*its row has number, name, and"):
            read(build_projection("id"), *records)


@pytest.mark.parametrize("key", [encode(2, pk=1), None, b"text", b'{"id": 1}'])
def test_a_record_key_without_the_column_does_not_replace_it(key: bytes | None) -> None:
    """Text is the key of a single column only; an object is none of the registry's."""
    projection = build_projection("id", "name", recognize=recognize_keyed_rows)
    with pytest.raises(TableSchemaMismatchError, match="no column 'id'"):
        read(projection, ChangeRecord(key, encode(4, number=1, name="a")))


def test_a_record_key_brings_the_column_that_the_row_lacks() -> None:
    """As for rows of Debezium's ExtractNewRecordState, whose key is only the record's; or by text."""
    projection = build_projection("id", recognize=recognize_keyed_rows)
    records = [ChangeRecord(encode(1, id=7), encode(4, number=1, name="a")), ChangeRecord(b"x", None)]
    rows, reasons = read(projection, *records)
    assert [(row["id"], row["name"]) for row in rows] == [(7, "a")]
    assert reasons.keys() == {1}  # "x" is no BIGINT


@pytest.mark.parametrize("key", [KEY, b"1"])
def test_keys_of_another_schema_do_not_save_one_that_lost_the_key(key: bytes) -> None:
    """Whatever the decoder has read before: a tombstone made it look up the schema of the good keys."""
    renamed = ChangeRecord(None, encode(6, before=None, after={"number": 2, "name": "b"}, op="c"))
    good, projection = ChangeRecord(key, INSERT), build_projection("id")
    for records in ((good, renamed), (good, ChangeRecord(key, None), renamed), (good, renamed)):
        with pytest.raises(TableSchemaMismatchError, match="no column 'id'"):
            read(projection, *records)


def test_one_record_that_was_written_without_a_key_halts_no_table() -> None:
    """The keys beside it have the column; a misspelled one is in none of them."""
    keyed = ChangeRecord(encode(1, id=7), encode(4, number=1, name="a"))
    alone = ChangeRecord(None, encode(4, number=2, name="b"))
    rows, reasons = read(build_projection("id", recognize=recognize_keyed_rows), keyed, alone)
    assert ([row["id"] for row in rows], reasons.keys()) == ([7], {1})
    with pytest.raises(TableSchemaMismatchError, match=r"no column 'idd'.*its record key has id"):
        read(build_projection("idd", recognize=recognize_keyed_rows), alone, keyed)


def test_single_records_without_a_key_stay_dead_letters() -> None:
    """A null, a record key that cannot be read, a tombstone: the schema has the column, or none is known."""
    nothing = encode(5, before=None, after={"id": None, "name": "a"}, op="c")
    lost = encode(6, before=None, after={"number": 2, "name": "b"}, op="c")
    records = [
        ChangeRecord(None, nothing),
        ChangeRecord(encode(1, id=None), lost),
        ChangeRecord(b"\0\0\0\0\x63x", lost),
        ChangeRecord(b"\0", lost),
        ChangeRecord(encode(2, pk=1), None),
        ChangeRecord(None, None),
        ChangeRecord(None, INSERT),
    ]
    rows, reasons = read(build_projection("id"), *records)
    assert [row["id"] for row in rows] == [1]
    assert sorted(reasons) == [0, 1, 2, 3, 4, 5]


def test_a_delete_of_a_mapping_may_have_no_row() -> None:
    """Its schema tells nothing of the row: the record key decides alone."""
    mapping = ChangeMapping("kind", frozenset({"set"}), frozenset({"drop"}), "data")
    projection = build_projection("id", recognize=partial(recognize_mapped_rows, mapping=mapping))
    upsert = ChangeRecord(None, encode(7, kind="set", data={"id": 1, "name": "a"}))
    rows, reasons = read(projection, upsert, ChangeRecord(None, encode(8, kind="drop")))
    assert ([row["id"] for row in rows], reasons.keys()) == ([1], {1})
    misspelled = build_projection("idd", recognize=partial(recognize_mapped_rows, mapping=mapping))
    with pytest.raises(TableSchemaMismatchError, match="no column 'idd'"):
        read(misspelled, upsert)
