"""What leaders answer, and how long they are waited for."""

import asyncio
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.errors import CorruptRecordError, KafkaTimeoutError, NotLeaderForPartitionError
from kafka.record.default_records import DefaultRecordBatchBuilder
from ticking import Ticking

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.kafka.partition_logs import TIMEOUT_S, PartitionLogs
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
    return SimpleNamespace(responses=[topic])


def test_each_partition_has_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A corrupt log or a leader without an answer does not keep the others from being sampled."""
    good = build_records()
    corrupt = good[:8] + struct.pack(">i", -12) + good[12:]
    moved = NotLeaderForPartitionError.errno
    answers = {0: answer(0, good), 1: answer(1, corrupt), 2: answer(2, b"", moved)}
    logs = PartitionLogs(SETTINGS, Ticking())
    monkeypatch.setattr(logs, "_send", lambda _: (answers, {3: KafkaTimeoutError("slow")}))
    found = logs.fetch_batches(dict.fromkeys(P, 0), {p: p.partition for p in P})
    assert {p: len(batches) for p, batches in found.batches.items()} == {P[0]: 1}
    kinds = {P[1]: CorruptRecordError, P[2]: NotLeaderForPartitionError, P[3]: KafkaTimeoutError}
    assert {p: type(error) for p, error in found.errors.items()} == kinds


def test_hung_leaders_are_waited_for_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a request does not grow with their number; answers that are there are taken."""
    clock = Ticking()

    async def wait_for(broker: int, timeout_ms: float) -> Any:
        if broker == P[-1].partition:
            return answer(broker, build_records())
        clock.sleep(timeout_ms / 1000)
        raise KafkaTimeoutError("slow")

    def run(send: Any, admin: Any) -> Any:
        return asyncio.run(send(admin))

    manager = SimpleNamespace(send=lambda _, broker: broker, wait_for=wait_for, run=run)
    logs = PartitionLogs(SETTINGS, clock)
    monkeypatch.setattr(logs._brokers, "call", lambda request: request(SimpleNamespace(_manager=manager)))
    begun = clock.now
    found = logs.fetch_batches(dict.fromkeys(P, 0), {p: p.partition for p in P})
    assert clock.now - begun == pytest.approx(TIMEOUT_S)
    assert (set(found.batches), set(found.errors)) == ({P[3]}, set(P[:3]))
    assert {error.args[0] for error in found.errors.values()} == {"no answer in 1 s"}
