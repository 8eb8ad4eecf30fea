"""Records of the decision topic: the last decisions of each group, as versioned JSON.

- A group has `RECORD_SLOTS` keys used as a ring, so the compacted topic stays bounded.
- Consecutive iterations with the same decision and reasons (ignoring figures) are one record with
  the newest figures, from `time` until `until`. So idle days do not evict past changes.
- An observed move belongs to the iteration that saw it, possibly later than the decision that
  expected it. The first `MAX_LISTED_MOVES` are listed, the others only counted.
- A record names its author, so a second active sidecar is detected (`group_ownership`). A sidecar
  that shuts down rewrites its last record with `ended`.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.codec import (
    build_dataclass,
    check_non_negative,
    check_text,
    decode_control_value,
    encode_control_value,
)
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.decision.decision import MAX_LISTED_MOVES, DecisionMetrics, ScalingAction
from trimtab.sidecar.reporting.iteration_report import IterationReport

RECORD_SLOTS: Final = 128
FIGURE_PATTERN: Final = re.compile(r"\d[\d.]*( ?[kMGT]?B(/s)?\b)?")
MAX_RECORDED_TROUBLE: Final = 3
CHECKED_FIGURES: Final = ("number", "time", "until", "turns", "interval", "epoch")
"""Fields that readers compute with; a record with any other value in them is skipped."""


@dataclass(frozen=True, slots=True)
class SidecarIdentity:
    """The author of a decision; `since` is its start time in seconds since the epoch.

    Sidecars excluded from each other by a lease or a state directory lock share an `id`.
    `generation` increases with each sidecar that takes over the group; 0 means inactive.
    """

    id: str
    host: str
    pid: int
    since: float
    generation: int = 0

    def __str__(self) -> str:
        """Return host, pid and start time."""
        since = datetime.fromtimestamp(self.since, UTC)
        return f"{self.host} (pid {self.pid}, since {since:%F %T} UTC)"


@dataclass(frozen=True, slots=True)
class RecordedMove:
    """An observed or expected move of a partition; `speed` is its load in bytes/s."""

    topic: str
    partition: int
    source: str | None
    target: str
    speed: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """A verdict that stood from `time` until `until` (seconds since the epoch), for `turns` turns.

    Readers hear again within `interval` seconds; `capacity` (bytes/s) and `headroom` are what a
    consumer could take; `replicas` is the count of the plan that the verdict published, None where
    it published none; `consumers` are the partitions of each instance. `expected` are the moves
    that the verdict asks for, `seen` those that were seen, of which there were `seen_count` with
    `seen_rate` bytes/s. `by` is who left it, None where an older version did not say.
    """

    group: str
    number: int
    time: float
    until: float
    turns: int
    interval: float
    epoch: int
    action: ScalingAction
    reasons: tuple[str, ...]
    metrics: DecisionMetrics
    capacity: float
    headroom: float
    replicas: int | None = None
    draining: tuple[str, ...] = ()
    replicas_to_start: int = 0
    replicas_to_stop: tuple[str, ...] = ()
    expected_moves: tuple[RecordedMove, ...] = ()
    seen: tuple[RecordedMove, ...] = ()
    seen_count: int = 0
    seen_rate: float = 0.0
    consumers: Mapping[str, int] = field(default_factory=dict[str, int])
    trouble: tuple[str, ...] = ()
    by: SidecarIdentity | None = None
    ended: bool = False
    failure: str = ""

    @property
    def key(self) -> str:
        """Key of the record in the verdict topic."""
        return json.dumps([self.group, self.number % RECORD_SLOTS])

    @property
    def usable_capacity(self) -> float:
        """Bytes/s that a consumer was to be filled with at most."""
        return self.capacity * self.headroom

    def encode(self) -> bytes:
        """Return the record's value; equal values give equal bytes."""
        return encode_control_value(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> "DecisionRecord":
        """Read a record's value. Raises InvalidPayloadError."""
        body = decode_control_value(value, "decision")
        try:
            body["action"] = ScalingAction(body["action"])
            body["metrics"] = build_dataclass(DecisionMetrics, body["metrics"])
            body["by"] = build_dataclass(SidecarIdentity, body["by"]) if body.get("by") else None
            for name in ("expected_moves", "seen"):
                body[name] = tuple(build_dataclass(RecordedMove, move) for move in body[name])
            for name in ("reasons", "draining", "replicas_to_stop", "trouble"):
                body[name] = tuple(body[name])
            record = build_dataclass(cls, body)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise InvalidPayloadError(f"decision is malformed: {error!r}") from error
        check_text("group of a decision", record.group)
        for name in CHECKED_FIGURES:
            check_non_negative(f"{name} of a decision for {record.group}", getattr(record, name))
        return record


@dataclass(frozen=True, slots=True)
class RecordTerms:
    """What stays the same from record to record: whose they are, and under which settings."""

    group: str
    interval: float
    capacity: float
    headroom: float


def build_decision_record(
    report: IterationReport, terms: RecordTerms, author: SidecarIdentity | None = None
) -> DecisionRecord:
    """Return the record of one iteration, without a number."""
    verdict, plan = report.decision, report.decision.plan
    seen = tuple(
        RecordedMove(*c.partition, c.source, c.target, _get_partition_weight(report, c.partition))
        for c in report.observed_moves
    )
    return DecisionRecord(
        **asdict(terms),
        number=0,
        time=report.time,
        until=report.time,
        turns=1,
        epoch=report.epoch,
        action=verdict.action,
        reasons=verdict.reasons,
        metrics=verdict.metrics,
        replicas=None if plan is None else plan.replicas,
        draining=() if plan is None else plan.draining,
        replicas_to_start=verdict.replicas_to_start,
        replicas_to_stop=verdict.replicas_to_stop,
        expected_moves=tuple(
            RecordedMove(*m.partition, m.source, m.target, m.write_rate, m.reason)
            for m in verdict.expected_moves
        ),
        seen=seen[:MAX_LISTED_MOVES],
        seen_count=len(seen),
        seen_rate=sum(m.speed or 0.0 for m in seen),
        consumers={r.instance or r.id: len(r.owned_partitions) for r in report.members},
        trouble=report.trouble[:MAX_RECORDED_TROUBLE],
        by=author,
        failure=verdict.failure,
    )


def merge_decision_record(previous: DecisionRecord | None, new: DecisionRecord) -> DecisionRecord:
    """Return the new record with its number, merged with an equal previous decision."""
    if previous is None:
        return new
    if _get_comparison_key(previous) != _get_comparison_key(new):
        return replace(new, number=previous.number + 1)
    return replace(
        new,
        number=previous.number,
        time=previous.time,
        turns=previous.turns + 1,
        expected_moves=new.expected_moves or previous.expected_moves,
        seen=(*previous.seen, *new.seen)[:MAX_LISTED_MOVES],
        seen_count=previous.seen_count + new.seen_count,
        seen_rate=previous.seen_rate + new.seen_rate,
    )


def _get_partition_weight(report: IterationReport, partition: TopicPartition) -> float | None:
    speed = report.write_rates.get(partition)
    return None if speed is None else speed.weight


def _get_comparison_key(record: DecisionRecord) -> tuple[object, ...]:
    n = record.metrics
    asked = (
        record.action,
        record.replicas,
        record.draining,
        record.replicas_to_start,
        record.replicas_to_stop,
    )
    words = tuple(FIGURE_PATTERN.sub("#", reason) for reason in (*record.reasons, record.failure))
    return (asked, n.planned_replicas, n.desired_replicas, record.capacity, record.headroom, words, record.by)
