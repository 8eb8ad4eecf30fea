"""Traces of a consumer and a sidecar on a real broker, as they arrive at a receiver of OTLP."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.otlp_receiver import OtlpReceiver, attributes_of, receive_otlp
from support.traced_readers import (
    ASYNC_READER,
    PRIVATE,
    QUEUE_READER,
    READER,
    SPAN,
    TRACE,
    produce,
    run_reader,
)
from trimtab.sidecar.decision.decision import ScalingAction

pytestmark = pytest.mark.broker


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with receive_otlp() as receiver:
        yield receiver


def test_a_records_way_is_one_trace(
    bootstrap: str, group: str, topic: Callable[..., str], receiver: OtlpReceiver
) -> None:
    """A record is received, processed in its producer's trace, and committed in it; no secret is exported."""
    name = topic(partitions=1)
    produce(bootstrap, name, 4)
    run_reader(READER, receiver.environment, bootstrap, group, name)
    spans = receiver.spans()
    by_name: dict[str, list[Any]] = {}
    for span in sorted(spans, key=lambda span: span.start_time_unix_nano):
        by_name.setdefault(span.name.removesuffix(f" {name}"), []).append(span)
    common = {
        "messaging.system": "kafka",
        "messaging.consumer.group.name": group,
        "messaging.client.id": "reader",
        "messaging.destination.name": name,
        "messaging.destination.partition.id": "0",
    }
    assert set(by_name) == {"poll", "process", "commit"}
    polled = by_name["poll"][0]
    assert attributes_of(polled) == common | {
        "messaging.operation.name": "poll",
        "messaging.operation.type": "receive",
        "messaging.kafka.offset": 0,
    }
    first, batch = by_name["process"]
    assert (int.from_bytes(first.trace_id), int.from_bytes(first.parent_span_id)) == (TRACE, SPAN)
    assert attributes_of(first)["messaging.operation.type"] == "process"
    assert not first.status.code
    links = {int.from_bytes(link.trace_id): attributes_of(link) for link in batch.links}
    assert links == {
        TRACE + n: {"messaging.destination.partition.id": "0", "messaging.kafka.offset": n} for n in (1, 2, 3)
    }
    assert attributes_of(batch)["messaging.batch.message_count"] == 3
    assert attributes_of(batch)["error.type"] == "ValueError"
    assert batch.status.code == batch.status.STATUS_CODE_ERROR
    committed, in_background = by_name["commit"][:2]
    assert committed.parent_span_id == first.span_id
    assert attributes_of(committed) == common | {
        "messaging.operation.name": "commit",
        "messaging.operation.type": "settle",
        "messaging.kafka.offset": 1,
    }
    assert attributes_of(in_background)["messaging.kafka.offset"] == 4
    assert receiver.services() == {"trimtab-consumer"}
    assert not any(PRIVATE.encode() in body for body in receiver.raw)


@pytest.mark.parametrize("kind", ["kmq", "ordered", "share"])
def test_a_queues_messages_are_processed_in_their_producers_traces(
    kind: str, bootstrap: str, group: str, topic: Callable[..., str], receiver: OtlpReceiver
) -> None:
    """Each message is a span of its producer's trace; one that is retried has an error; polls are spans."""
    name = topic(partitions=1)
    produce(bootstrap, name, 3)
    run_reader(QUEUE_READER, receiver.environment, kind, bootstrap, group, name)
    spans = receiver.spans()
    processed = [span for span in spans if span.name == f"process {name}"]
    for span in processed:
        attributes = attributes_of(span)
        assert int.from_bytes(span.trace_id) == TRACE + attributes["messaging.kafka.offset"]
        assert attributes["messaging.client.id"] == "worker"
    first = [span for span in processed if attributes_of(span)["trimtab.queue.delivery"] == 1]
    assert sorted(attributes_of(span)["messaging.kafka.offset"] for span in first) == [0, 1, 2]
    failed = [span for span in processed if "error.type" in attributes_of(span)]
    assert [attributes_of(span)["error.type"] for span in failed] == ["Retry"]
    operations = {attributes_of(span)["messaging.operation.type"] for span in spans}
    assert operations == {"receive", "process", "settle"}
    assert not any(PRIVATE.encode() in body for body in receiver.raw)


def test_an_event_loops_records_are_traced(
    bootstrap: str, group: str, topic: Callable[..., str], receiver: OtlpReceiver
) -> None:
    """AsyncConsumer: a record is processed in its producer's trace, and committed in it by another thread."""
    name = topic(partitions=1)
    produce(bootstrap, name, 4)
    run_reader(ASYNC_READER, receiver.environment, bootstrap, group, name)
    spans = sorted(receiver.spans(), key=lambda span: span.start_time_unix_nano)
    first, batch = [span for span in spans if span.name == f"process {name}"]
    assert (int.from_bytes(first.trace_id), int.from_bytes(first.parent_span_id)) == (TRACE, SPAN)
    assert {int.from_bytes(link.trace_id) for link in batch.links} == {TRACE + n for n in (1, 2, 3)}
    committed = next(span for span in spans if span.name == f"commit {name}")
    assert committed.parent_span_id == first.span_id
    assert any(span.name == f"poll {name}" for span in spans)


def test_a_disabled_sdk_traces_nothing(
    bootstrap: str, group: str, topic: Callable[..., str], receiver: OtlpReceiver
) -> None:
    """OTEL_SDK_DISABLED=true: the consumer works as with telemetry off."""
    name = topic(partitions=1)
    produce(bootstrap, name, 4)
    run_reader(READER, {**receiver.environment, "OTEL_SDK_DISABLED": "true"}, bootstrap, group, name)
    assert receiver.raw == []


def list_decisions(receiver: OtlpReceiver) -> list[str]:
    """Return the exported log lines of decisions, which begin with the action."""
    actions = tuple(f"{action.value}: " for action in ScalingAction)
    texts = [record.body.string_value for record in receiver.log_records()]
    return [text for text in texts if text.startswith(actions)]


def test_a_sidecar_exports_metrics_and_logs(
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    receiver: OtlpReceiver,
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """The metrics of /metrics, and a log line for each decision; no spans."""
    settings = f"""
bootstrap: {bootstrap}
group: {group}
topics: {topic(partitions=2)}
capacity: 1 MB/s
interval: 300 ms
telemetry: true
kafka: {{client.rack: {PRIVATE}}}
"""
    file = tmp_path / "sidecar.yaml"
    file.write_text(settings)
    environment = {**os.environ, **receiver.environment}
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(file)]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, env=environment, stderr=log)
    try:
        eventually(lambda: receiver.metrics and len(list_decisions(receiver)) >= 2, 60)
    finally:
        running.terminate()
        assert running.wait(30) == 0, (tmp_path / "log").read_text()
    metrics = receiver.newest_metrics()
    decisions = metrics["trimtab_decisions"].sum.data_points
    assert sum(point.as_double for point in decisions) >= 2
    assert metrics["trimtab_partitions"].gauge.data_points[0].as_double == 2
    assert not receiver.spans()
    assert receiver.services() == {"trimtab-sidecar"}
    assert not any(PRIVATE.encode() in body for body in receiver.raw)
