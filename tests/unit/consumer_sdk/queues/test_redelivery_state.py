"""Open messages of a partition, step by step; `tests/property` compares them with a model."""

from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind
from trimtab.consumer_sdk.queues.kmq.redelivery_state import DueMessage, RedeliveryState


def state_of(*markers: Marker, appended_ms: int = 100) -> RedeliveryState:
    """Return the state after these markers, all appended at one time, from offset 5 on."""
    state = RedeliveryState()
    for offset, marker in enumerate(markers, 5):
        state.apply_marker(offset, appended_ms, marker)
    return state


def start(first: int, last: int, ms: int = 50, delivery: int = 1) -> Marker:
    return Marker(MarkerKind.START, ((first, last),), ms, delivery)


def test_a_new_partition_has_nothing_open() -> None:
    """Its log begins at 0."""
    state = RedeliveryState()
    assert (len(state), state.returned_count, state.next_deadline_ms) == (0, 0, None)
    assert (state.broker_time_ms, state.next_offset, state.safe_offset) == (0, 0, 0)
    assert state.pop_due(10) == []


def test_a_message_is_due_at_its_deadline() -> None:
    """Not a millisecond earlier; once, and it stays open."""
    state = state_of(start(1, 2, ms=50, delivery=3))
    state.apply_marker(6, 149, Marker(MarkerKind.TICK))
    assert state.pop_due(10) == []
    state.apply_marker(7, 150, Marker(MarkerKind.TICK))
    assert state.pop_due(10) == [DueMessage(offset, 3, MarkerKind.START, "timeout", 150) for offset in (1, 2)]
    assert (state.pop_due(10), len(state), state.safe_offset) == ([], 2, 5)


def test_due_messages_are_returned_by_groups() -> None:
    """At least as many as requested; a group is not split, and the earliest deadline comes first."""
    state = state_of(start(1, 3, ms=20), start(7, 8, ms=10), start(9, 9, ms=30))
    state.apply_marker(8, 200, Marker(MarkerKind.TICK))
    assert [due.offset for due in state.pop_due(1)] == [7, 8]
    assert [due.offset for due in state.pop_due(3)] == [1, 2, 3]
    assert state.pop_due(0) == []
    assert [due.offset for due in state.pop_due(4)] == [9]


def test_the_reason_is_the_consumers_or_the_kind() -> None:
    """A retry without a reason says that it was a retry; an extension brings the timeout back."""
    state = state_of(
        start(1, 4, ms=90),
        Marker(MarkerKind.RETRY, ((1, 1),), 10),
        Marker(MarkerKind.RETRY, ((2, 2),), 10, reason="busy"),
        Marker(MarkerKind.REJECT, ((3, 3),), 10, reason="invalid"),
        Marker(MarkerKind.EXTEND, ((4, 4),), 10),
    )
    assert (len(state), state.returned_count) == (4, 3)
    state.apply_marker(10, 110, Marker(MarkerKind.TICK))
    assert {(due.offset, due.kind.value, due.reason) for due in state.pop_due(10)} == {
        (1, "retry", "retry"),
        (2, "retry", "busy"),
        (3, "reject", "invalid"),
        (4, "start", "timeout"),
    }


def test_a_late_extension_moves_nothing() -> None:
    """A retried message is due when the retry said."""
    state = state_of(
        start(1, 1, ms=90), Marker(MarkerKind.RETRY, ((1, 1),), 10), Marker(MarkerKind.EXTEND, ((1, 1),), 60)
    )
    assert (state.next_deadline_ms, state.returned_count) == (110, 1)


def test_the_safe_offset_is_the_oldest_start_marker_with_an_open_message() -> None:
    """One open message keeps its marker; then all markers read are safe."""
    state = state_of(start(1, 2), start(3, 4), Marker(MarkerKind.RETRY, ((2, 2),), 10))
    assert state.safe_offset == 5
    state.apply_marker(8, 100, Marker(MarkerKind.END, ((1, 1),)))
    assert state.safe_offset == 5
    state.apply_marker(9, 100, Marker(MarkerKind.END, ((2, 2),)))
    assert (state.safe_offset, state.returned_count) == (6, 0)
    state.apply_marker(10, 100, Marker(MarkerKind.END, ((3, 4),)))
    assert (state.safe_offset, len(state), state.next_deadline_ms) == (11, 0, None)


def test_a_start_marker_without_messages_holds_nothing() -> None:
    """It is safe at once."""
    state = state_of(Marker(MarkerKind.START, (), 50, 1))
    assert (len(state), state.safe_offset, state.next_deadline_ms) == (0, 6, None)


def test_a_message_delivered_again_is_open_under_its_new_marker() -> None:
    """The first marker holds only what was not delivered again."""
    state = state_of(start(1, 2), start(1, 2, ms=70, delivery=2))
    assert (len(state), state.safe_offset, state.next_deadline_ms) == (2, 6, 170)


def test_postponed_messages_are_due_later_if_open() -> None:
    """Those that ended meanwhile are not, and nothing comes twice."""
    state = state_of(start(1, 3, ms=10))
    state.apply_marker(6, 110, Marker(MarkerKind.TICK))
    due = state.pop_due(10)
    state.apply_marker(7, 110, Marker(MarkerKind.END, ((2, 2),)))
    state.postpone_due(due, 30)
    assert state.next_deadline_ms == 140
    state.apply_marker(8, 140, Marker(MarkerKind.TICK))
    assert [message.offset for message in state.pop_due(10)] == [1, 3]
    assert state.pop_due(10) == []


def test_a_leader_with_an_earlier_clock_moves_no_time_back() -> None:
    """Deadlines count from the largest append time read."""
    state = state_of(start(1, 1, ms=50))
    state.apply_marker(6, 40, start(2, 2, ms=50))
    assert (state.broker_time_ms, state.next_deadline_ms) == (100, 150)
    state.apply_marker(7, 150, Marker(MarkerKind.TICK))
    assert [due.offset for due in state.pop_due(10)] == [1, 2]
