"""What leaders answer."""

import struct
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from kafka.record.default_records import DefaultRecordBatchBuilder

from support.ticking import Ticking
from trimtab.assignor.model import TopicPartition
from trimtab.common.kafka_protocol.errors import MalformedMessageError, NotLeaderError, RequestTimeoutError
from trimtab.sidecar.kafka.partition_logs import PartitionLogs
from trimtab.sidecar.settings.settings import load_settings

SETTINGS = load_settings(None, {"bootstrap": "localhost:1", "group": "g", "capacity": "1 MB/s"})
P = [TopicPartition("t", n) for n in range(4)]


def build_records() -> bytes:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 10_000)  # type: ignore[no-untyped-call]
    builder.append(0, 1, None, b"x", [])
    return bytes(builder.build())


def answer(partition: int, records: bytes = b"", code: int = 0) -> Any:
    part = {"partition_index": partition, "records": records, "error_code": code}
    offsets = {"last_stable_offset": 9, "high_watermark": 9}
    topic = SimpleNamespace(topic="t", partitions=[SimpleNamespace(**part, **offsets)])
    return SimpleNamespace(responses=[topic], error_code=0)


def test_each_partition_has_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corrupt log or a leader without an answer does not keep the others from being sampled."""
    good = build_records()
    corrupt = good[:8] + struct.pack(">i", -12) + good[12:]
    moved = NotLeaderError.code
    answers = {0: answer(0, good), 1: answer(1, corrupt), 2: answer(2, b"", moved)}
    logs = PartitionLogs(SETTINGS, Ticking())
    asked = Mock(return_value=(answers, {3: RequestTimeoutError("slow")}))
    monkeypatch.setattr(logs, "_brokers", Mock(ask_each=asked))
    found = logs.fetch_batches(dict.fromkeys(P, 0), {p: p.partition for p in P})
    assert {p: len(batches) for p, batches in found.batches.items()} == {P[0]: 1}
    kinds = {P[1]: MalformedMessageError, P[2]: NotLeaderError, P[3]: RequestTimeoutError}
    assert {p: type(error) for p, error in found.errors.items()} == kinds
