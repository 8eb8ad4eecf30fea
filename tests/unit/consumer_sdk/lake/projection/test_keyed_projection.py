"""The meaning of change records: which rows stand, which keys are touched, which are dead letters."""

from base64 import b64encode
from typing import Any

import pyarrow as pa
import pytest

from support.lake.change_records import ChangeRecord, build_projection, build_records, change, wrap
from support.lake.hostile_json import HOSTILE
from trimtab.consumer_sdk.errors import TableSchemaMismatchError
from trimtab.consumer_sdk.lake.bridge import arrow_rows
from trimtab.consumer_sdk.lake.changes.change_rows import KeyRules
from trimtab.consumer_sdk.lake.changes.change_settings import DEBEZIUM, KEYED, ChangeMapping
from trimtab.consumer_sdk.lake.projection.keyed_projection import KeyedProjection

A1 = {"id": 1, "name": "a", "n": 1}
B1 = {"id": 1, "name": "b", "n": 1}
A2 = {"id": 2, "name": "a", "n": 2}
NO_KEY = "no key: id (lake.key) is null or missing, in the value and in the record key"
MAXWELL = ChangeMapping("type", frozenset({"insert", "update"}), frozenset({"delete"}), row="data")
REJECTED_TRUNCATION = "op t (TRUNCATE) is not applied: empty the table by hand if its rows must go, or set"
UNAVAILABLE = "__debezium_unavailable_value"
FLAT = ChangeMapping("op", frozenset({"I"}), frozenset({"D"}))


def read(projection: KeyedProjection, *records: ChangeRecord) -> tuple[list[Any], list[Any], list[Any]]:
    """Return the rows that stand, the touched keys, and the dead letters' offsets and reasons."""
    changes, letters = projection.read_changes(build_records(records))
    hidden = ["topic", "partition", "offset", "timestamp"]
    keys = [tuple(row.values())[1:] for row in changes.touched_keys.to_pylist()]  # without the topic
    reasons = [] if letters is None else [(row["offset"], row["error"]) for row in letters.to_pylist()]
    return changes.upserts.drop_columns(hidden).to_pylist(), keys, reasons


@pytest.mark.parametrize(
    ("records", "rows", "keys"),
    [
        ([change("c", None, A1)], [A1], [(1,)]),
        ([change("r", None, A1), change("u", A1, B1)], [B1], [(1,)]),
        ([change("c", None, A1), change("d", A1)], [], [(1,)]),
        ([change("d", A1), ChangeRecord({"id": 1}, None)], [], [(1,)]),  # the tombstone behind a delete
        ([change("d", A1), ChangeRecord({"id": 1}, None), change("c", None, B1)], [B1], [(1,)]),
        ([ChangeRecord({"id": 1}, None)], [], [(1,)]),
        ([ChangeRecord(wrap({"id": 1}), None)], [], [(1,)]),
        ([ChangeRecord(b"1", None), ChangeRecord(b'"2"', None)], [], [(1,), (2,)]),
        ([change("u", A2, A1)], [A1], [(2,), (1,)]),  # the key has changed
        ([change("u", A2, A1), change("c", None, A2)], [A1, A2], [(1,), (2,)]),
        ([ChangeRecord({"id": 1}, wrap(change("c", None, A1).value))], [A1], [(1,)]),
        ([ChangeRecord(None, change("c", None, A1).value)], [A1], [(1,)]),
        ([change("d", {"id": 1, "name": None, "n": None})], [], [(1,)]),
        ([ChangeRecord({"id": 1}, change("d").value)], [], [(1,)]),  # no before: the record key
        (
            [ChangeRecord(None, wrap(change("c", None, A1).value)), change("c", None, A2)],
            [A1, A2],
            [(1,), (2,)],
        ),
    ],
)
def test_debezium_changes(records: list[ChangeRecord], rows: list[Any], keys: list[Any]) -> None:
    """The last change of a key counts, and every changed key is looked up."""
    assert read(build_projection(), *records) == (rows, keys, [])


