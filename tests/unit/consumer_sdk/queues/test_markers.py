"""A marker that no worker writes is refused by name, and one of any size costs a bounded amount of work."""

import json

import pytest

from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kmq_offset_metadata import decode_open_messages
from trimtab.consumer_sdk.queues.kmq.markers import (
    MAX_DELAY_MS,
    MAX_REASON_CHARS,
    MAX_STARTED_MESSAGES,
    Marker,
    MarkerKind,
    decode_marker,
    split_ranges,
)
from trimtab.consumer_sdk.queues.kmq.redelivery_state import RedeliveryState


def encode(**changed: object) -> bytes:
    """Return a start marker of offset 0 with changed fields."""
    return json.dumps({"v": 1, "k": "start", "r": [[0, 0]], "ms": 10, "n": 1, **changed}).encode()


@pytest.mark.parametrize(
    "value",
    [
        b"[" * 100_000,
        b'{"v":1,"k":"end","r":' + b"[" * 100_000,
        b'{"v":1,"k":"end","r":[[1e400,1e400]]}',
        b'{"v":1,"k":"end","r":[[NaN,NaN]]}',
        b'{"v":1,"k":"end","r":{"a":1}}',
        b'{"v":1,"k":"end","r":[[0,1,2]]}',
        b'{"v":1,"k":["end"],"r":[]}',
        b'{"v":1,"k":{},"r":[]}',
        b'"v"',
        b"\xff\xfe",
        encode(r=[[0, 10**18]]),
        encode(r=[[0, 0], [10, 10**7]]),
        encode(r=[[10**19, 10**19]]),
        encode(r=[[-1, 0]]),
        encode(r=[[1, 0]]),
        encode(r=[["0", "0"]]),
        encode(r=[[True, True]]),
        encode(r=[[0.5, 1]]),
        encode(ms=-1),
        encode(ms=float("inf")),
        encode(ms="1"),
        encode(n=-1),
        encode(n=10**400),
        encode(why=["a"]),
        encode(by=7),
    ],
)
def test_a_marker_that_no_worker_writes_is_refused(value: bytes) -> None:
    """Whatever the bytes are, the error is an InvalidPayloadError, and it is short."""
    with pytest.raises(InvalidPayloadError) as caught:
        decode_marker(value)
    assert len(str(caught.value)) < 600


def test_a_marker_of_a_large_range_is_refused_only_if_it_opens_messages() -> None:
    """An end marker costs no more for a large range; a start marker is bounded by a worker's batch."""
    largest = encode(r=[[0, MAX_STARTED_MESSAGES - 1]])
    assert decode_marker(largest).ranges == ((0, MAX_STARTED_MESSAGES - 1),)
    assert decode_marker(encode(k="end", r=[[0, 10**18]])).kind is MarkerKind.END


def test_values_that_a_worker_may_write_are_bounded() -> None:
    """A delay of years becomes the longest one, a reason loses its end and its lone surrogates."""
    assert decode_marker(encode(k="retry", ms=10**300)).delay_ms == MAX_DELAY_MS
    assert decode_marker(encode(k="reject", why="x" * 500_000)).reason == "x" * MAX_REASON_CHARS
    assert decode_marker(b'{"v":1,"k":"reject","r":[[0,0]],"why":"a\\ud800"}').reason == "a?"


def test_ranges_are_split_to_markers_that_a_tracker_accepts() -> None:
    """The parts have all offsets, in order."""
    assert list(split_ranges(((0, 4), (7, 8), (10, 10)), 3)) == [
        ((0, 2),),
        ((3, 4), (7, 7)),
        ((8, 8), (10, 10)),
    ]
    assert list(split_ranges((), 3)) == []


def test_due_messages_of_one_marker_come_in_parts() -> None:
    """A tracker's memory and the time between its polls do not grow with a marker."""
    state = RedeliveryState()
    state.apply_marker(0, 1000, Marker(MarkerKind.START, ((0, 24_999), (30_000, 30_009)), 0, 1))
    parts = [[due.offset for due in state.pop_due(1000)] for _ in range(27)]
    assert {len(part) for part in parts[:25]} == {1000}
    assert sum(parts, []) == [*range(25_000), *range(30_000, 30_010)]  # noqa: RUF017 - small
    assert state.pop_due(1000) == []


@pytest.mark.parametrize(
    "metadata",
    [
        "[" * 100_000,
        '{"read":1,"working":2,"returned":' + "9" * 400 + "}",
        '{"read":1e400,"working":0,"returned":0}',
    ],
)
def test_a_trackers_commit_metadata_is_none_if_no_tracker_wrote_it(metadata: str) -> None:
    """Any client can commit in the trackers' group."""
    assert decode_open_messages(metadata) is None
