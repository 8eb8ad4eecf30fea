"""Changes applied in batches, some of them twice, leave the rows of a replay in plain Python."""

from hypothesis import given
from hypothesis import strategies as st

from support.lake.change_records import (
    ChangeRecord,
    Row,
    apply_changes,
    build_projection,
    build_records,
    change,
    replay,
)

COLUMNS = ("id", "name", "n")
ids = st.integers(0, 4)
rows = st.builds(lambda *values: dict(zip(COLUMNS, values, strict=True)), ids, st.text(max_size=2), ids)
upserts = st.builds(change, st.sampled_from("rcu"), st.none(), rows)
moves = st.builds(change, st.just("u"), rows, rows)
deletes = st.builds(change, st.just("d"), rows)
tombstones = st.builds(ChangeRecord, st.fixed_dictionaries({"id": ids}), st.none(), st.just(0))
changes = st.one_of(upserts, upserts, moves, deletes, tombstones)
batches = st.lists(st.lists(changes, max_size=8), max_size=4)


@given(batches, st.data())
def test_changes_in_batches_equal_a_replay(batches: list[list[ChangeRecord]], data: st.DataObject) -> None:
    """A batch that is applied again changes nothing."""
    projection = build_projection()
    table: dict[object, Row] = {}
    for batch in batches:
        net, letters = projection.read_changes(build_records(batch))
        assert letters is None
        table = apply_changes(table, net)
        if data.draw(st.booleans(), label="again"):
            assert apply_changes(table, net) == table
    records = [record for batch in batches for record in batch]
    # a row's key is its topic, and its id
    found = {key[1:]: {name: row[name] for name in COLUMNS} for key, row in table.items()}
    assert found == replay(records)