@pytest.mark.parametrize(
    "value",
    [
        {"ts_ms": 4},
        wrap({"ts_ms": 4}),
        {"status": "BEGIN", "id": "571:5", "event_count": None, "data_collections": None, "ts_ms": 1},
        {
            "source": {},
            "ts_ms": 1,
            "databaseName": "shop",
            "schemaName": None,
            "ddl": "…",
            "tableChanges": [],
        },
        {"op": "m", "ts_ms": 1, "source": {}, "message": {"prefix": "p", "content": ""}},
    ],
)
def test_what_is_no_change_of_a_row_changes_nothing(value: Any) -> None:
    """Heartbeats, transaction boundaries, schema changes and messages; the changes beside them count."""
    assert read(build_projection(), ChangeRecord(None, value)) == ([], [], [])
    assert read(build_projection(), ChangeRecord(None, value), change("c", None, A1)) == ([A1], [(1,)], [])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (change("t"), REJECTED_TRUNCATION),
        (change("x"), "op 'x' is unknown"),
        (change("u"), "op u without after"),
        (ChangeRecord(None, A1), "no op, so no Debezium envelope: set lake.changes=keyed"),
        (ChangeRecord(None, wrap(A1)), "no op, so no Debezium envelope: set lake.changes=keyed"),
        (ChangeRecord(None, b"?"), "not one JSON object"),
        (ChangeRecord(None, None), NO_KEY),
        (ChangeRecord(None, change("c", None, {"id": None, "name": "a"}).value), NO_KEY),
        (ChangeRecord({"id": None}, None), NO_KEY),
        (ChangeRecord({"other": 1}, None), NO_KEY),
        (ChangeRecord(b"x", None), 'record key: id: not of type BIGINT: "x"'),
        (ChangeRecord({"id": "x"}, None), 'record key: id: not of type BIGINT: "x"'),
        (ChangeRecord(None, change("c", None, {"id": "x"}).value), 'after.id: not of type BIGINT: "x"'),
    ],
)
def test_a_record_without_a_change_of_a_known_key_is_a_dead_letter(record: ChangeRecord, reason: str) -> None:
    """With its reason; the records beside it count."""
    rows, keys, letters = read(build_projection(), change("c", None, A1), record, change("c", None, A2))
    assert (rows, keys) == ([A1, A2], [(1,), (2,)])
    ((offset, text),) = letters
    assert offset == 1
    assert reason in text


@pytest.mark.parametrize(
    ("records", "rows"),
    [
        ([change("t")], []),
        ([change("c", None, A1), change("t")], []),
        ([change("c", None, A1), change("t"), change("c", None, A2)], [A2]),
        ([change("c", None, A1), change("t"), change("c", None, A1), change("u", A1, B1)], [B1]),
        ([change("c", None, A1), change("t"), change("c", None, A1), change("d", A1)], []),
        ([change("t"), change("c", None, A1), change("t"), change("c", None, A2)], [A2]),
    ],
)
def test_a_truncate_removes_all_rows_before_it(records: list[ChangeRecord], rows: list[Any]) -> None:
    """With `lake.truncate: apply`; the key that it touches is that of all rows of the partition."""
    projection = build_projection(rules=KeyRules(("id",), applies_truncations=True))
    changes, letters = projection.read_changes(build_records(records))
    assert changes.touched_keys.to_pylist() == [{"topic": "orders", "partition": 0}]
    assert changes.upserts.select(list(A1)).to_pylist() == rows
    assert letters is None


def test_a_bridge_read_sees_a_truncate() -> None:
    """The rows of its partition go; another topic's table rows, written before the setting, stay."""
    projection = build_projection(rules=KeyRules(("id",), applies_truncations=True))
    before = [
        projection.read_changes(build_records([change("c", None, A1)], t))[0] for t in ("orders", "old")
    ]
    changes, _ = projection.read_changes(build_records([change("t"), change("c", None, A2)], first=1))
    after = arrow_rows.apply_changes(
        "lake.orders", pa.concat_tables([each.upserts for each in before]), changes
    )
    assert [(row["topic"], row["id"]) for row in after.to_pylist()] == [("old", 1), ("orders", 2)]


