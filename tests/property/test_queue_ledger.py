"""What a tracker knows of open messages holds for every order of markers, and every takeover."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from marked import offsets

from trimtab.common.errors import InvalidPayloadError
from trimtab.consumer_sdk.queues.kmq.markers import Marker, MarkerKind, decode_marker, to_ranges
from trimtab.consumer_sdk.queues.kmq.offset_ranges import OffsetRangeMap
from trimtab.consumer_sdk.queues.kmq.redelivery_state import RedeliveryState

MESSAGES = 12
MOVES = (MarkerKind.EXTEND, MarkerKind.RETRY, MarkerKind.REJECT)


@dataclass
class Plain:
    """The rules once more, as plainly as possible: by message, deadline and what comes then."""

    start: int
    deadline: int
    delivery: int
    kind: MarkerKind


def plain(log: Sequence[tuple[int, int, Marker]]) -> dict[int, Plain]:
    """Return what is open after a log of markers."""
    found: dict[int, Plain] = {}
    now = 0
    for at, appended, marker in log:
        now = max(now, appended)
        deadline = now + marker.delay_ms
        for message in offsets(marker.ranges):
            known = found.get(message)
            if marker.kind is MarkerKind.START:
                found[message] = Plain(at, deadline, marker.delivery, MarkerKind.START)
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
        kind = draw(
            st.sampled_from([*MarkerKind, MarkerKind.START, MarkerKind.START, MarkerKind.END])
        )
        of = draw(st.sets(st.integers(0, MESSAGES), max_size=5))
        ms = draw(st.integers(0, 40)) if kind is not MarkerKind.END else 0
        marker = Marker(kind, to_ranges(of), ms, draw(st.integers(1, 3)))
        log.append((at, appended, marker))
    return log


def read(log: Sequence[tuple[int, int, Marker]]) -> RedeliveryState:
    ledger = RedeliveryState()
    for entry in log:
        ledger.apply_marker(*entry)
    return ledger


@given(logs())
def test_what_is_open_and_due_is_what_the_plain_rules_say(
    log: list[tuple[int, int, Marker]],
) -> None:
    """Due are exactly the open messages whose deadline has come, with their count and cause."""
    ledger, model = read(log), plain(log)
    assert len(ledger) == len(model)
    assert ledger.returned_count == sum(p.kind is not MarkerKind.START for p in model.values())
    due = {(d.offset, d.delivery, d.kind, d.deadline_ms) for d in ledger.pop_due(1000)}
    assert due == {
        (message, p.delivery, p.kind, p.deadline)
        for message, p in model.items()
        if p.deadline <= ledger.broker_time_ms
    }
    assert ledger.pop_due(1000) == []
    later = [p.deadline for p in model.values() if p.deadline > ledger.broker_time_ms]
    assert ledger.next_deadline_ms == min(later, default=None)


@given(logs(), st.data())
def test_whoever_takes_over_at_the_safe_offset_knows_all_that_is_open(
    log: list[tuple[int, int, Marker]], data: st.DataObject
) -> None:
    """Markers below the committed offset may be deleted: no open message needs them."""
    committed = read(log[: data.draw(st.integers(0, len(log)))]).safe_offset
    heir, model = read(log[committed:]), plain(log)
    assert len(heir) == len(model)
    heir.apply_marker(len(log), 10_000, Marker(MarkerKind.TICK))
    assert {(d.offset, d.delivery, d.kind) for d in heir.pop_due(1000)} == {
        (message, p.delivery, p.kind) for message, p in model.items()
    }
    assert heir.safe_offset <= min((p.start for p in model.values()), default=len(log) + 1)


@given(logs(), st.integers(1, 40), st.integers(-500, 500))
def test_nothing_is_due_as_soon_as_it_is_handed_out(
    log: list[tuple[int, int, Marker]], ms: int, moved: int
) -> None:
    """However wrong the clock of a partition's next leader is, a message has its time."""
    ledger = read(log)
    appended = (log[-1][1] if log else 1000) + moved
    ledger.apply_marker(len(log), appended, Marker(MarkerKind.START, ((99, 99),), ms, 1))
    assert 99 not in {due.offset for due in ledger.pop_due(1000)}
    ledger.apply_marker(len(log) + 1, ledger.broker_time_ms + ms, Marker(MarkerKind.TICK))
    assert 99 in {due.offset for due in ledger.pop_due(1000)}


