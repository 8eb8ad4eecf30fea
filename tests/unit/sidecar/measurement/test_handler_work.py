"""Work of consumers between two commits, as their metadata tells it."""

import json
from dataclasses import replace

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.measurement.handler_work import (
    HandlerReport,
    HandlerWork,
    HandlerWorkTracker,
    parse_handler_report,
)
from trimtab.sidecar.measurement.record_sizes import RecordSize
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.model.observation import ObservedMember

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ONE = ObservedMember("id-1", "one", frozenset({A, B}))
SIZES = {A: RecordSize(100.0), B: RecordSize(10.0)}
OPENED = 1.7e9


def told(handling: float, uptime: float, opened: float = OPENED) -> str:
    return json.dumps({"handover": 0.1, "at": 5, "handling": handling, "uptime": uptime, "opened": opened})


def readings(a: int, b: int, metadata: str) -> OffsetReadings:
    return OffsetReadings((A, B), {}, {}, {A: a, B: b}, commit_metadata={A: metadata})


def collect(
    tracker: HandlerWorkTracker, given: OffsetReadings, member: ObservedMember = ONE
) -> tuple[HandlerWork, ...]:
    return tracker.collect_work([member], given, SIZES)[0]


@pytest.fixture
def begun() -> HandlerWorkTracker:
    return HandlerWorkTracker(30.0).collect_work([ONE], readings(1_000, 2_000, told(5, 100)), SIZES)[1]


def test_work_is_what_lies_between_two_commits(begun: HandlerWorkTracker) -> None:
    """Handler seconds, records and bytes of all partitions; the next work begins there."""
    work, after = begun.collect_work([ONE], readings(1_300, 2_600, told(17, 140)), SIZES)
    assert work == (HandlerWork(40.0, 12.0, 300 * 100.0 + 600 * 10.0, 900),)
    assert collect(after, readings(1_300, 2_600, told(17, 140))) == ()


def test_a_short_time_is_added_to_the_next(begun: HandlerWorkTracker) -> None:
    """Commits a second apart would be noise."""
    none, after = begun.collect_work([ONE], readings(1_100, 2_000, told(6, 120)), SIZES)
    assert none == ()
    assert collect(after, readings(1_200, 2_000, told(8, 131))) == (HandlerWork(31.0, 3.0, 20_000.0, 200),)


@pytest.mark.parametrize(
    ("member", "given"),
    [
        (replace(ONE, owned_partitions=frozenset({A})), readings(1_300, 2_600, told(17, 140))),
        (ONE, readings(1_300, 2_600, told(17, 140, OPENED + 1))),
        (ONE, readings(900, 2_600, told(17, 140))),
        (ONE, readings(1_300, 2_600, "")),
        (replace(ONE, id="id-2"), readings(1_300, 2_600, told(17, 140))),
    ],
)
def test_what_does_not_belong_together_is_no_work(
    begun: HandlerWorkTracker, member: ObservedMember, given: OffsetReadings
) -> None:
    """Other partitions, another consumer, a rewind, a consumer that tells nothing."""
    assert collect(begun, given, member) == ()


def test_unknown_sizes_make_no_work(begun: HandlerWorkTracker) -> None:
    """Only those of partitions that were read count."""
    given = readings(1_300, 2_000, told(17, 140))
    assert begun.collect_work([ONE], given, {B: RecordSize(10.0)})[0] == ()
    assert begun.collect_work([ONE], given, {A: RecordSize(100.0)})[0] != ()


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "{}", "[1]", "[" * 4000, '{"handover": 1, "at": 2}', '{"released": 5}'),
        *(
            f'{{"handling": {n}, "uptime": 1, "opened": 1}}'
            for n in ("NaN", "-1", "Infinity", '"x"', "null", "1e400")
        ),
    ],
)
def test_other_metadata_is_no_report(text: str) -> None:
    """Other clients and earlier versions commit their own, and it is no error."""
    assert parse_handler_report(text) is None
    assert parse_handler_report(told(1, 2)) == HandlerReport(OPENED, 2.0, 1.0)