def test_a_truncate_leaves_dead_letters_before_it() -> None:
    """They are reported as without it."""
    projection = build_projection(rules=KeyRules(("id",), applies_truncations=True))
    _, letters = projection.read_changes(build_records([change("x"), change("t"), change("c", None, A1)]))
    assert [row["offset"] for row in letters.to_pylist()] == [0]


@pytest.mark.parametrize("other", ["partition", "topic"])
def test_a_truncate_is_applied_to_topics_of_one_partition_only(other: str) -> None:
    """A batch of another partition is refused, also without a TRUNCATE: one may be in another batch."""
    projection = build_projection(rules=KeyRules(("id",), applies_truncations=True))
    records = build_records([change("c", None, A1)])
    if other == "partition":
        more = build_records([change("c", None, A2)._replace(partition=1)])
    else:
        more = build_records([change("c", None, A2)], topic="customers")
    with pytest.raises(TableSchemaMismatchError, match=r"lake\.truncate=apply needs topics of one partition"):
        projection.read_changes(pa.concat_tables([records, more]))


def test_a_projection_has_the_rows_of_its_table_and_the_dead_letters_beside_it() -> None:
    """Of any partition, where no TRUNCATE is applied; without dead letters it has no table for them."""
    records = build_records([change("c", None, A1), change("c", None, A2)._replace(partition=1)])
    projected = build_projection().project_records(records, lambda table: table)
    assert projected.topic_table.upserts.num_rows == 2
    assert projected.side_tables == {}
    projected = build_projection().project_records(build_records([change("x")]), lambda table: table)
    assert projected.topic_table.upserts.num_rows == 0
    ((name, letters),) = projected.side_tables.items()
    assert name == "lake.orders_dead_letter"
    assert letters.column("error").to_pylist() == ["op 'x' is unknown"]


def test_keyed_rows() -> None:
    """A value is the row, null deletes; the key is a column of the value, or the record's key."""
    name = {"name": "a", "n": 1}
    records = [ChangeRecord(b"1", name), ChangeRecord({"id": 2}, name), ChangeRecord(None, {"id": 3, **name})]
    rows = [{"id": at, **name} for at in (1, 2, 3)]
    assert read(build_projection(KEYED), *records) == (rows, [(1,), (2,), (3,)], [])
    assert read(build_projection(KEYED), *records, ChangeRecord(b"2", None))[0] == [rows[0], rows[2]]


def test_mapped_columns() -> None:
    """The operation and the row are where the mapping says."""
    insert, delete = ({"type": kind, "data": A1} for kind in ("insert", "delete"))
    other = ChangeRecord(None, {"type": "bootstrap-start", "data": A1})
    maxwell = build_projection(MAXWELL)
    assert read(maxwell, ChangeRecord(None, insert)) == ([A1], [(1,)], [])
    assert read(maxwell, ChangeRecord(None, insert), ChangeRecord(None, delete)) == ([], [(1,)], [])
    assert read(maxwell, other)[2] == [
        (0, "type 'bootstrap-start' (lake.changes) is neither an upsert nor a delete")
    ]
    flat = [ChangeRecord(None, {"op": "I", **A1}), ChangeRecord(None, {"op": "D", **A2})]
    assert read(build_projection(FLAT), *flat) == ([A1], [(1,), (2,)], [])


@pytest.mark.parametrize("data", [{"data": None}, {}])
def test_a_mapped_upsert_without_its_row_is_a_dead_letter(data: Any) -> None:
    """With the record's key, nulls would replace the row that stands."""
    maxwell = build_projection(MAXWELL)
    whole, empty = {"type": "insert", "data": A1}, ChangeRecord({"id": 1}, {"type": "update", **data})
    letters = [(1, "update without data (lake.changes)")]
    assert read(maxwell, ChangeRecord(None, whole), empty) == ([A1], [(1,)], letters)
    delete = ChangeRecord({"id": 1}, {"type": "delete", **data})
    assert read(maxwell, ChangeRecord(None, whole), delete) == ([], [(1,)], [])


