"""Traces of a consumer and a sidecar on a real broker, as they arrive at a receiver of OTLP."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from otlp_receiver import OtlpReceiver, attributes_of, receive_otlp

pytestmark = pytest.mark.broker

TRACE, SPAN = 0xABC1, 0xDEF2
PRIVATE = "private-text-of-a-record"
READER = """
import sys
from trimtab.consumer_sdk import Consumer

bootstrap, group, topic = sys.argv[1:]
config = {
    "bootstrap.servers": bootstrap,
    "group.id": group,
    "client.id": "reader",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": False,
    "trimtab.telemetry": True,
}
with Consumer(config) as consumer:
    consumer.subscribe([topic])
    while (message := consumer.poll(1.0)) is None:
        pass
    with consumer.trace_processing(message):
        consumer.commit(message, asynchronous=False)
    messages = consumer.consume(10, 5.0)
    try:
        with consumer.trace_processing(messages):
            raise ValueError(messages[0].value())
    except ValueError:
        pass
    consumer.commit(messages[-1])
"""


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with receive_otlp() as receiver:
        yield receiver


def produce(bootstrap: str, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        parent = f"00-{TRACE + number:032x}-{SPAN + number:016x}-01"
        headers = {"traceparent": parent.encode(), "authorization": PRIVATE.encode()}
        producer.produce(topic, PRIVATE.encode(), PRIVATE.encode(), 0, headers=headers)
    producer.flush(30)


def test_a_records_way_is_one_trace(
    bootstrap: str, group: str, topic: Callable[..., str], receiver: OtlpReceiver
) -> None:
    """A record is received, processed in its producer's trace, and committed in it; no secret is exported."""
    name = topic(partitions=1)
    produce(bootstrap, name, 4)
    environment = {**os.environ, **receiver.environment}
    command = [sys.executable, "-c", READER, bootstrap, group, name]
    subprocess.run(command, env=environment, check=True, timeout=120)
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


def test_a_sidecar_exports_its_decisions(
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    receiver: OtlpReceiver,
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """Each decision is a span with its reasons; metrics and log lines are exported, too."""
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
        eventually(lambda: len(receiver.spans()) >= 2, 60)
    finally:
        running.terminate()
        assert running.wait(30) == 0, (tmp_path / "log").read_text()
    span = receiver.spans()[0]
    assert span.name == f"decide {group}"
    found = attributes_of(span)
    assert found["messaging.consumer.group.name"] == group
    assert found["trimtab.decision.action"]
    assert found["trimtab.decision.reasons"]
    assert found["trimtab.decision.partitions"] == 2
    assert span.end_time_unix_nano > span.start_time_unix_nano
    metrics = receiver.newest_metrics()
    decisions = metrics["trimtab_decisions"].sum.data_points
    assert sum(point.as_double for point in decisions) >= 2
    assert metrics["trimtab_partitions"].gauge.data_points[0].as_double == 2
    texts = [record.body.string_value for record in receiver.log_records()]
    assert any(text.startswith(f"{found['trimtab.decision.action']}: ") for text in texts)
    assert receiver.services() == {"trimtab-sidecar"}
    assert not any(PRIVATE.encode() in body for body in receiver.raw)