@given(logs(), st.data())
def test_whoever_takes_over_has_no_later_deadlines(
    log: list[tuple[int, int, Marker]], data: st.DataObject
) -> None:
    """A restart delays nothing: the same message is due at the same time, or sooner."""
    ledger = read(log)
    committed = read(log[: data.draw(st.integers(0, len(log)))]).safe_offset
    heir = read(log[committed:])
    for one in (ledger, heir):
        one.apply_marker(len(log), 10_000, Marker(MarkerKind.TICK))
    before = {due.offset: due.deadline_ms for due in ledger.pop_due(1000)}
    after = {due.offset: due.deadline_ms for due in heir.pop_due(1000)}
    assert before.keys() == after.keys()
    assert all(after[offset] <= before[offset] for offset in before)


@given(logs())
def test_what_could_not_be_written_is_due_again(log: list[tuple[int, int, Marker]]) -> None:
    """Postponed messages come back after their pause, and not before."""
    ledger = read(log)
    due = ledger.pop_due(1000)
    ledger.postpone_due(due, 100)
    assert ledger.pop_due(1000) == []
    ledger.apply_marker(len(log), ledger.broker_time_ms + 100, Marker(MarkerKind.TICK))
    assert {d.offset for d in due} <= {d.offset for d in ledger.pop_due(1000)}


@given(logs())
def test_when_all_is_over_the_whole_log_may_go(log: list[tuple[int, int, Marker]]) -> None:
    """After end markers for everything the safe offset is the end."""
    ledger = read(log)
    ledger.apply_marker(len(log), 2000, Marker(MarkerKind.END, ((0, MESSAGES),)))
    assert (len(ledger), ledger.safe_offset, ledger.next_deadline_ms) == (0, len(log) + 1, None)


@given(st.sets(st.integers(0, 300)), st.sampled_from(MarkerKind), st.integers(0, 10**9), st.text())
def test_a_marker_reads_as_it_was_written(
    of: set[int], kind: MarkerKind, ms: int, reason: str
) -> None:
    """Any marker comes back from its bytes, and its ranges name exactly its messages."""
    marker = Marker(kind, to_ranges(of), ms, 3, reason, "me")
    assert decode_marker(marker.encode()) == marker
    assert list(offsets(marker.ranges)) == sorted(of)


@pytest.mark.parametrize("ranges", [[[5, 3]], [[-2, 4]], [[3]], [3, 4]])
def test_a_marker_whose_ranges_are_none_is_refused(ranges: list[list[int]]) -> None:
    """It tells nothing, and is no more than a sign of the time."""
    with pytest.raises(InvalidPayloadError):
        decode_marker(json.dumps({"v": 1, "k": "start", "r": ranges}).encode())


def test_ranges_may_overlap_and_come_in_any_order() -> None:
    """An offset named twice counts once, else its marker would be kept for ever."""
    told = json.dumps({"v": 1, "k": "end", "r": [[7, 8], [3, 5], [5, 6], [20, 20], [3, 3]]})
    assert decode_marker(told.encode()).ranges == ((3, 8), (20, 20))


STEPS = st.tuples(st.sampled_from(["put", "cut"]), st.integers(0, 30), st.integers(0, 12))


@given(st.lists(STEPS))
def test_stretches_are_had_by_whom_they_were_given_to_last(
    steps: list[tuple[str, int, int]],
) -> None:
    """As a dictionary from each offset to its owner says."""
    spans, plainly = OffsetRangeMap[int](), dict[int, int]()
    for owner, (what, first, length) in enumerate(steps):
        last = first + length
        had = {at: plainly.pop(at) for at in range(first, last + 1) if at in plainly}
        told = spans.find_owned(first, last)
        assert {at: of for begin, end, of in told for at in range(begin, end + 1)} == had
        if what == "put":
            spans.assign_range(first, last, owner)
            plainly.update(dict.fromkeys(range(first, last + 1), owner))
        else:
            assert spans.remove_range(first, last) == told
            assert spans.find_owned(first, last) == []
        assert len(spans) == len(plainly)