@pytest.mark.parametrize("value", [*HOSTILE, b'{"x": %s}' % (b"9" * 5000), b'{"x": ' + b"[" * 5000])
def test_hostile_values_are_dead_letters(value: bytes) -> None:
    """An error that no one names would end the sink at each restart."""
    for projection, good in (
        (build_projection(), change("c", None, A1)),
        (build_projection(MAXWELL), ChangeRecord(None, {"type": "insert", "data": A1})),
    ):
        rows, keys, letters = read(projection, good, ChangeRecord(None, value))
        assert (rows, keys, [offset for offset, _ in letters]) == ([A1], [(1,)], [1])


@pytest.mark.parametrize(
    ("value", "outcome"),
    [
        ({"schema": {"type": "wide"}, **A1}, ([A1], [(1,)], [])),
        (wrap(None), ([], [], [(0, "its payload is null")])),
    ],
    ids=["a column named schema", "null payload"],
)
def test_a_row_that_begins_like_connects_wrapping(value: Any, outcome: Any) -> None:
    """Nulls, with the record's key, would replace the row."""
    assert read(build_projection(KEYED), ChangeRecord({"id": 1}, value)) == outcome


def test_compound_keys() -> None:
    """Both columns identify a row; text as a record key does not name them."""
    projection = build_projection(rules=KeyRules(("id", "name")))
    records = [change("c", None, A1), change("c", None, B1), ChangeRecord({"id": 1, "name": "a"}, None)]
    assert read(projection, *records) == ([B1], [(1, "b"), (1, "a")], [])
    ((_, reason),) = read(projection, ChangeRecord(b"1", None))[2]
    assert reason == "record key: it is no object, and the table has several key columns"
    named = ChangeRecord({"id": 1, "name": "z"}, change("u", None, {"id": None, "name": "a"}).value)
    assert read(projection, named)[1] == [(1, "a")]  # the row's own part of the key counts
    unknown = change("u", {"id": None, "name": "a"}, B1).value
    assert read(projection, ChangeRecord({"id": 1, "name": "b"}, unknown))[1:] == ([(1, "b")], [])


def test_soft_deletes() -> None:
    """The row of a delete stays as it was, marked; its tombstone, or an unknown row, changes no more."""
    projection = build_projection(rules=KeyRules(("id",), soft_deletes=True))
    deleted = [A1 | {"__deleted": True}]
    assert read(projection, change("c", None, A1)) == ([A1 | {"__deleted": False}], [(1,)], [])
    assert read(projection, change("d", A1)) == (deleted, [(1,)], [])
    assert read(projection, change("d", A1), ChangeRecord({"id": 1}, None)) == (deleted, [(1,)], [])
    lone = {"id": 1, "name": None, "n": None, "__deleted": True}
    assert read(projection, ChangeRecord({"id": 1}, None)) == ([lone], [(1,)], [])
    other = ChangeRecord({"id": 2}, None)
    assert read(projection, change("d", A1), other)[1] == [(1,), (2,)]


def test_tombstones_behind_a_soft_delete_keep_its_row() -> None:
    """Of any key in the batch; one that has no key is a dead letter, behind a delete without one, too."""
    projection = build_projection(rules=KeyRules(("id",), soft_deletes=True))
    deleted = A1 | {"__deleted": True}
    tombstone = ChangeRecord({"id": 1}, None)
    rows, _, _ = read(projection, change("c", None, A2), change("d", A1), tombstone)
    assert rows == [A2 | {"__deleted": False}, deleted]
    rows, _, _ = read(projection, ChangeRecord({"id": 2}, None), change("d", A1), tombstone)
    assert deleted in rows
    keyless = ChangeRecord(None, change("d", A1).value)
    assert read(projection, keyless, ChangeRecord(None, None)) == ([deleted], [(1,)], [(1, NO_KEY)])


