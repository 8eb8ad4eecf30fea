"""Loads and owners in the decision topic: what a restarted sidecar's page shows of the hour before."""

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from support.page.page_reports import CAPACITY, START, ReportSource
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordTerms, build_decision_record
from trimtab.sidecar.records.sample_record import SampleRecord, read_key_kind, read_record_key
from trimtab.sidecar.web.history import GroupHistory
from trimtab.sidecar.web.sample import UNKNOWN_LOAD

TERMS = RecordTerms("lake", 10.0, CAPACITY, 0.8)


class RecordedHour:
    """A history, and what its recorder would have written, encoded and decoded."""

    def __init__(self, source: ReportSource, iterations: int) -> None:
        self.history = GroupHistory(TERMS)
        self.decisions: list[DecisionRecord] = []
        self.samples: dict[str, SampleRecord] = {}
        for _ in range(iterations):
            report = source.next_report()
            self.history(report)
            record = build_decision_record(report, TERMS)
            if not self.decisions or self.decisions[-1].action != record.action:
                self.decisions.append(record)
            if (sample := self.history.take_sample_record()) is not None:
                self.samples[sample.key] = SampleRecord.decode(sample.encode())


def read_samples(history: GroupHistory) -> list[dict[str, Any]]:
    """Return the samples of a snapshot, owners by partition and consumer's name."""
    body = json.loads(history.encode_snapshot())
    owners = b""
    for sample in body["samples"]:
        owners = b64decode(sample["owners"]) if "owners" in sample else owners
        numbers = [int.from_bytes(owners[n : n + 2], "little") for n in range(0, len(owners), 2)]
        sample["owned"] = {
            tuple(partition): body["consumers"][owner]
            for partition, owner in zip(body["partitions"], numbers, strict=False)
            if owner != 0xFFFF
        }
    return list(body["samples"])


def test_a_restart_brings_loads_and_owners_back() -> None:
    """Each minute of the hour before has its loads and owners, though names have other indices now."""
    source = ReportSource(6, 2)
    hour = RecordedHour(source, 50)  # moves at the 20th and 40th
    assert len(hour.samples) == 9
    after = replace(source.next_report(), time=START + 520)
    restarted = GroupHistory(TERMS)
    restarted(replace(after, members=after.members[::-1]))
    restarted.restore(hour.decisions, list(hour.samples.values()))
    before = {one["t"]: one for one in read_samples(hour.history)}
    restored = {one["t"]: one for one in read_samples(restarted)}
    times = [sample.time for sample in hour.samples.values()]
    assert len({tuple(restored[time]["owned"].items()) for time in times}) == 3
    for time in times:
        assert restored[time]["owned"] == before[time]["owned"]
        assert sorted(b64decode(restored[time]["loads"])) == sorted(b64decode(before[time]["loads"]))
        assert restored[time]["metrics"] == before[time]["metrics"]


def test_the_hour_before_a_restart_can_be_simulated() -> None:
    """Write rates come back, too; with another capacity they would mean other rates, and are left out."""
    hour = RecordedHour(ReportSource(6, 2), 50)
    samples = list(hour.samples.values())
    restarted = GroupHistory(TERMS)
    restarted.restore(hour.decisions, samples)
    stream = restarted.build_recorded_stream()
    known = hour.history.build_recorded_stream()
    assert stream is not None
    assert known is not None
    assert (stream.tick, stream.stream.rates.shape[1]) == (60.0, 6)
    assert stream.stream.rates[0] == pytest.approx(known.stream.rates[0])
    assert stream.moves == known.moves > 0
    other = GroupHistory(replace(TERMS, capacity=2 * CAPACITY))
    other.restore(hour.decisions, samples)
    assert other.build_recorded_stream() is None


def test_a_restored_decision_shows_the_owners_before_it() -> None:
    """A decision has no owners of its own in the topic: the page shows those recorded last."""
    hour = RecordedHour(ReportSource(6, 2), 50)
    restarted = GroupHistory(TERMS)
    restarted.restore(hour.decisions, list(hour.samples.values()))
    samples = read_samples(restarted)
    (scaled,) = [n for n, one in enumerate(samples) if one["moved"]][:1]
    assert samples[scaled]["owned"] == samples[scaled - 1]["owned"] != {}
    assert samples[scaled]["until"] <= samples[scaled + 1]["t"]


def test_samples_of_strangers_do_no_harm() -> None:
    """Arrays that do not fit their names are left out; another type is no sample at all."""
    hour = RecordedHour(ReportSource(6, 2), 10)
    (good, *_) = hour.samples.values()
    for bad in (
        replace(good, loads="AAAA"), replace(good, owners="%"), replace(good, rates=""),
        replace(good, topics={}), replace(good, consumers=()),
    ):  # fmt: skip
        restarted = GroupHistory(TERMS)
        restarted.restore(hour.decisions, [bad])
        for sample in read_samples(restarted):
            assert sample["owned"] == {}
    with pytest.raises(InvalidPayloadError):
        SampleRecord.decode(good.encode().replace(b'"slot":', b'"slot":"x","_":'))


def test_a_sample_of_before_restored_names_is_recorded() -> None:
    """The first sample has fewer names than the table after a restart; old names are not recorded again."""
    hour = RecordedHour(ReportSource(6, 2), 50)
    restarted = GroupHistory(TERMS)
    restarted(replace(ReportSource(3, 1, client="new").next_report(), time=START + 520))
    restarted.restore(hour.decisions, list(hour.samples.values()))
    sample = restarted.take_sample_record()
    assert sample is not None
    assert (sample.topics, sample.consumers) == ({"orders": (0, 1, 2)}, ("new-0",))


def test_partitions_that_are_gone_are_not_recorded() -> None:
    """A record has the partitions of its own time."""
    history = GroupHistory(TERMS)
    history(ReportSource(4, 2, topic="deleted").next_report())
    history(replace(ReportSource(2, 1).next_report(), time=START + 20))
    sample = history.take_sample_record()
    assert sample is not None
    assert sample.topics == {"orders": (0, 1)}
    assert UNKNOWN_LOAD not in b64decode(sample.loads)
    assert history.take_sample_record() is None  # until a minute later


def test_keys_tell_samples_from_decisions() -> None:
    """Also in the keys of parts, and for groups of any name."""
    for group in ("lake", "sample", '["x"'):
        sample = json.dumps([group, "sample", 3])
        known = read_record_key(sample)
        assert known is None or (known.group, known.kind) == (group, "sample")
    assert read_key_kind(json.dumps([json.dumps(["lake", "sample", 3]), 1])) == "sample"
    assert read_key_kind(json.dumps(["lake", "season", 3])) == "season"
    decisions = (json.dumps(["sample", 3]), json.dumps([json.dumps(["lake", 3]), 1]), b"\xff", None)
    assert {read_key_kind(key) for key in decisions} == {""}
