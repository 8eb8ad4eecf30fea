"""A consumer's spans by OpenTelemetry: poll (receive), process, commit (settle).

1. `poll` covers one call that returned records. It reads no headers, and so has no links: a message whose
   headers are damaged may be read once only, by whom it concerns (`readable_headers`).
2. `process` of one message continues its producer's trace; of several it links to their contexts.
3. `commit` is a part of the trace in which it was requested, also if the answer comes later.
"""

from collections import deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from confluent_kafka import Message
from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.trace import Link, NonRecordingSpan, SpanContext, SpanKind, Status, StatusCode

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.telemetry import spans
from trimtab.common.telemetry.otel_export import ensure_tracing
from trimtab.consumer_sdk.client.client_adapters import partition_of
from trimtab.consumer_sdk.client.membership_events import CommitPosition
from trimtab.consumer_sdk.readable_headers import keep_readable_headers
from trimtab.consumer_sdk.telemetry.consumer_spans import ConsumerSpans

SERVICE: Final = "trimtab-consumer"
MAX_PENDING_COMMITS: Final = 256  # those of a lost membership are never answered
Positions: TypeAlias = Mapping[TopicPartition, CommitPosition]


class OtelConsumerSpans(ConsumerSpans):
    """Spans of one consumer. Raises SettingError for an exporter that is not installed."""

    is_on = True

    def __init__(self, group: str, client_id: str, clock: Clock) -> None:
        ensure_tracing(SERVICE)
        self._group = group
        self._client_id = client_id
        self._clock = clock
        self._tracer = spans.get_tracer()
        # position, start in ns, and the context of the request; the oldest first
        self._pending: deque[tuple[Positions, int, otel_context.Context]] = deque(maxlen=MAX_PENDING_COMMITS)

    def record_receive(self, messages: Sequence[Message], seconds: float) -> None:
        """Record that these messages were returned, after a call of `seconds`."""
        records = [message for message in messages if message.error() is None]
        if not records:
            return
        end = self._now_ns()
        span = self._tracer.start_span(
            "poll",
            kind=SpanKind.CLIENT,
            attributes=self._describe("poll", "receive"),
            start_time=end - int(seconds * 1e9),
        )
        if span.is_recording():
            place = spans.describe_place({partition_of(message) for message in records})
            span.update_name(spans.name_span("poll", place))
            span.set_attributes({**place, **_describe_records(records)})
        span.end(end)

    def trace_processing(self, messages: Sequence[Message]) -> AbstractContextManager[None]:
        """Return a block that processes these messages."""
        return self._trace_processing([message for message in messages if message.error() is None])

    def trace_delivery(self, message: Message, delivery: int) -> AbstractContextManager[None]:
        """Return a block that processes a message of a queue; `delivery` is 1 for the first time."""
        return self._trace_processing([message], {spans.DELIVERY: delivery})

    @contextmanager
    def _trace_processing(
        self, records: Sequence[Message], more: Mapping[str, int] = MappingProxyType({})
    ) -> Generator[None]:
        place = spans.describe_place({partition_of(message) for message in records})
        links = link_producers(records)
        parent = _continue_trace(links[0].context) if len(records) == 1 and links else None
        with (
            self._tracer.start_as_current_span(
                spans.name_span("process", place),
                context=parent,
                kind=SpanKind.CONSUMER,
                links=() if parent is not None else links,
                attributes={
                    **self._describe("process", "process"),
                    **place,
                    **_describe_records(records),
                    **more,
                },
                record_exception=False,  # its text may quote a record
                set_status_on_exception=False,
            ) as span,
            mark_failure(span),
        ):
            yield

    def trace_commit(self, positions: Positions) -> AbstractContextManager[None]:
        """Return a block that commits these positions."""
        name = spans.name_span("commit", spans.describe_place(positions))
        return self._trace_request(name, self._describe_commit(positions))

    def trace_settlement(self, topic: str) -> AbstractContextManager[None]:
        """Return a block that settles messages of a share group."""
        attributes = {**self._describe("acknowledge", "settle"), spans.DESTINATION: topic}
        return self._trace_request(f"acknowledge {topic}", attributes)

    @contextmanager
    def _trace_request(self, name: str, attributes: dict[str, Any]) -> Generator[None]:
        with (
            self._tracer.start_as_current_span(
                name,
                kind=SpanKind.CLIENT,
                attributes=attributes,
                record_exception=False,
                set_status_on_exception=False,
            ) as span,
            mark_failure(span),
        ):
            yield

    def begin_commit(self, positions: Positions) -> None:
        """Note that these positions are committed in the background."""
        self._pending.append((dict(positions), self._now_ns(), otel_context.get_current()))

    def end_commit(self, positions: Positions, error: Exception | None) -> None:
        """Record the answer to a commit in the background."""
        begun = next((one for one in self._pending if one[0] == positions), None)
        if begun is None:
            return
        self._pending.remove(begun)
        _, started_at, context = begun
        span = self._tracer.start_span(
            spans.name_span("commit", spans.describe_place(positions)),
            context=context,
            kind=SpanKind.CLIENT,
            attributes=self._describe_commit(positions),
            start_time=started_at,
        )
        if error is not None:
            set_failed(span, error)
        span.end(self._now_ns())

    def _describe(self, name: str, kind: str) -> dict[str, str]:
        return {**spans.describe_operation(name, kind, self._group), spans.CLIENT_ID: self._client_id}

    def _describe_commit(self, positions: Positions) -> dict[str, Any]:
        common: dict[str, Any] = {**self._describe("commit", "settle"), **spans.describe_place(positions)}
        if len(positions) == 1:
            return {**common, spans.OFFSET: next(iter(positions.values())).offset}
        return {**common, spans.OFFSETS: spans.list_ranges({p: at.offset for p, at in positions.items()})}

    def _now_ns(self) -> int:
        return int(self._clock.wall() * 1e9)


