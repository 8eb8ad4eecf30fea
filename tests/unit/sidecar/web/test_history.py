"""The page's history: bounded, compact, restored from recorded decisions, followed by events."""

import json
import sys
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from support.page.page_reports import CAPACITY, START, ReportSource
from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordTerms, build_decision_record
from trimtab.sidecar.web import history as page_history
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.sample import FULL_STEP, STEPS_PER_DOUBLING, UNKNOWN_LOAD, quantize_load

TERMS = RecordTerms("lake", 10.0, CAPACITY, 0.8)


def read_snapshot(history: GroupHistory) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(history.encode_snapshot())
    return body


def read_event(event: bytes) -> tuple[str, dict[str, Any]]:
    name, data, *_ = event.decode().split("\n")
    return name.removeprefix("event: "), json.loads(data.removeprefix("data: "))


def record_at(time: float) -> DecisionRecord:
    record = build_decision_record(ReportSource(4, 2).next_report(), TERMS)
    return replace(record, time=time, until=time + 5)


def test_an_hour_of_ten_thousand_partitions_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 consumers of 10,000 partitions take less than 20 MB for an hour; here for its 36th part."""
    monkeypatch.setattr(page_history, "HISTORY_S", 100.0)
    history = GroupHistory(TERMS)
    first = ReportSource(10_000, 500).next_report()
    for number in range(13):
        moved = TopicPartition("orders", number)
        members = [replace(m, owned_partitions=m.owned_partitions - {moved}) for m in first.members]
        history(replace(first, time=START + 10 * number, members=tuple(members)))
    samples = history._samples  # pyright: ignore[reportPrivateUsage]
    size = sum(sys.getsizeof(part) for s in samples for part in (s.text, s.loads, s.owners, s.rates))
    assert samples[-1].time - samples[0].time == 100.0
    assert size * 36 < 20_000_000


def test_owners_that_stay_are_sent_once() -> None:
    """A sample has owners only if they differ from those of the sample before."""
    history, source = GroupHistory(TERMS), ReportSource(6, 2)
    for _ in range(21):
        history(source.next_report())
    samples = read_snapshot(history)["samples"]
    assert [n for n, sample in enumerate(samples) if "owners" in sample] == [0, 20]  # the twentieth decides
    assert all(len(b64decode(sample["loads"])) == 6 for sample in samples)


def test_events_are_the_history_then_each_sample() -> None:
    """A reader gets a snapshot, each new sample, and a snapshot again if it missed one."""
    history, source = GroupHistory(TERMS), ReportSource(4, 2)
    events = history.stream_events()
    assert read_event(next(events))[1]["samples"] == []
    history(source.next_report())
    name, sample = read_event(next(events))
    assert (name, sample["n"], sample["consumers"]) == ("sample", 1, ["worker-0", "worker-1"])
    history(source.next_report())
    history(source.next_report())
    name, snapshot = read_event(next(events))
    assert (name, [one["n"] for one in snapshot["samples"]]) == ("history", [1, 2, 3])
    history.close()
    assert list(events) == []


def test_a_restart_brings_the_recorded_decisions_back() -> None:
    """Decisions of the last hour come in front of the first iteration, once; a reader starts again."""
    history, source = GroupHistory(TERMS), ReportSource(4, 2)
    history(source.next_report())
    events = history.stream_events()
    next(events)
    times = [START - 4000, START - 600, START - 300, START + 10]  # the last is that of the iteration
    history.restore([record_at(time) for time in times], [])
    name, snapshot = read_event(next(events))
    assert name == "history"
    assert [one["t"] for one in snapshot["samples"]] == [START - 600, START - 300, START + 10]
    history.restore([record_at(time) for time in times[1:]], [])
    assert len(read_snapshot(history)["samples"]) == 3


def test_names_that_are_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarted consumers with new names do not make the history grow for ever."""
    monkeypatch.setattr(page_history, "SPARE_NAMES", 10)
    history = GroupHistory(TERMS)
    for number in range(40):
        report = ReportSource(4, 2, client=f"pod-{number}").next_report()
        history(replace(report, time=START + number))
    snapshot = read_snapshot(history)
    assert len(snapshot["consumers"]) <= 2 * (4 + 2) + 10
    assert snapshot["samples"][-1]["loads"]
    assert len(snapshot["samples"]) == 40


def test_names_are_escaped_in_the_stream() -> None:
    """Line breaks of a client id do not end an event, and no name ends a script."""
    history = GroupHistory(TERMS)
    events = history.stream_events()
    next(events)
    history(ReportSource(2, 1, client="a\n\ndata: {}\u2028\ud800").next_report())
    name, sample = read_event(next(events))
    assert (name, sample["consumers"]) == ("sample", ["a\n\ndata: {}\u2028\ud800-0"])


def test_loads_are_bytes_on_a_logarithmic_scale() -> None:
    """The capacity is `FULL_STEP`; unknown and no load have values of their own."""
    assert quantize_load(CAPACITY, CAPACITY) == FULL_STEP
    assert quantize_load(CAPACITY / 2, CAPACITY) == FULL_STEP - STEPS_PER_DOUBLING
    assert [quantize_load(load, CAPACITY) for load in (0.0, 1e-9, 1e30, None)] == [0, 1, 254, UNKNOWN_LOAD]


def test_an_iteration_without_a_load_or_member_is_shown() -> None:
    """A group that is gone has a sample, too."""
    history = GroupHistory(TERMS)
    report = ReportSource(2, 1).next_report()
    history(replace(report, members=(), write_rates={TopicPartition("t", 0): PartitionLoad()}))
    (sample,) = read_snapshot(history)["samples"]
    assert b64decode(sample["loads"]) == bytes([UNKNOWN_LOAD])
