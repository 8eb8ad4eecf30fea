"""`ordered` keeps the order of keys, and its commits hold for any order of completion."""

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
    """Each message is delivered once, one per key at a time; no commit is ahead."""
    ordering, in_flight, done, order = (KeyOrdering[int](strict), list[int](), set[int](), list[int]())
    left = list(enumerate(keys))
    while left or len(ordering):
        step = data.draw(st.sampled_from(["add", "take", "finish"]))
        if step == "add" and left:
            offset, key = left.pop(0)
            ordering.add_message(offset, key, offset)
        elif step == "take":
            taken = ordering.release_ready(data.draw(st.integers(1, 3)))
            in_flight += taken
            order += taken
        elif step == "finish" and in_flight:
            offset = in_flight.pop(data.draw(st.integers(0, len(in_flight) - 1)))
            ordering.finish_message(offset)
            done.add(offset)
        busy = [keys[offset] for offset in in_flight if keys[offset] is not None]
        assert len(busy) == len(set(busy))
        finished = set(order) if strict else done
        read = len(keys) - len(left)
        assert ordering.committable_offset == min(set(range(read)) - finished, default=ordering.end_offset)
        assert ordering.in_flight_count == len(in_flight)
    assert sorted(order) == list(range(len(keys)))
    for key in KEYS[1:]:
        assert [o for o in order if keys[o] == key] == [o for o, k in enumerate(keys) if k == key]
    assert not strict or order == sorted(order)
