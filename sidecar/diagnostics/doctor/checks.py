"""Findings of `trimtab doctor`, and the checks of control topics, clocks, sidecar and plan. Pure.

Levels: `ok`; `note` (acceptable for now, or undecidable); `warning` (as of a condition); `failed` (with a
remedy, or as of a critical condition); `skipped` (an earlier check failed). Only `failed` makes the command
fail.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np

from trimtab.assignor.clients.leader_plugin import decode_member_data, decode_subscriptions, subscribed_topics
from trimtab.assignor.model import UNASSIGNED, PlacementPolicy, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex, index_owners
from trimtab.assignor.model.problem import IndexedGroup
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder, decode_assignment
from trimtab.assignor.rebalance.group_snapshot import (
    GroupSnapshot,
    compute_decision_fingerprint,
    snapshot_from_subscriptions,
)
from trimtab.assignor.rebalance.plan_target import match_consumers
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.errors import InvalidPayloadError
from trimtab.common.units import format_age, format_count
from trimtab.sidecar.decision.condition import Condition
from trimtab.sidecar.diagnostics.group_status import is_fresh
from trimtab.sidecar.records.decision_record import DecisionRecord

ASSIGNOR_NAME: Final = "trimtab"  # the assignor's name in the group protocol
PLAN_FOLLOWED_CHECK: Final = "consumers follow the plan"
REBALANCING: Final = "the group is rebalancing; run the doctor again"
PLAN_PROPAGATION_S: Final = 30.0  # consumers read the plan topic and rebalance within this time
MAX_CLOCK_SKEW_S: Final = 5.0  # below it the age of a decision is still right to an interval


class FindingLevel(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `remedy` is empty if none is needed."""

    check: str
    level: FindingLevel
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A group member's subscription and assignment bytes, as reported by the coordinator."""

    subscription: bytes
    assignment: bytes


