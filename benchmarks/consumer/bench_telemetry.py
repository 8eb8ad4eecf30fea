"""Cost of telemetry: `consume` while it is off, compared with the same code without it; and while it is on.

    python -m benchmarks.consumer.bench_telemetry

The consumer's data plane returns prepared messages, so that the SDK's own code is all that is measured: a
real fetch would hide it. `off_ratio_N` is of calls that return N records: the median over pairs of runs, with
and without the lines of telemetry, in turn. All times are CPU time.
"""

import argparse
import inspect
import json
import statistics
import textwrap
import time
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from confluent_kafka import Message
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk import Consumer
from trimtab.consumer_sdk.consumer import consumer as consumer_module
from trimtab.consumer_sdk.lake.flush.otel_flush_spans import link_producers
from trimtab.consumer_sdk.lake.schema.record_columns import RECORD_SCHEMA
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KmqQueue
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.telemetry.consumer_spans import ConsumerSpans

BATCH = 500
HOOK = """            if self._spans.is_on and messages:
                self._spans.record_receive(messages, self._clock.monotonic() - begun_at)
"""


class PreparedMessages:
    """A data plane that has messages at once."""

    def __init__(self) -> None:
        self._messages = [Message(topic="orders", partition=0, offset=n, value=b"v") for n in range(BATCH)]

    def consume(self, count: int, _timeout: float) -> list[Message]:
        return self._messages[:count]

    def pause(self, _partitions: object) -> None: ...

    def resume(self, _partitions: object) -> None: ...

    def close(self) -> None: ...


def open_consumer(kind: type[Consumer], *, telemetry: bool) -> Consumer:
    config = {
        "bootstrap.servers": "localhost:9",
        "group.id": "bench",
        "enable.auto.commit": False,
        "log_level": 0,
        "trimtab.telemetry": telemetry,
    }
    consumer: Any = kind(config)
    consumer._data_plane.close()  # noqa: SLF001 - its own parts are replaced
    consumer._data_plane = consumer._offset_resets._data_plane = PreparedMessages()  # noqa: SLF001 - as above
    consumer._partitions.add_owned([TopicPartition("orders", 0)])  # noqa: SLF001 - as above
    return consumer


def remove_hook() -> type[Consumer]:
    """Return the consumer without the lines of telemetry in `consume`."""
    source = inspect.getsource(Consumer.consume)
    assert source.count(HOOK) == 1, "consume has changed: tell the lines of telemetry anew"
    plain = textwrap.dedent(source.replace(HOOK, ""))
    made: dict[str, Any] = {}
    exec(compile(plain, "consume without telemetry", "exec"), vars(consumer_module), made)  # noqa: S102 - our own code
    return type("PlainConsumer", (Consumer,), {"consume": made["consume"]})


def time_calls(consumer: Consumer, calls: int, count: int) -> float:
    """Return the CPU seconds of one call."""
    started = time.process_time()
    for _ in range(calls):
        consumer.consume(count, 1.0)
    return (time.process_time() - started) / calls


def measure_links(records: int) -> float:
    """Return the CPU seconds of choosing the links of a batch, each record of another producer."""
    headers = [[("traceparent", b"00-%032x-%016x-01" % (n + 1, n + 1))] for n in range(records)]
    columns = {"topic": ["t"] * records, "partition": [0] * records, "offset": range(records)}
    rest = {name: [None] * records for name in ("timestamp", "key", "value")}
    table = pa.table({**columns, **rest, "headers": headers}, schema=RECORD_SCHEMA)
    runs = []
    for _ in range(5):
        started = time.process_time()
        links, _ = link_producers(table)
        runs.append(time.process_time() - started)
        assert len(links) == 64
    return statistics.median(runs)


def measure_queue_block(messages: int) -> float:
    """Return the CPU seconds that the block around a queue's handler takes for a message while off."""
    queue: Any = SimpleNamespace(_spans=ConsumerSpans())
    message = QueueMessage(Message(topic="orders", partition=0, offset=1, value=b"v"), 1, None, queue)
    started = time.process_time()
    for _ in range(messages):
        with KmqQueue.trace_processing(queue, message):
            pass
    return (time.process_time() - started) / messages


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pairs", type=int, default=31, help="pairs of runs, off and without")
    parser.add_argument("--calls", type=int, default=1000, help="calls of a run")
    options = parser.parse_args()
    off, plain = open_consumer(Consumer, telemetry=False), open_consumer(remove_hook(), telemetry=False)
    result: dict[str, float] = {}
    for count in (1, BATCH):
        ratios, costs = [], []
        for pair in range(options.pairs):
            order = (off, plain) if pair % 2 else (plain, off)
            seconds = {consumer: time_calls(consumer, options.calls, count) for consumer in order}
            ratios.append(seconds[off] / seconds[plain])
            costs.append(seconds[off])
        result[f"off_ratio_{count}"] = round(statistics.median(ratios), 4)
        result[f"off_us_{count}"] = round(statistics.median(costs) * 1e6, 2)
    blocks = [measure_queue_block(100_000) for _ in range(5)]
    result["queue_off_us"] = round(statistics.median(blocks) * 1e6, 2)
    trace.set_tracer_provider(TracerProvider(shutdown_on_exit=False))
    on = open_consumer(Consumer, telemetry=True)
    for count in (1, BATCH):
        costs = [time_calls(on, options.calls, count) for _ in range(5)]
        result[f"on_us_{count}"] = round(statistics.median(costs) * 1e6, 2)
    result["links_ms_per_100000"] = round(measure_links(100_000) * 1e3, 1)
    print(f"RESULT {json.dumps(result)}")


if __name__ == "__main__":
    main()
