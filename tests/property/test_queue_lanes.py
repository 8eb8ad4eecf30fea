"""What `ordered` hands out and commits holds for every order in which messages are finished."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.consumer_sdk.queues.ordered.key_ordering import KeyOrdering

KEYS = (None, b"a", b"b", b"c")


@pytest.mark.parametrize("strict", [False, True])
@given(keys=st.lists(st.sampled_from(KEYS), max_size=20), data=st.data())
def test_keys_keep_their_order_and_no_commit_is_ahead(
    *, keys: list[bytes | None], strict: bool, data: st.DataObject
) -> None:
    """Each message comes once, one of a key at a time; commits stop at the first unfinished one."""
    lanes, working, done, order = KeyOrdering[int](strict), list[int](), set[int](), list[int]()
    left = list(enumerate(keys))
    while left or len(lanes):
        step = data.draw(st.sampled_from(["add", "take", "finish"]))
        if step == "add" and left:
            offset, key = left.pop(0)
            lanes.add_message(offset, key, offset)
        elif step == "take":
            taken = lanes.release_ready(data.draw(st.integers(1, 3)))
            working += taken
            order += taken
        elif step == "finish" and working:
            offset = working.pop(data.draw(st.integers(0, len(working) - 1)))
            lanes.finish_message(offset)
            done.add(offset)
        busy = [keys[offset] for offset in working if keys[offset] is not None]
        assert len(busy) == len(set(busy))
        over = set(order) if strict else done
        read = len(keys) - len(left)
        assert lanes.committable_offset == min(set(range(read)) - over, default=lanes.end_offset)
        assert lanes.in_flight_count == len(working)
    assert sorted(order) == list(range(len(keys)))
    for key in KEYS[1:]:
        assert [o for o in order if keys[o] == key] == [o for o, k in enumerate(keys) if k == key]
    assert not strict or order == sorted(order)
