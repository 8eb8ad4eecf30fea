"""Records of the control topics and commit metadata, as any client with Write can produce them."""

import json
import zlib
from base64 import b64encode
from dataclasses import astuple, replace
from hashlib import sha256
from typing import Final, cast

import numpy as np
from confluent_kafka import Message

from trimtab.assignor.model import Move, TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.plan_target import PlanTarget
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.kmq_offset_metadata import OpenMessages, decode_open_messages
from trimtab.consumer_sdk.client.settings import parse_consumer_settings
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.diagnostics.explanation import (
    build_explanation,
    build_explanation_body,
    explain_count,
    explain_placement,
    format_decision_line,
)
from trimtab.sidecar.leadership.group_ownership import GroupOwnership
from trimtab.sidecar.measurement.handler_work import parse_handler_report
from trimtab.sidecar.measurement.load_forecast import LoadForecaster, SeasonChunk
from trimtab.sidecar.records.decision_record import (
    DecisionRecord,
    RecordTerms,
    SidecarIdentity,
    build_decision_record,
    merge_decision_record,
)
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.plan_outcome import PartitionElsewhere, PlanOutcome
from trimtab.sidecar.records.sample_record import SampleRecord
from trimtab.sidecar.records.season_record import SeasonRecord, build_season_record
from trimtab.sidecar.web.history import GroupHistory

MOVE: Final = Move(TopicPartition("t", 0), "a", "b", 40.0, "a is too full")
AUTHOR: Final = SidecarIdentity("id", "host", 7, 1.7e9, 3)
METRICS: Final = DecisionMetrics(required_rate=200.0, desired_replicas=5, r_score=0.4, moves=1, max_fill=0.8)
PLAN: Final = GroupPlan("g", 3, 1.0, 2, "steady", 1e6, 0.9, ("a",), ("why",), {"a": 9e5}, 4.5)
PLANNED: Final = replace(
    PLAN, target=PlanTarget(2, ("a", "b"), 1, {"t": (1, 2, 3, 0)}), co_partitioned=(("t", "u"),)
)
RATES: Final = TopicWriteRates(
    "g", "t", 2e9, 30.0, "offsets", {0: PartitionLoad(1.0, 2.0, 3.0, 4, 5.0, 6.0), 7: PartitionLoad()}
)
RECORD: Final = build_decision_record(
    IterationReport(
        100.0,
        ScalingDecision(ScalingAction.SCALE_UP, ("3 -> 5",), METRICS, PLAN, 2, expected_moves=(MOVE,)),
        {TopicPartition("t", 0): PartitionLoad(1.0)},
        7,
        is_group_known=True,
        decision_seconds=0.0,
        iteration_seconds=0.0,
        plan_outcome=PlanOutcome(
            7,
            3,
            4,
            0.6,
            0.91,
            1,
            is_settled=True,
            elsewhere=(PartitionElsewhere("t", 0, "x", None, "x left"),),
            consumer_by_place={"+1": "c"},
        ),
    ),
    RecordTerms("g", 10.0, 100.0, 0.9),
    AUTHOR,
)


def encode_part(key: str, value: bytes) -> bytes:
    """Return the one part of a value that needs none."""
    data = zlib.compress(value)
    body = {"v": 2, "min_reader_version": 2, "group": "g", "key": key, "part": 0, "parts": 1}
    body |= {"digest": sha256(data).hexdigest(), "data": b64encode(data).decode()}
    return json.dumps(body, separators=(",", ":")).encode()


