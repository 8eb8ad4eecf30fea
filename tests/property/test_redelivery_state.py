"""The redelivery state is right for every order of markers and every takeover."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.marked import offsets
from trimtab.common.errors import InvalidPayloadError
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind, decode_marker, to_ranges
from trimtab.consumer_sdk.queues.kmq.offset_ranges import OffsetRangeMap
from trimtab.consumer_sdk.queues.kmq.redelivery_state import RedeliveryState

MESSAGES = 12
MOVES = (MarkerKind.EXTEND, MarkerKind.RETRY, MarkerKind.REJECT)


@dataclass
class ModelMessage:
    """Reference model: one open message."""

    start: int
    deadline: int
    delivery: int
    kind: MarkerKind


def build_model(log: Sequence[tuple[int, int, Marker]]) -> dict[int, ModelMessage]:
    """Return the open messages after a log of markers."""
    found: dict[int, ModelMessage] = {}
    now = 0
    for at, appended, marker in log:
        now = max(now, appended)
        deadline = now + marker.delay_ms
        for message in offsets(marker.ranges):
            known = found.get(message)
            if marker.kind is MarkerKind.START:
                found[message] = ModelMessage(at, deadline, marker.delivery, MarkerKind.START)
            elif marker.kind is MarkerKind.END:
                found.pop(message, None)
            elif known and marker.kind is MarkerKind.EXTEND and known.kind is MarkerKind.START:
                known.deadline = deadline
            elif known and marker.kind in {MarkerKind.RETRY, MarkerKind.REJECT}:
                known.deadline, known.kind = deadline, marker.kind
    return found


@st.composite
def logs(draw: st.DrawFn) -> list[tuple[int, int, Marker]]:
    """Markers with their offsets and append times; another leader's clock may be behind."""
    appended, log = 1000, list[tuple[int, int, Marker]]()
    for at in range(draw(st.integers(0, 25))):
        appended += draw(st.one_of(st.integers(0, 20), st.integers(-60, 20)))
        kind = draw(st.sampled_from([*MarkerKind, MarkerKind.START, MarkerKind.START, MarkerKind.END]))
        of = draw(st.sets(st.integers(0, MESSAGES), max_size=5))
        ms = draw(st.integers(0, 40)) if kind is not MarkerKind.END else 0
        marker = Marker(kind, to_ranges(of), ms, draw(st.integers(1, 3)))
        log.append((at, appended, marker))
    return log


def read(log: Sequence[tuple[int, int, Marker]]) -> RedeliveryState:
    state = RedeliveryState()
    for entry in log:
        state.apply_marker(*entry)
    return state


@given(logs())
def test_open_and_due_messages_equal_the_model(log: list[tuple[int, int, Marker]]) -> None:
    """Exactly the open messages past their deadline are due, with delivery number and kind."""
    state, model = read(log), build_model(log)
    assert len(state) == len(model)
    assert state.returned_count == sum(p.kind is not MarkerKind.START for p in model.values())
    due = {(d.offset, d.delivery, d.kind, d.deadline_ms) for d in state.pop_due(1000)}
    assert due == {
        (message, p.delivery, p.kind, p.deadline)
        for message, p in model.items()
        if p.deadline <= state.broker_time_ms
    }
    assert state.pop_due(1000) == []
    later = [p.deadline for p in model.values() if p.deadline > state.broker_time_ms]
    assert state.next_deadline_ms == min(later, default=None)


@given(logs(), st.data())
def test_a_takeover_at_the_safe_offset_has_all_open_messages(
    log: list[tuple[int, int, Marker]], data: st.DataObject
) -> None:
    """No open message needs a marker below the committed offset."""
    committed = read(log[: data.draw(st.integers(0, len(log)))]).safe_offset
    successor, model = read(log[committed:]), build_model(log)
    assert len(successor) == len(model)
    successor.apply_marker(len(log), 10_000, Marker(MarkerKind.TICK))
    assert {(d.offset, d.delivery, d.kind) for d in successor.pop_due(1000)} == {
        (message, p.delivery, p.kind) for message, p in model.items()
    }
    assert successor.safe_offset <= min((p.start for p in model.values()), default=len(log) + 1)


