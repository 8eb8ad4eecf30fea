"""History of a group in memory, for the page, and the events that keep the page current.

1. It has the iterations of the last `HISTORY_S` seconds, in at most `MAX_HISTORY_BYTES`.
2. What was recorded before the start comes first (`recorded_history`).
3. A reader gets a snapshot, then each new sample. One that missed a sample, and each of them after
   older decisions or other names came in, gets a snapshot again.
4. Names of partitions and consumers are only added. Once twice as many as the group has are known, the
   arrays of the past, which refer to them, are dropped.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from threading import Condition
from typing import Final

from trimtab.sidecar.decision.decision import DecisionMetrics
from trimtab.sidecar.records.decision_record import DecisionRecord, RecordTerms, build_decision_record
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.records.sample_record import RECORDED_SPAN_S, SAMPLE_INTERVAL_S, SampleRecord
from trimtab.sidecar.web.decision_alternatives import AlternativesThread
from trimtab.sidecar.web.recorded_history import build_sample_record, restore_samples
from trimtab.sidecar.web.recorded_stream import RecordedStream, build_recorded_stream, encode_rates
from trimtab.sidecar.web.sample import (
    UNKNOWN_LOAD,
    HistorySample,
    NameTable,
    add_freshness,
    build_decision_fields,
    build_iteration_fields,
    build_new_names,
    dump_json,
    list_owners,
    quantize_loads,
)
from trimtab.sidecar.web.topic_freshness import TopicFreshness

HISTORY_S: Final = RECORDED_SPAN_S
MAX_HISTORY_BYTES: Final = 16_000_000
KEEPALIVE_INTERVAL_S: Final = 15.0  # proxies close silent connections
SPARE_NAMES: Final = 1000  # beyond twice the group, before the past is dropped (rule 4)


class GroupHistory:
    """Reporter that keeps the history and wakes its readers."""

    def __init__(
        self,
        terms: RecordTerms,
        alternatives: AlternativesThread | None = None,
        max_bytes: int = MAX_HISTORY_BYTES,
        sample_interval: float = SAMPLE_INTERVAL_S,
        freshness: TopicFreshness | None = None,
        settings: Mapping[str, float] | None = None,
    ) -> None:
        """Keep up to `max_bytes`; a sample is recorded each `sample_interval` seconds.

        `settings` are those that the page names.
        """
        self._terms = terms
        self._settings = dict(settings or {})
        self._sample_interval = sample_interval
        self._freshness = freshness
        self._recorded_at = float("-inf")  # the newest sample that was recorded
        self._metrics = DecisionMetrics()  # of the newest sample
        self._alternatives = alternatives
        self._max_bytes = max_bytes
        self._readers = 0  # windows that follow
        self._changed = Condition()
        self._samples: deque[HistorySample] = deque()
        self._bytes = 0
        self._names = NameTable()
        self._number = 0  # of the newest sample
        self._edition = 0  # counts what makes readers start again
        self._closed = False

    def __call__(self, report: IterationReport) -> None:
        """Record an iteration."""
        capacity = report.capacity or self._terms.capacity
        grace = self._settings.get("backlog_grace", 0.0)
        record = build_decision_record(report, self._terms)
        fields = {**build_decision_fields(record), **build_iteration_fields(report, capacity, grace)}
        if self._freshness is not None:
            add_freshness(fields["topics"], self._freshness, report)
        if self._alternatives is not None:
            fields["alternatives"] = self._alternatives.take_rows()
            self._alternatives.offer_report(report, is_watched=bool(self._readers))
        owned = {p for member in report.members for p in member.owned_partitions}
        partitions = owned.union(report.write_rates)
        consumers = [member.instance for member in report.members]
        with self._changed:
            self._metrics = record.metrics
            self._renew_names(len(partitions) + len(consumers))
            known = len(self._names.partitions), len(self._names.consumers)
            self._names.add_names(partitions, consumers)
            fields |= build_new_names(self._names, *known)
            self._append(
                HistorySample(
                    number=self._number + 1,
                    time=report.time,
                    text=dump_json(fields),
                    loads=quantize_loads(self._names.partitions, report.write_rates, capacity),
                    owners=list_owners(self._names, report.members),
                    rates=encode_rates(self._names.partitions, report.write_rates, capacity),
                )
            )
            self._changed.notify_all()

    def restore(self, decisions: Sequence[DecisionRecord], recorded: Sequence[SampleRecord]) -> None:
        """Put what was recorded before the first sample in front of it."""
        with self._changed:
            first = self._samples[0].time if self._samples else float("inf")
            newest = max((r.until for r in decisions), default=first) if first == float("inf") else first
            span = (newest - HISTORY_S, first)
            restored = restore_samples(self._names, decisions, recorded, span, self._terms.capacity)
            self._samples.extendleft(reversed(restored))
            self._bytes += sum(map(measure_sample, restored))
            self._edition += 1
            self._changed.notify_all()

    def take_sample_record(self) -> SampleRecord | None:
        """Return the newest sample to record; None until the next one is due."""
        with self._changed:
            newest = self._samples[-1] if self._samples else None
            if newest is None or not newest.rates or newest.time < self._recorded_at + self._sample_interval:
                return None
            if set(newest.loads) <= {UNKNOWN_LOAD}:  # the first iterations: a later one tells more
                return None
            self._recorded_at = newest.time
            return build_sample_record(self._terms, self._names, newest, self._metrics, self._sample_interval)

    def close(self) -> None:
        """End all streams."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def encode_snapshot(self) -> bytes:
        """Return the whole history as JSON."""
        with self._changed:
            return self._build_snapshot().encode()

    def stream_events(self) -> Iterator[bytes]:
        """Yield server-sent events: `history`, then a `sample` for each iteration, until closed."""
        seen = edition = -1
        self._count_readers(1)
        try:
            while not self._closed:
                with self._changed:
                    if (seen, edition) == (self._number, self._edition):
                        self._changed.wait(KEEPALIVE_INTERVAL_S)
                    events = self._list_events(seen, edition)
                    seen, edition = self._number, self._edition
                yield "".join(events).encode()
        finally:
            self._count_readers(-1)

    def _count_readers(self, change: int) -> None:
        with self._changed:  # each window has a thread
            self._readers += change

    def build_recorded_stream(self) -> RecordedStream | None:
        """Return the recorded write rates; None while there are too few."""
        with self._changed:
            partitions, samples = list(self._names.partitions), list(self._samples)
        return build_recorded_stream(partitions, samples, self._terms.capacity)

    def _list_events(self, seen: int, edition: int) -> list[str]:
        if edition == self._edition and seen == self._number:
            return [": no news\n\n"]
        if edition != self._edition or seen != self._number - 1:
            return [format_event("history", self._build_snapshot())]
        newest = self._samples[-1]
        previous = self._samples[-2] if len(self._samples) > 1 else None
        return [format_event("sample", newest.encode(previous))]

    def _build_snapshot(self) -> str:
        names = build_new_names(self._names, 0, 0)
        move_cost = None if self._alternatives is None else self._alternatives.move_cost
        terms = {"group": self._terms.group, "interval": self._terms.interval}
        head = dump_json({**terms, "move_cost": move_cost, "settings": self._settings, **names})
        first = [self._samples[0].encode(None)] if self._samples else []
        rest = [newer.encode(older) for older, newer in pairwise(self._samples)]
        return f'{head[:-1]},"samples":[{",".join(first + rest)}]}}'

    def _append(self, sample: HistorySample) -> None:
        if self._samples and self._samples[-1].owners == sample.owners:
            sample = replace(sample, owners=self._samples[-1].owners)  # one copy of what does not change
        self._samples.append(sample)
        self._number = sample.number
        self._bytes += measure_sample(sample)
        while self._samples[0].time < sample.time - HISTORY_S or self._bytes > self._max_bytes:
            self._bytes -= measure_sample(self._samples.popleft())

    def _renew_names(self, size: int) -> None:
        if len(self._names.partitions) + len(self._names.consumers) <= 2 * size + SPARE_NAMES:
            return
        self._names = NameTable()
        self._samples = deque(replace(sample, loads=b"", owners=b"", rates=b"") for sample in self._samples)
        self._bytes = sum(map(measure_sample, self._samples))
        self._edition += 1


def measure_sample(sample: HistorySample) -> int:
    """Return about how many bytes of memory a sample takes, owners shared with others included."""
    return len(sample.text) + len(sample.loads) + len(sample.owners) + len(sample.rates) + 200


def format_event(name: str, data: str) -> str:
    """Return a server-sent event; `data` has no line break."""
    return f"event: {name}\ndata: {data}\n\n"