SAMPLE: Final = SampleRecord(
    "g", 3, 150.0, 100.0, METRICS, {"t": (0, 1), "u": (7,)}, ("a", "b"), "yMj/", "AAABAP//", "yMj+"
)
CHUNK: Final = SeasonChunk(300.0, 5_666_640, (TopicPartition("t", 0), TopicPartition("t", 2)), np.eye(2))
SEASON: Final = build_season_record("g", "offsets", CHUNK)
SUM_SEASON: Final = build_season_record(
    "g", "offsets", replace(CHUNK, columns=(None,), rates=np.ones((2, 1)))
)
SEEDS: Final = {
    "read_season": [SEASON.encode(), SUM_SEASON.encode()],
    "apply_plan": [PLAN.encode(), PLANNED.encode(), encode_part(PLAN.key, PLAN.encode())],
    "apply_write_rates": [RATES.encode(), encode_part(RATES.key, RATES.encode())],
    "read_sample": [SAMPLE.encode(), replace(SAMPLE, loads="", topics={"t": (0, 0)}).encode()],
    "read_decision": [RECORD.encode(), replace(RECORD, author=None, is_final=True).encode()],
    "read_commit_metadata": [
        OpenMessages(7, 1, 2).encode().encode(),
        b'{"handover": 0.5, "at": 1, "handling": 2.5, "uptime": 9.0, "opened": 1.7e9}',
    ],
}
SETTINGS: Final = parse_consumer_settings({"bootstrap.servers": "x:1", "group.id": "g"}, {})


class _Record:
    """A record of a control topic."""

    def __init__(self, topic: str, value: bytes) -> None:
        self._topic = topic
        self._value = value

    def topic(self) -> str:
        return self._topic

    def value(self) -> bytes:
        return self._value

    def offset(self) -> int:
        return 0


def apply_plan(data: bytes) -> None:
    """A member skips a plan that cannot be read; a leader has a view of what it applied."""
    _apply(SETTINGS.plan_topic, data)


def apply_write_rates(data: bytes) -> None:
    """A member skips write rates that cannot be read; a leader has a view of what it applied."""
    _apply(SETTINGS.write_rate_topic, data)


def read_decision(data: bytes) -> None:
    """A sidecar skips a decision that cannot be read, and detects peers by, explains and merges others."""
    try:
        record = DecisionRecord.decode(data)
    except InvalidPayloadError:
        return
    ownership = GroupOwnership(AUTHOR).observe_decisions([record], 0.0, 1.7e9).claim_ownership(1.0)
    peer = ownership.find_leading_peer(1.0)
    assert peer is None or str(peer.author)
    assert record.encode() == DecisionRecord.decode(record.encode()).encode()
    explanation = build_explanation([record], None, 3)
    assert explanation is not None
    explain_count(explanation, 2e9)
    explain_placement(explanation, 2e9)
    build_explanation_body(explanation, ())
    format_decision_line(record)
    merge_decision_record(record, RECORD)


def read_commit_metadata(data: bytes) -> None:
    """The sidecar takes the metadata of any commit; what no tracker and no consumer wrote counts as none."""
    text = data.decode(errors="replace")
    decode_open_messages(text)
    report = parse_handler_report(text)
    assert report is None or all(0 <= figure < 1e10 for figure in astuple(report))


def _apply(topic: str, data: bytes) -> None:
    reader = ControlTopicReader(SETTINGS, SystemClock())
    reader.apply_record(cast("Message", _Record(topic, data)))
    view = reader.build_leader_view()
    assert all(rate is None or rate >= 0 for rate in view.load.write_rates.values())


def read_sample(data: bytes) -> None:
    """A page shows what a sample records, or leaves it out; the hour can be simulated, or is too short."""
    try:
        record = SampleRecord.decode(data)
    except InvalidPayloadError:
        return
    assert record.encode() == SampleRecord.decode(record.encode()).encode()
    history = GroupHistory(RecordTerms("g", 10.0, 100.0, 0.9))
    history.restore([RECORD], [replace(record, time=record.time + n) for n in range(4)])
    samples = json.loads(history.encode_snapshot())["samples"]
    assert len(samples) <= 5
    history.build_recorded_stream()


def read_season(data: bytes) -> None:
    """A sidecar goes on with the seasons that it can read, and records what it has made of them."""
    try:
        chunk = SeasonRecord.decode(data).read_chunk()
    except InvalidPayloadError:
        return
    forecaster = LoadForecaster(86_400.0, 10.0)
    loads = {TopicPartition("t", 0): PartitionLoad(bytes_per_s=1.0)}
    forecaster.forecast_load((chunk.first + len(chunk.rates)) * 300.0, loads, None)
    forecaster.restore([chunk])
    if (made := forecaster.build_chunk()) is not None:
        assert SeasonRecord.decode(build_season_record("g", "offsets", made).encode()).bins == len(made.rates)