@given(logs(), st.integers(1, 40), st.integers(-500, 500))
def test_no_message_is_due_before_its_timeout(
    log: list[tuple[int, int, Marker]], ms: int, moved: int
) -> None:
    """A message has its full timeout, however wrong the next leader's clock is."""
    state = read(log)
    appended = (log[-1][1] if log else 1000) + moved
    state.apply_marker(len(log), appended, Marker(MarkerKind.START, ((99, 99),), ms, 1))
    assert 99 not in {due.offset for due in state.pop_due(1000)}
    state.apply_marker(len(log) + 1, state.broker_time_ms + ms, Marker(MarkerKind.TICK))
    assert 99 in {due.offset for due in state.pop_due(1000)}


@given(logs(), st.data())
def test_a_takeover_has_no_later_deadlines(log: list[tuple[int, int, Marker]], data: st.DataObject) -> None:
    """After a restart a message is due at the same time or sooner."""
    state = read(log)
    committed = read(log[: data.draw(st.integers(0, len(log)))]).safe_offset
    successor = read(log[committed:])
    for one in (state, successor):
        one.apply_marker(len(log), 10_000, Marker(MarkerKind.TICK))
    before = {due.offset: due.deadline_ms for due in state.pop_due(1000)}
    after = {due.offset: due.deadline_ms for due in successor.pop_due(1000)}
    assert before.keys() == after.keys()
    assert all(after[offset] <= before[offset] for offset in before)


@given(logs())
def test_a_postponed_message_is_due_again(log: list[tuple[int, int, Marker]]) -> None:
    """Postponed messages are due again after the delay, not before."""
    state = read(log)
    due = state.pop_due(1000)
    state.postpone_due(due, 100)
    assert state.pop_due(1000) == []
    state.apply_marker(len(log), state.broker_time_ms + 100, Marker(MarkerKind.TICK))
    assert {d.offset for d in due} <= {d.offset for d in state.pop_due(1000)}


@given(logs())
def test_without_open_messages_the_whole_log_is_safe(log: list[tuple[int, int, Marker]]) -> None:
    """After end markers for all messages the safe offset is the end."""
    state = read(log)
    state.apply_marker(len(log), 2000, Marker(MarkerKind.END, ((0, MESSAGES),)))
    assert (len(state), state.safe_offset, state.next_deadline_ms) == (0, len(log) + 1, None)


@given(st.sets(st.integers(0, 300)), st.sampled_from(MarkerKind), st.integers(0, 10**9), st.text())
def test_a_marker_survives_encoding(of: set[int], kind: MarkerKind, ms: int, reason: str) -> None:
    """Any marker survives encoding, and its ranges cover exactly its messages."""
    marker = Marker(kind, to_ranges(of), ms, 3, reason, "me")
    assert decode_marker(marker.encode()) == marker
    assert list(offsets(marker.ranges)) == sorted(of)


@pytest.mark.parametrize("ranges", [[[5, 3]], [[-2, 4]], [[3]], [3, 4]])
def test_a_marker_with_invalid_ranges_is_refused(ranges: list[list[int]]) -> None:
    """Such a marker only advances the time."""
    with pytest.raises(InvalidPayloadError):
        decode_marker(json.dumps({"v": 1, "k": "start", "r": ranges}).encode())


def test_ranges_may_overlap_and_come_in_any_order() -> None:
    """A repeated offset counts once; otherwise its marker would never be deleted."""
    marker = json.dumps({"v": 1, "k": "end", "r": [[7, 8], [3, 5], [5, 6], [20, 20], [3, 3]]})
    assert decode_marker(marker.encode()).ranges == ((3, 8), (20, 20))


STEPS = st.tuples(st.sampled_from(["put", "cut"]), st.integers(0, 30), st.integers(0, 12))


@given(st.lists(STEPS))
def test_a_range_belongs_to_its_last_owner(steps: list[tuple[str, int, int]]) -> None:
    """The map equals a dictionary from offsets to owners."""
    ranges, expected = OffsetRangeMap[int](), dict[int, int]()
    for owner, (what, first, length) in enumerate(steps):
        last = first + length
        had = {at: expected.pop(at) for at in range(first, last + 1) if at in expected}
        owned = ranges.find_owned(first, last)
        assert {at: of for begin, end, of in owned for at in range(begin, end + 1)} == had
        if what == "put":
            ranges.assign_range(first, last, owner)
            expected.update(dict.fromkeys(range(first, last + 1), owner))
        else:
            assert ranges.remove_range(first, last) == owned
            assert ranges.find_owned(first, last) == []
        assert len(ranges) == len(expected)
