"""What the verdict topic holds: the last verdicts of each group, as versioned JSON.

- A group has `SLOTS` keys, written round and round: a compacted topic stays bounded.
- Turns one after the other that ask for the same, for the same reasons but for their figures, are
  one record with the newest figures, from `time` until `until`: quiet days do not push out what was
  done.
- A move that was seen counts for the verdict of the turn that saw it, which may be some turns after
  the verdict that asked for it. The first `LISTED` are named, the others only counted.
- A record names who left it, so that no second sidecar steers the group unnoticed (`claims`). A
  sidecar that is told to end leaves its last record once more, marked as ended.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import dump, load
from trimtab.common.errors import BadPayload
from trimtab.sidecar.decision.decision import LISTED, Action, Numbers
from trimtab.sidecar.reporting.iteration_report import Report

VERDICT_TOPIC: Final = "sidecar.verdicts"
SLOTS: Final = 128
FIGURES: Final = re.compile(r"\d[\d.]*( ?[kMGT]?B(/s)?\b)?")
TROUBLES: Final = 3


@dataclass(frozen=True, slots=True)
class Author:
    """The sidecar that left a verdict; `since` is when it was started, in seconds since the epoch.

    Sidecars that something else keeps apart (a lease, the lock of a state folder) share an `id`.
    `generation` grows with each sidecar that begins to steer the group; 0: it does not steer.
    """

    id: str
    host: str
    pid: int
    since: float
    generation: int = 0

    def __str__(self) -> str:
        """Return how people find it."""
        since = datetime.fromtimestamp(self.since, UTC)
        return f"{self.host} (pid {self.pid}, since {since:%F %T} UTC)"


@dataclass(frozen=True, slots=True)
class Moved:
    """A partition that went, or is to go, from one instance to another; `speed` is in bytes/s."""

    topic: str
    partition: int
    source: str | None
    target: str
    speed: float | None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class VerdictRecord:
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
    action: Action
    reasons: tuple[str, ...]
    numbers: Numbers
    capacity: float
    headroom: float
    replicas: int | None = None
    draining: tuple[str, ...] = ()
    add: int = 0
    stop: tuple[str, ...] = ()
    expected: tuple[Moved, ...] = ()
    seen: tuple[Moved, ...] = ()
    seen_count: int = 0
    seen_rate: float = 0.0
    consumers: Mapping[str, int] = field(default_factory=dict[str, int])
    trouble: tuple[str, ...] = ()
    by: Author | None = None
    ended: bool = False

    @property
    def key(self) -> str:
        """Key of the record in the verdict topic."""
        return json.dumps([self.group, self.number % SLOTS])

    @property
    def room(self) -> float:
        """Bytes/s that a consumer was to be filled with at most."""
        return self.capacity * self.headroom

    def encode(self) -> bytes:
        """Return the record's value; equal values give equal bytes."""
        return dump(asdict(self))

    @classmethod
    def decode(cls, value: bytes) -> "VerdictRecord":
        """Read a record's value. Raises BadPayload."""
        body = load(value, "verdict")
        try:
            body["action"] = Action(body["action"])
            body["numbers"] = Numbers(**body["numbers"])
            body["by"] = Author(**body["by"]) if body.get("by") else None
            for name in ("expected", "seen"):
                body[name] = tuple(Moved(**move) for move in body[name])
            for name in ("reasons", "draining", "stop", "trouble"):
                body[name] = tuple(body[name])
            return cls(**body)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise BadPayload(f"verdict is malformed: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Terms:
    """What stays the same from record to record: whose they are, and under which settings."""

    group: str
    interval: float
    capacity: float
    headroom: float


def recorded(report: Report, terms: Terms, by: Author | None = None) -> VerdictRecord:
    """Return the record of one turn, not numbered yet."""
    verdict, plan = report.verdict, report.verdict.plan
    seen = tuple(
        Moved(*c.partition, c.source, c.target, _weight(report, c.partition))
        for c in report.changed
    )
    return VerdictRecord(
        **asdict(terms),
        number=0,
        time=report.time,
        until=report.time,
        turns=1,
        epoch=report.epoch,
        action=verdict.action,
        reasons=verdict.reasons,
        numbers=verdict.numbers,
        replicas=None if plan is None else plan.replicas,
        draining=() if plan is None else plan.draining,
        add=verdict.add,
        stop=verdict.stop,
        expected=tuple(
            Moved(*m.partition, m.source, m.target, m.speed, m.reason) for m in verdict.expected
        ),
        seen=seen[:LISTED],
        seen_count=len(seen),
        seen_rate=sum(m.speed or 0.0 for m in seen),
        consumers={r.instance or r.id: len(r.owned) for r in report.readers},
        trouble=report.trouble[:TROUBLES],
        by=by,
    )


def folded(last: VerdictRecord | None, new: VerdictRecord) -> VerdictRecord:
    """Return the new record numbered, and with what it goes on from the last one."""
    if last is None:
        return new
    if _gist(last) != _gist(new):
        return replace(new, number=last.number + 1)
    return replace(
        new,
        number=last.number,
        time=last.time,
        turns=last.turns + 1,
        expected=new.expected or last.expected,
        seen=(*last.seen, *new.seen)[:LISTED],
        seen_count=last.seen_count + new.seen_count,
        seen_rate=last.seen_rate + new.seen_rate,
    )


def _weight(report: Report, partition: TopicPartition) -> float | None:
    speed = report.speeds.get(partition)
    return None if speed is None else speed.weight


def _gist(record: VerdictRecord) -> tuple[object, ...]:
    n = record.numbers
    asked = (record.action, record.replicas, record.draining, record.add, record.stop)
    words = tuple(FIGURES.sub("#", reason) for reason in record.reasons)
    return asked, n.planned, n.wanted, record.capacity, record.headroom, words, record.by
