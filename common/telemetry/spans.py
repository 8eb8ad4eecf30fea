"""Spans by OpenTelemetry's semantic conventions for messaging, and the producers' contexts they refer to.

A record's producer is known by its headers `traceparent` and `tracestate` (W3C). Of a batch:

1. Of `MAX_SCANNED_RECORDS` records, evenly spread over those that have headers, the contexts are read.
2. Each context counts once: a producer may send many records in one span. If some are sampled, the others
   do not count, since nothing was exported of them.
3. The span links to `MAX_LINKS` of them, evenly spread. The attribute `trimtab.producer_contexts` tells how
   many there were to choose from.

No attribute has a key, a value, or a header of a record other than these two.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from opentelemetry import trace
from opentelemetry.trace import SpanContext, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

MAX_LINKS: Final = 64  # the SDK's own limit is 128
MAX_SCANNED_RECORDS: Final = 10_000
MAX_LISTED_RANGES: Final = 32  # partitions whose offsets a span lists
MAX_TRACESTATE_BYTES: Final = 512  # as W3C asks to pass on at least

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
SYSTEM: Final = "messaging.system"
OPERATION_NAME: Final = "messaging.operation.name"
OPERATION_TYPE: Final = "messaging.operation.type"
DESTINATION: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
OFFSET: Final = "messaging.kafka.offset"
GROUP: Final = "messaging.consumer.group.name"
CLIENT_ID: Final = "messaging.client.id"
MESSAGE_COUNT: Final = "messaging.batch.message_count"
ERROR_TYPE: Final = "error.type"
PRODUCER_CONTEXTS: Final = "trimtab.producer_contexts"
OFFSETS: Final = "trimtab.offsets"
DELIVERY: Final = "trimtab.queue.delivery"

_FLAGS_END: Final = 55  # of "00-", 32 hexadecimal digits, "-", 16, "-", two digits of flags
_SAMPLED_DIGITS: Final = b"13579bdf"
_PROPAGATOR: Final = TraceContextTextMapPropagator()
T = TypeVar("T")
Partition: TypeAlias = tuple[str, int]  # topic and number


def get_tracer() -> Tracer:
    """Return Trimtab's tracer of the global provider."""
    return trace.get_tracer("trimtab")


def spread_evenly(items: Sequence[T], limit: int) -> Sequence[T]:
    """Return all items, or `limit` of them at equal distances."""
    if len(items) <= limit:
        return items
    return [items[number * len(items) // limit] for number in range(limit)]


def choose_producers(parents: Sequence[bytes | None]) -> list[int]:
    """Return the indices of the first records of each producer's context, of the sampled ones if any."""
    first: dict[bytes, int] = {}
    for index, parent in enumerate(parents):
        if parent:
            first.setdefault(parent, index)
    sampled = [index for parent, index in first.items() if _is_sampled(parent)]
    return sampled or list(first.values())


def parse_context(parent: bytes | None, state: bytes | None) -> SpanContext | None:
    """Return the context in `traceparent` and `tracestate`; None if there is no valid one."""
    carrier = {TRACEPARENT: (parent or b"").decode("ascii", "replace")}
    if state and len(state) <= MAX_TRACESTATE_BYTES:
        carrier[TRACESTATE] = state.decode("ascii", "replace")
    found = trace.get_current_span(_PROPAGATOR.extract(carrier)).get_span_context()
    return found if found.is_valid else None


def describe_operation(name: str, kind: str, group: str) -> dict[str, str]:
    """Return the attributes that each span of an operation has from its start on."""
    return {SYSTEM: "kafka", OPERATION_NAME: name, OPERATION_TYPE: kind, GROUP: group}


def describe_place(partitions: Iterable[Partition]) -> dict[str, str]:
    """Return topic and partition, each if all records have the same one."""
    found = set(partitions)
    topics = {topic for topic, _ in found}
    place = {DESTINATION: next(iter(topics))} if len(topics) == 1 else {}
    if len(found) == 1:
        place[PARTITION] = str(next(iter(found))[1])
    return place


def list_ranges(ranges: Mapping[Any, object]) -> list[str]:
    """Return "orders/0: 5-99" of the first `MAX_LISTED_RANGES` partitions."""
    return [
        f"{topic}/{number}: {text}" for (topic, number), text in sorted(ranges.items())[:MAX_LISTED_RANGES]
    ]


def name_span(operation: str, place: Mapping[str, str]) -> str:
    """Return the operation and the topic, if there is one topic only."""
    return f"{operation} {place[DESTINATION]}" if DESTINATION in place else operation


def _is_sampled(parent: bytes) -> bool:
    return len(parent) >= _FLAGS_END and parent[_FLAGS_END - 1] in _SAMPLED_DIGITS
