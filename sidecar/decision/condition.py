"""Conditions of a group: what somebody on call should know, as of one iteration.

1. A condition is abnormal while it is listed, as Kubernetes' conditions of negative polarity are; without any
   all is well. A group has at most one of a type.
2. Every surface shows this list and has none of its own: log, metrics, alerts, page, `doctor`, `explain`,
   `top`, decision records, and the custom resource's status.
3. Its status is "True"; "Unknown" once nothing is observed that would tell whether it still holds, and in the
   first window after a start, in which what an earlier sidecar recorded is not found yet.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from trimtab.common.control_topics.number_ranges import Timestamp


class ConditionSeverity(StrEnum):
    """How soon somebody should look; `doctor` fails for a critical condition."""

    WARNING = "warning"
    CRITICAL = "critical"


class ConditionType(StrEnum):
    """Types of conditions."""

    GROUP_UNKNOWN = "GroupUnknown"
    REQUESTS_FAILED = "RequestsFailed"
    DECISION_FAILED = "DecisionFailed"
    PARTITIONS_HALTED = "PartitionsHalted"
    PARTITIONS_STUCK = "PartitionsStuck"
    CONSUMERS_STUCK = "ConsumersStuck"
    NOTHING_CONSUMED = "NothingConsumed"
    TRANSACTION_OPEN = "TransactionOpen"
    CONSUMER_OVERLOADED = "ConsumerOverloaded"
    PARTITION_OVERSIZED = "PartitionOversized"
    BACKLOG_OVERDUE = "BacklogOverdue"
    FRESHNESS_MISSED = "FreshnessMissed"
    WRITE_RATE_UNKNOWN = "WriteRateUnknown"
    SCALE_UP_SUSPENDED = "ScaleUpSuspended"
    SCALE_UP_LIMITED = "ScaleUpLimited"
    SCALE_DOWN_BLOCKED = "ScaleDownBlocked"
    SCALING_PAUSED = "ScalingPaused"
    REPLICAS_MISSING = "ReplicasMissing"
    REPLICAS_NOT_JOINED = "ReplicasNotJoined"
    FOREIGN_MEMBERS = "ForeignMembers"
    GROUP_UNSTEERED = "GroupUnsteered"
    PLAN_NOT_FOLLOWED = "PlanNotFollowed"
    RACKS_UNCOVERED = "RacksUncovered"


CRITICAL_TYPES: Final = frozenset(
    {
        ConditionType.GROUP_UNKNOWN,
        ConditionType.REQUESTS_FAILED,
        ConditionType.DECISION_FAILED,
        ConditionType.PARTITIONS_HALTED,
        ConditionType.PARTITIONS_STUCK,
        ConditionType.CONSUMERS_STUCK,
        ConditionType.NOTHING_CONSUMED,
        ConditionType.GROUP_UNSTEERED,
    }
)


# Their messages are causes; those of the others name the worst consumer or partition, which changes.
CAUSE_TYPES: Final = frozenset(
    {
        ConditionType.GROUP_UNKNOWN,
        ConditionType.REQUESTS_FAILED,
        ConditionType.DECISION_FAILED,
        ConditionType.PARTITIONS_HALTED,
        ConditionType.SCALE_UP_SUSPENDED,
        ConditionType.SCALE_DOWN_BLOCKED,
        ConditionType.GROUP_UNSTEERED,
    }
)

_FIGURE: Final = re.compile(r"\d[\d.]*( ?[kMGT]?B(/s)?\b)?")
MAX_MESSAGE_CHARS: Final = 1000  # of errors, which may be many


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that holds `since` a time, in seconds since the epoch."""

    type: str  # a `ConditionType`; another version's records may have others
    reason: str  # one word in CamelCase, as in Kubernetes
    message: str
    remedy: str
    severity: ConditionSeverity
    since: Timestamp = 0.0
    status: str = "True"

    @property
    def key(self) -> tuple[str, ...]:
        """What a change of figures, or of the consumer or partition that is named, leaves as it is."""
        return self.type, self.reason, self.status, get_cause(self.type, self.message)

    def format_line(self) -> str:
        """Return type, message, begin and remedy in one line."""
        begin = datetime.fromtimestamp(self.since, UTC)
        unsure = ", not known now" if self.status == "Unknown" else ""
        return f"{self.type}: {self.message} (since {begin:%F %T} UTC{unsure}) -> {self.remedy}"


def build_condition(kind: ConditionType, reason: str, message: str, remedy: str) -> Condition:
    """Return a condition of this type, with its type's severity."""
    severity = ConditionSeverity.CRITICAL if kind in CRITICAL_TYPES else ConditionSeverity.WARNING
    return Condition(kind.value, reason, message[:MAX_MESSAGE_CHARS], remedy, severity)


def get_cause(kind: str, message: str) -> str:
    """Return the cause that a message of this type names, without figures; empty if it names none."""
    return mask_figures(message) if kind in CAUSE_TYPES else ""


def mask_figures(text: str) -> str:
    """Return a text without its figures, which change with every measurement."""
    return _FIGURE.sub("#", text)


def restore_conditions(current: Sequence[Condition], recorded: Sequence[Condition]) -> tuple[Condition, ...]:
    """Return the current conditions with their earlier begin, and the other recorded ones as unknown."""
    earlier = {one.type: replace(one, status="Unknown") for one in recorded}
    for one in current:
        since = min(one.since, earlier[one.type].since) if one.type in earlier else one.since
        earlier[one.type] = replace(one, since=since)
    return tuple(earlier.values())


def track_conditions(
    before: Sequence[Condition],
    found: Sequence[Condition],
    now: float,
    *,
    is_observed: bool,
    keeps_unknown: bool = False,
) -> tuple[Condition, ...]:
    """Return the conditions of an iteration, each with its begin; critical ones first.

    Earlier ones that were not found stay as unknown while the group is not observed; with `keeps_unknown`
    those that are unknown already stay longer.
    """
    earlier = {one.type: one for one in before}
    tracked = {
        one.type: replace(one, since=earlier[one.type].since if one.type in earlier else now) for one in found
    }
    for kind, one in earlier.items():
        stays = not is_observed or (keeps_unknown and one.status == "Unknown")
        if stays and kind not in (ConditionType.GROUP_UNKNOWN, ConditionType.REQUESTS_FAILED):
            tracked.setdefault(kind, replace(one, status="Unknown"))
    return tuple(
        sorted(tracked.values(), key=lambda one: (one.severity is not ConditionSeverity.CRITICAL, one.since))
    )