def link_producers(records: Sequence[Message]) -> list[Link]:
    """Return links to the contexts in the records' headers (`common.telemetry.spans` has the bounds)."""
    scanned = spans.spread_evenly(records, spans.MAX_SCANNED_RECORDS)
    keep_readable_headers(scanned)
    headers = [dict(cast("Any", message.headers()) or ()) for message in scanned]
    chosen = spans.choose_producers([one.get(spans.TRACEPARENT) for one in headers])
    return build_links(
        (headers[i].get(spans.TRACEPARENT), headers[i].get(spans.TRACESTATE), *_place_of(scanned[i]))
        for i in spans.spread_evenly(chosen, spans.MAX_LINKS)
    )


def build_links(producers: Any) -> list[Link]:
    """Return the links of (traceparent, tracestate, partition, offset), without invalid contexts."""
    found = ((spans.parse_context(p, s), partition, offset) for p, s, partition, offset in producers)
    return [
        Link(context, {spans.PARTITION: str(partition), spans.OFFSET: offset})
        for context, partition, offset in found
        if context is not None
    ]


@contextmanager
def mark_failure(span: trace.Span) -> Generator[None]:
    """Give the span the kind of an exception that leaves the block."""
    try:
        yield
    except BaseException as error:
        set_failed(span, error)
        raise


def set_failed(span: trace.Span, error: BaseException) -> None:
    """Give the span the kind of its error; not the text, which may quote a record."""
    span.set_attribute(spans.ERROR_TYPE, type(error).__qualname__)
    span.set_status(Status(StatusCode.ERROR))


def _place_of(message: Message) -> tuple[int, int]:
    return message.partition() or 0, message.offset() or 0


def _describe_records(records: Sequence[Message]) -> dict[str, int]:
    return (
        {spans.OFFSET: records[0].offset() or 0} if len(records) == 1 else {spans.MESSAGE_COUNT: len(records)}
    )


def _continue_trace(producer: SpanContext) -> otel_context.Context:
    return trace.set_span_in_context(NonRecordingSpan(producer))