def passed(check: str, message: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(check, FindingLevel.OK, message)


def noted(check: str, message: str) -> Finding:
    """Return a finding that is acceptable for now, or undecidable."""
    return Finding(check, FindingLevel.NOTE, message)


def failed(check: str, message: str, remedy: str) -> Finding:
    """Return a finding that makes the command fail."""
    return Finding(check, FindingLevel.FAILED, message, remedy)


def has_failed_checks(findings: Iterable[Finding]) -> bool:
    """Return whether any check failed."""
    return any(finding.level is FindingLevel.FAILED for finding in findings)


def name_operations(operations: Collection[Any] | None) -> frozenset[str] | None:
    """Return librdkafka's operations as Kafka's tools write them: DESCRIBE_CONFIGS is DescribeConfigs."""
    return None if operations is None else frozenset(o.name.title().replace("_", "") for o in operations)


def check_rights(resource: str, needed: Sequence[str], allowed: Collection[str] | None) -> Finding:
    """Check the allowed operations on a resource; None if the broker does not report them."""
    check = f"rights on {resource}"
    if allowed is None:
        return noted(check, "the broker does not report the allowed operations")
    missing = " and ".join(operation for operation in needed if operation not in allowed)
    if missing:
        return failed(check, f"{missing} not allowed", f"grant {missing} on {resource}")
    return passed(check, f"{' and '.join(needed)} allowed")


def check_control_topic(topic: str, partitions: int, policy: str | None) -> Finding:
    """Check a control topic; `policy` is its cleanup.policy, None if it is not readable."""
    check = f"control topic {topic}"
    if policy is not None and policy != "compact":
        return failed(
            check,
            f"cleanup.policy is {policy}: the current value of a key may be deleted",
            f"kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact",
        )
    if partitions != 1:
        return noted(check, f"{format_count(partitions, 'partition')}; one is enough")
    if policy is None:
        return noted(check, "one partition; its cleanup.policy is unknown: DescribeConfigs is not allowed")
    return passed(check, "compacted, one partition")


def check_clock(now: float, reported_times: Mapping[str, float]) -> Finding:
    """Check this machine's clock against times (seconds since the epoch) of past events."""
    if not reported_times:
        return noted("clocks", "no timestamp to compare with yet")
    # only a clock behind is detectable: an event in the past may just be old
    source, latest = max(reported_times.items(), key=lambda item: item[1])
    if latest - now > MAX_CLOCK_SKEW_S:
        return failed(
            "clocks",
            f"{source} is {format_age(latest - now)} ahead of this machine",
            "synchronize both clocks by NTP; until then ages of write rates and decisions are wrong",
        )
    return passed("clocks", f"this machine is behind none of: {', '.join(sorted(reported_times))}")


def check_sidecar_clock(until: float, appended: float) -> Finding:
    """Check the time of the last decision against the broker's append time of the newest record."""
    # the newest record may be another group's, and later: only a clock ahead is detectable
    ahead = until - appended
    if ahead > MAX_CLOCK_SKEW_S:
        message = f"{format_age(ahead)} ahead of the broker's clock"
        return failed("sidecar clock", message, "synchronize both clocks by NTP")
    return passed("sidecar clock", "not ahead of the broker's clock")


def check_last_decision(last: DecisionRecord | None, plan: GroupPlan | None, now: float) -> Finding:
    """Check whether a sidecar manages the group, by its last decision."""
    check = "sidecar"
    if last is None and plan is None:
        return noted(check, "no sidecar manages this group: no plan, no decision")
    if last is None:
        return failed(
            check,
            "a plan exists, but no decision",
            "start the sidecar; if it is running, its log says why it records no decisions",
        )
    decision = f"{last.action}: {last.reason_text}"
    age = format_age(now - last.until)
    sidecar = last.author or "the sidecar"
    if not is_fresh(last, now):
        end = f"ended {age} ago" if last.is_final else f"has been silent for {age}"
        return failed(
            check,
            f"{sidecar} {end}; its last decision was {decision}",
            "start it again, or read its log; until then the plan stays as it is",
        )
    carrier = f"; {last.carrier.text}" if last.carrier is not None and last.carrier.is_steering else ""
    return passed(check, f"managed by {sidecar}; decision {age} ago: {decision}{carrier}")


def report_condition(condition: Condition, now: float) -> Finding:
    """Return a condition as a finding: a critical one fails the command."""
    level = FindingLevel.FAILED if condition.severity == "critical" else FindingLevel.WARNING
    unsure = ", not known now" if condition.status == "Unknown" else ""
    message = f"{condition.message} (for {format_age(now - condition.since)}{unsure})"
    return Finding(condition.type, level, message, condition.remedy)


def check_plan_followed(
    plan: GroupPlan | None,
    protocol: str,
    members: Mapping[str, MemberMetadata],
    partitions: Iterable[TopicPartition],
    now: float,
) -> Finding:
    """Check whether the members' assignment was computed from the current plan."""
    check = PLAN_FOLLOWED_CHECK
    finding = _check_prerequisites(plan, protocol, members) or _check_faults(members)
    if finding is not None or plan is None:
        return finding or noted(check, "no plan exists")
    decisions = {decision.decision_fingerprint for decision in _decode_decisions(members)}
    group = _snapshot_group(members, partitions)
    if len(decisions) == 1 and decisions <= set(_list_fingerprints(plan, group)):
        having = format_count(len(members), "member has", "members have")
        assigned = f"{'all ' if len(members) > 1 else ''}{having} the assignment of epoch {plan.epoch}"
        if elsewhere := _count_elsewhere(plan, group, members):
            moved = format_count(elsewhere, "partition is", "partitions are")
            return noted(check, f"{assigned}; {moved} on other consumers than planned")
        return passed(check, assigned)
    if now - plan.time < PLAN_PROPAGATION_S:
        return noted(check, f"epoch {plan.epoch} is new; run the doctor again in {PLAN_PROPAGATION_S:.0f} s")
    return failed(
        check,
        f"the assignment was not computed from epoch {plan.epoch}",
        "set the consumers' trimtab.plan.topic to the sidecar's plan-topic and grant them Read on it; "
        "if the group is rebalancing, run the doctor again",
    )


def check_members(protocol: str, members: Mapping[str, MemberMetadata]) -> Iterable[Finding]:
    """Check whether a leader can read each member's subscription and user data."""
    if protocol != ASSIGNOR_NAME:
        return
    decoder = SubscriptionDecoder()
    for name, member in sorted(members.items()):
        try:
            MemberUserData.decode(decoder.decode(member.subscription).user_data)
        except InvalidPayloadError as error:
            remedy = "stop or upgrade that client; its rights are those of the group (Read)"
            yield failed(f"member {name}", f"{error}; it counts as a member without user data", remedy)


def _check_prerequisites(
    plan: GroupPlan | None, protocol: str, members: Mapping[str, MemberMetadata]
) -> Finding | None:
    check = PLAN_FOLLOWED_CHECK
    if not members:
        return noted(check, "the group has no members")
    if not protocol:  # brokers tell it of stable groups only
        return noted(check, REBALANCING)
    if protocol != ASSIGNOR_NAME:
        level = FindingLevel.FAILED if plan else FindingLevel.NOTE
        remedy = (
            "use trimtab.consumer_sdk.Consumer or the assignor plugin in every consumer; without it "
            "the sidecar measures the group, but cannot place partitions or drain consumers"
        )
        return Finding(check, level, f"the members use the assignor {protocol!r}", remedy)
    if not all(member.assignment for member in members.values()):
        return noted(check, REBALANCING)
    return None


def check_access(verb: str, resource: str, *, allowed: bool) -> Finding:
    """Check a verb on a Kubernetes resource."""
    check = "Kubernetes rights"
    if allowed:
        return passed(check, f"{verb} {resource} allowed")
    remedy = f"allow {verb} on {resource} in the sidecar's role; docs/kubernetes.md has the least role"
    return failed(check, f"{verb} {resource} not allowed", remedy)


def _check_faults(members: Mapping[str, MemberMetadata]) -> Finding | None:
    check = PLAN_FOLLOWED_CHECK
    try:
        faults = sorted({decision.fault for decision in _decode_decisions(members)} - {""})
    except InvalidPayloadError as error:
        return failed(check, f"unreadable member metadata: {error}", "upgrade trimtab on this machine")
    remedy = "install what is missing in every consumer, or choose another heuristic for the sidecar"
    return failed(check, f"the leader's decision failed: {'; '.join(faults)}", remedy) if faults else None


def _decode_decisions(members: Mapping[str, MemberMetadata]) -> list[AssignmentUserData]:
    return [AssignmentUserData.decode(decode_assignment(m.assignment).user_data) for m in members.values()]


def _snapshot_group(
    members: Mapping[str, MemberMetadata], partitions: Iterable[TopicPartition]
) -> GroupSnapshot:
    # as the group's leader sees it: from the same subscriptions and partitions
    subscriptions = decode_subscriptions({name: m.subscription for name, m in members.items()})
    topics = subscribed_topics(subscriptions)
    index = PartitionIndex.from_partitions(p for p in partitions if p.topic in topics)
    data = {name: decode_member_data(name, s.user_data) for name, s in subscriptions.items()}
    return snapshot_from_subscriptions(subscriptions, data, index)


def _list_fingerprints(plan: GroupPlan, group: GroupSnapshot) -> Iterator[str]:
    """Yield the fingerprints of the plan's decision, with members that are overdue and without."""
    policy = PlacementPolicy(plan.heuristic, plan.capacity, plan.headroom, co_partitioned=plan.co_partitioned)
    members, index = group.resolve_members(plan), group.partition_index
    for overdue in (False, True):
        yield compute_decision_fingerprint(members, index, plan, policy, members_overdue=overdue)


def _count_elsewhere(plan: GroupPlan, group: GroupSnapshot, members: Mapping[str, MemberMetadata]) -> int:
    """Return how many partitions are not assigned to the consumer of the plan's target."""
    if plan.target is None:
        return 0
    index = group.partition_index
    assigned = [decode_assignment(members[name].assignment).owned for name in group.member_ids]
    owner = index_owners(*index.locate_owned(assigned), len(index))
    match = match_consumers(plan.target, IndexedGroup(group.resolve_members(plan), index, owner))
    return int(np.count_nonzero((match.consumer != UNASSIGNED) & (match.resolve_target() != owner)))
