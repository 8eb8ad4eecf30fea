"""State of an `ordered` partition: what counts, what is committed, and how a release is undone."""

from trimtab.consumer_sdk.queues.ordered.key_ordering import KeyOrdering


def filled(*keys: bytes | None, strict: bool = False) -> KeyOrdering[int]:
    """Return an ordering with a message of each key; the message is its offset, from 10 on."""
    ordering = KeyOrdering[int](strict=strict)
    for offset, key in enumerate(keys, 10):
        ordering.add_message(offset, key, offset)
    return ordering


def test_a_new_partition_is_empty() -> None:
    """It commits the offset 0, and is not strict."""
    ordering = KeyOrdering[int]()
    assert (len(ordering), ordering.in_flight_count, ordering.committable_offset) == (0, 0, 0)
    assert ordering.release_ready(5) == []
    assert not ordering.strict


def test_messages_count_until_they_are_finished() -> None:
    """Waiting and in flight."""
    ordering = filled(b"a", b"a", None)
    assert len(ordering) == 3
    assert ordering.release_ready(5) == [10, 12]
    assert (len(ordering), ordering.in_flight_count) == (3, 2)
    ordering.finish_message(12)
    assert (len(ordering), ordering.in_flight_count, ordering.committable_offset) == (2, 1, 10)
    ordering.finish_message(10)
    assert (len(ordering), ordering.committable_offset) == (1, 11)
    assert ordering.release_ready(5) == [11]  # waited for its key


def test_strict_messages_count_until_they_are_settled() -> None:
    """A delivered one is committed before its delivery, and still in flight."""
    ordering = filled(b"a", b"b", b"a", strict=True)
    assert ordering.release_ready(2) == [10, 11]
    assert (len(ordering), ordering.in_flight_count, ordering.committable_offset) == (3, 2, 12)
    ordering.finish_message(11)
    assert len(ordering) == 2
    assert ordering.release_ready(2) == []  # the next key is in flight
    ordering.finish_message(10)
    assert ordering.release_ready(2) == [12]
    assert (len(ordering), ordering.committable_offset) == (1, 13)


def test_no_more_than_the_requested_messages_are_released() -> None:
    """The others stay ready."""
    ordering = filled(None, None, None)
    assert ordering.release_ready(0) == []
    assert ordering.release_ready(2) == [10, 11]
    assert ordering.release_ready(2) == [12]


def test_an_undone_release_is_read_again() -> None:
    """Its keys are free, nothing of it counts, and the log continues at its first offset."""
    ordering = filled(b"a", b"b", None, strict=True)
    assert ordering.release_ready(2) == [10, 11]
    ordering.undo_release([11, 10])
    assert (len(ordering), ordering.in_flight_count) == (0, 0)
    assert (ordering.end_offset, ordering.committable_offset) == (10, 10)
    for offset, key in enumerate((b"a", b"b", None), 10):
        ordering.add_message(offset, key, offset)
    assert ordering.release_ready(9) == [10, 11, 12]


def test_an_undone_release_leaves_earlier_ones_in_flight() -> None:
    """Only the messages of the last release are given back."""
    ordering = filled(b"a", b"b", strict=True)
    assert ordering.release_ready(1) == [10]
    assert ordering.release_ready(1) == [11]
    ordering.undo_release([11])
    assert (ordering.in_flight_count, ordering.committable_offset) == (1, 11)
    ordering.add_message(11, b"a", 11)
    assert ordering.release_ready(1) == []  # 10 has that key


def test_messages_that_wait_can_be_discarded() -> None:
    """Those in flight can still be finished; the first unfinished one is committed."""
    ordering = filled(b"a", b"a", b"b")
    assert ordering.release_ready(1) == [10]
    ordering.discard_waiting()
    assert ordering.release_ready(9) == []
    ordering.finish_message(10)
    assert ordering.release_ready(9) == []
    assert (ordering.in_flight_count, ordering.committable_offset) == (0, 11)


def test_a_key_is_free_after_its_last_message() -> None:
    """The next message of the key is ready at once."""
    ordering = filled(b"a")
    assert ordering.release_ready(1) == [10]
    ordering.finish_message(10)
    ordering.add_message(11, b"a", 11)
    assert ordering.release_ready(1) == [11]