def test_a_column_of_soft_deletes_must_be_free() -> None:
    """The table would have it twice."""
    schema = pa.schema([("id", pa.int64()), ("__deleted", pa.string())])
    projection = build_projection(rules=KeyRules(("id",), soft_deletes=True), schema=schema)
    value = {"op": "c", "before": None, "after": {"id": 1}}
    with pytest.raises(TableSchemaMismatchError, match=r"a column __deleted, which lake\.delete=soft adds"):
        projection.read_changes(build_records([ChangeRecord(None, value)]))


def test_topics_of_one_table_have_rows_of_their_own() -> None:
    """The topic is a part of the key, also for a process that reads one of them: others read the others."""
    for topic in ("eu", "us"):
        changes, _ = build_projection().read_changes(build_records([change("c", None, A1)], topic))
        assert changes.touched_keys.to_pylist() == [{"topic": topic, "id": 1}]


def test_columns_of_the_record_keep_their_names() -> None:
    """A column `offset` of the row is called value_offset, and may be the key."""
    schema = pa.schema([("offset", pa.int64()), ("name", pa.string())])
    projection = build_projection(rules=KeyRules(("value_offset",)), schema=schema)
    row = {"offset": 5, "name": "a"}
    records = [
        ChangeRecord(None, change("c", None, {"id": 0, **row}).value),
        ChangeRecord({"offset": 6}, None),
    ]
    assert read(projection, *records) == ([{"value_offset": 5, "name": "a"}], [(5,), (6,)], [])


@pytest.mark.parametrize("other", ["value_offset", "OFFSET"])
def test_two_columns_of_one_name_are_refused(other: str) -> None:
    """A table would lose the values of one."""
    schema = pa.schema([("id", pa.int64()), ("offset", pa.int64()), (other, pa.int64())])
    value = {"op": "c", "before": None, "after": {"id": 1}}
    with pytest.raises(TableSchemaMismatchError, match="two columns 'value_offset'"):
        build_projection(schema=schema).read_changes(build_records([ChangeRecord(None, value)]))


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.int64())])
def test_a_key_without_equality_is_refused(kind: Any) -> None:
    """With the column's name."""
    schema = pa.schema([("id", kind), ("name", pa.string())])
    value = {"op": "c", "before": None, "after": {"name": "a"}}
    with pytest.raises(TableSchemaMismatchError, match=r"lake.key: column id is .* cannot be a key"):
        build_projection(schema=schema).read_changes(build_records([ChangeRecord(None, value)]))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.string(), UNAVAILABLE),
        (pa.binary(), b64encode(UNAVAILABLE.encode()).decode()),
        (pa.list_(pa.string()), ["a", UNAVAILABLE]),
        (pa.map_(pa.string(), pa.string()), {UNAVAILABLE: UNAVAILABLE}),
    ],
    ids=str,
)
@pytest.mark.parametrize(("form", "prefix"), [(DEBEZIUM, "after."), (KEYED, "")])
def test_a_value_that_debezium_does_not_know_is_a_dead_letter(
    kind: Any, value: Any, form: Any, prefix: str
) -> None:
    """Its placeholder would replace the text that the database still has."""
    row = {"id": 1, "body": value}
    record = change("u", None, row) if form == DEBEZIUM else ChangeRecord({"id": 1}, row)
    empty = change("c", None, {"id": 2, "body": None})
    empty = empty if form == DEBEZIUM else ChangeRecord({"id": 2}, {"id": 2})
    schema = pa.schema([("id", pa.int64()), ("body", kind)])
    changes, letters = build_projection(form, schema=schema).read_changes(build_records([empty, record]))
    assert changes.upserts.select(["id", "body"]).to_pylist() == [{"id": 2, "body": None}]
    found = letters.select(["offset", "error", "field"]).to_pylist() if letters else []
    assert [(row["offset"], row["field"]) for row in found] == [(1, f"{prefix}body")]
    assert found[0]["error"].startswith(f"{prefix}body: {UNAVAILABLE} for {kind}, ")
