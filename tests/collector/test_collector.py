"""What OpenTelemetry's own collector takes from Trimtab, and hands on."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from collector.process import answers, running_collector
from support.otlp_receiver import OtlpReceiver, attributes_of, receive_otlp
from support.traced_readers import QUEUE_READER, READER, SPAN, TRACE, produce, run_reader

pytestmark = [pytest.mark.collector, pytest.mark.broker]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    """What the collector hands on."""
    with receive_otlp() as receiver:
        yield receiver


@pytest.fixture
def environment(
    receiver: OtlpReceiver, tmp_path: Path, eventually: Callable[..., None]
) -> Iterator[dict[str, str]]:
    """The variables that send a process's telemetry to the collector."""
    with running_collector(tmp_path, receiver.endpoint) as endpoint:
        eventually(lambda: answers(endpoint), 60)
        yield {**receiver.environment, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}


def test_a_consumers_and_a_queues_spans_pass_a_collector(
    environment: dict[str, str],
    receiver: OtlpReceiver,
    bootstrap: str,
    topic: Callable[..., str],
    eventually: Callable[..., None],
) -> None:
    """The collector refuses nothing: traces, links and attributes arrive behind it."""
    name, queued = topic(partitions=1), topic(partitions=1)
    produce(bootstrap, name, 4)
    produce(bootstrap, queued, 3)
    run_reader(READER, environment, bootstrap, f"{name}-group", name)
    run_reader(QUEUE_READER, environment, "kmq", bootstrap, f"{queued}-group", queued)

    def processed(of: str) -> list[object]:
        return [span for span in receiver.spans() if span.name == f"process {of}"]

    eventually(lambda: len(processed(name)) == 2 and len(processed(queued)) == 3, 60)
    first = min(
        (s for s in receiver.spans() if s.name == f"process {name}"), key=lambda s: s.end_time_unix_nano
    )
    assert (int.from_bytes(first.trace_id), int.from_bytes(first.parent_span_id)) == (TRACE, SPAN)
    assert {attributes_of(span)["messaging.operation.type"] for span in receiver.spans()} == {
        "receive",
        "process",
        "settle",
    }
    assert receiver.services() == {"trimtab-consumer"}


def test_a_sidecars_signals_pass_a_collector(  # noqa: PLR0913, PLR0917 - fixtures
    environment: dict[str, str],
    receiver: OtlpReceiver,
    bootstrap: str,
    group: str,
    topic: Callable[..., str],
    tmp_path: Path,
    eventually: Callable[..., None],
) -> None:
    """Metrics and log lines of a sidecar arrive behind the collector."""
    file = tmp_path / "sidecar.yaml"
    settings = f"bootstrap: {bootstrap}\ngroup: {group}\ntopics: {topic(partitions=2)}\ncapacity: 1 MB/s\n"
    file.write_text(f"{settings}interval: 300 ms\ntelemetry: true\n")
    command = [sys.executable, "-m", "trimtab.cli", "sidecar", "-c", str(file)]
    with (tmp_path / "log").open("wb") as log:
        running = subprocess.Popen(command, env={**os.environ, **environment}, stderr=log)
    try:
        eventually(lambda: receiver.metrics and receiver.logs, 60)
    finally:
        running.terminate()
        assert running.wait(30) == 0, (tmp_path / "log").read_text()
    assert "trimtab_replicas_desired" in receiver.newest_metrics()
    assert any("telemetry: exporting" in one.body.string_value for one in receiver.log_records())
    assert receiver.services() == {"trimtab-sidecar"}
