"""Findings of `trimtab doctor` and the checks that produce them. Pure.

Levels: `ok`; `note` (acceptable for now, or undecidable); `warning` (intended by an operator, but
scaling is restricted); `wrong` (with a remedy); `skipped` (an earlier check failed). Only `wrong`
makes the command fail.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.assignor.clients.leader_plugin import decode_subscriptions, subscribed_topics
from trimtab.assignor.model import PlacementPolicy, TopicPartition
from trimtab.assignor.partition_index import PartitionIndex
from trimtab.assignor.rebalance.group_snapshot import (
    compute_decision_fingerprint,
    snapshot_from_subscriptions,
)
from trimtab.assignor.rebalance.user_data import AssignmentUserData, MemberUserData
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.errors import InvalidPayloadError
from trimtab.sidecar.diagnostics.group_status import format_age, is_fresh
from trimtab.sidecar.measurement.observation import RequestedReplicas
from trimtab.sidecar.reporting.decision_record import DecisionRecord

ASSIGNOR_NAME: Final = "trimtab"
"""Name of the assignor in the group protocol."""

PLAN_FOLLOWED_CHECK: Final = "consumers follow the plan"
"""Name of the part that `check_plan_followed` judges."""

PLAN_PROPAGATION_S: Final = 30.0
"""Seconds for which a plan may not have reached everybody."""

MAX_CLOCK_SKEW_S: Final = 5.0
"""Seconds by which clocks may differ."""


class FindingLevel(StrEnum):
    """Severity of a finding."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    WRONG = "wrong"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of checking `part`, with the remedy in `do` if one is needed."""

    part: str
    level: FindingLevel
    says: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    """A group member's subscription and assignment bytes, as reported by the coordinator."""

    subscription: bytes
    assignment: bytes


def has_failed_checks(findings: Iterable[Finding]) -> bool:
    """Tell whether any check failed."""
    return any(finding.level is FindingLevel.WRONG for finding in findings)


def check_rights(resource: str, needed: Sequence[str], allowed: Collection[str] | None) -> Finding:
    """Judge the operations that are allowed on something, None where nobody tells."""
    part = f"rights on {resource}"
    if allowed is None:
        return Finding(part, FindingLevel.NOTE, "the broker does not tell what is allowed")
    missing = [operation for operation in needed if operation not in allowed]
    if missing:
        named = " and ".join(missing)
        return Finding(part, FindingLevel.WRONG, f"{named} not allowed", f"grant {named} on {resource}")
    return Finding(part, FindingLevel.OK, f"{' and '.join(needed)} allowed")


def check_control_topic(topic: str, partitions: int, policy: str | None) -> Finding:
    """Judge the shape of a control topic; `policy` is its cleanup.policy, None if not told."""
    part = f"control topic {topic}"
    if policy is not None and policy != "compact":
        return Finding(
            part,
            FindingLevel.WRONG,
            f"cleanup.policy is {policy}: what is in force may be deleted",
            f"kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact",
        )
    if partitions != 1:
        return Finding(part, FindingLevel.NOTE, f"{partitions} partitions, where one would do")
    if policy is None:
        return Finding(
            part,
            FindingLevel.NOTE,
            "one partition; DescribeConfigs is not allowed, so whether it is compacted is not known",
        )
    return Finding(part, FindingLevel.OK, "compacted, one partition")


def check_clock(now: float, reported_times: Mapping[str, float]) -> Finding:
    """Judge our clock by times (seconds since the epoch) at which others say things happened."""
    ahead = {who: at - now for who, at in reported_times.items() if at - now > MAX_CLOCK_SKEW_S}
    if not reported_times:
        return Finding("clocks", FindingLevel.NOTE, "nobody has told a time yet")
    if ahead:
        who, by = max(ahead.items(), key=lambda item: item[1])
        return Finding(
            "clocks",
            FindingLevel.WRONG,
            f"{who} is {format_age(by)} ahead of this machine",
            "let NTP set both clocks; ages of speeds and verdicts are wrong till then",
        )
    return Finding(
        "clocks", FindingLevel.OK, f"{' and '.join(sorted(reported_times))}: nobody is ahead of us"
    )


def check_sidecar_clock(until: float, appended: float) -> Finding:
    """Judge the sidecar's clock: when it decided, and when the broker took the newest verdict.

    That may be another group's, which came later; so only a clock that is ahead can be told.
    """
    ahead = until - appended
    if ahead > MAX_CLOCK_SKEW_S:
        return Finding(
            "sidecar's clock",
            FindingLevel.WRONG,
            f"it is {format_age(ahead)} ahead of the broker's",
            "let NTP set both clocks",
        )
    return Finding("sidecar's clock", FindingLevel.OK, "not ahead of the broker's")


def check_last_decision(last: DecisionRecord | None, plan: GroupPlan | None, now: float) -> Finding:
    """Judge whether a sidecar is at work."""
    part = "sidecar"
    if last is None and plan is None:
        return Finding(part, FindingLevel.NOTE, "nothing steers this group: no plan and no verdict")
    if last is None:
        return Finding(
            part,
            FindingLevel.WRONG,
            "there is a plan, but no verdict",
            "start the sidecar; if it runs, its log says why verdicts are not kept",
        )
    said = f"{last.action}: {'; '.join(last.reasons)}"
    age, by = format_age(now - last.until), last.by or "a sidecar"
    if not is_fresh(last, now):
        how = f"ended {age} ago" if last.ended else f"has been silent for {age}"
        return Finding(
            part,
            FindingLevel.WRONG,
            f"{by} {how}; its last verdict was {said}",
            "start it again, or look into its log: the plan stays, but nobody adapts it",
        )
    if last.trouble:
        return Finding(
            part,
            FindingLevel.WRONG,
            f"verdict {age} ago, with trouble: {'; '.join(last.trouble)}",
            "see to what it names; while it lasts the sidecar holds what it cannot know",
        )
    return Finding(part, FindingLevel.OK, f"{by} steers; verdict {age} ago: {said}")


def check_plan_followed(
    plan: GroupPlan | None,
    protocol: str,
    members: Mapping[str, MemberMetadata],
    partitions: Iterable[TopicPartition],
    now: float,
) -> Finding:
    """Judge whether what the members were given was decided by the plan in force."""
    nothing = _explain_not_followable(plan, protocol, members)
    if nothing is not None or plan is None:
        return nothing or Finding(PLAN_FOLLOWED_CHECK, FindingLevel.NOTE, "there is no plan to follow")
    try:
        told, wanted = (
            _decode_member_decisions(members),
            _compute_expected_decision(plan, members, partitions),
        )
    except InvalidPayloadError as error:
        return Finding(
            PLAN_FOLLOWED_CHECK,
            FindingLevel.WRONG,
            f"a member's data cannot be read: {error}",
            "upgrade this machine",
        )
    if told == {wanted}:
        return Finding(
            PLAN_FOLLOWED_CHECK, FindingLevel.OK, f"all {len(members)} have what epoch {plan.epoch} decided"
        )
    if now - plan.time < PLAN_PROPAGATION_S:
        return Finding(
            PLAN_FOLLOWED_CHECK, FindingLevel.NOTE, f"epoch {plan.epoch} is new; ask again in a moment"
        )
    return Finding(
        PLAN_FOLLOWED_CHECK,
        FindingLevel.WRONG,
        f"what they read was not decided by epoch {plan.epoch}",
        "let trimtab.plan.topic of the consumers be plan-topic of the sidecar, and grant them Read "
        "on it; while the group rebalances, ask again",
    )


def _explain_not_followable(
    plan: GroupPlan | None, protocol: str, members: Mapping[str, MemberMetadata]
) -> Finding | None:
    """Return why nobody can follow a plan; None where everybody could."""
    if not members:
        return Finding(PLAN_FOLLOWED_CHECK, FindingLevel.NOTE, "the group has no members")
    if protocol != ASSIGNOR_NAME:
        return Finding(
            PLAN_FOLLOWED_CHECK,
            FindingLevel.WRONG if plan else FindingLevel.NOTE,
            f"the members agreed on the assignor {protocol or '?'!r}",
            "use trimtab.consumer_sdk.Consumer or a plugin in all of them; till then the group "
            "can be measured, but not placed or drained",
        )
    if not all(seat.assignment for seat in members.values()):
        return Finding(PLAN_FOLLOWED_CHECK, FindingLevel.NOTE, "the group rebalances; ask again in a moment")
    return None


def check_pause(by: str, paused: Collection[str], end: str) -> tuple[Finding, ...]:
    """Judge directions ("scale-up", "scale-down") in which nobody scales because `by` says so.

    `end` ends it.
    """
    if not paused:
        return ()
    named = " and ".join(sorted(paused))
    return (Finding("paused", FindingLevel.WARNING, f"{named} is paused by {by}", end),)


def check_replica_count(
    workload: str, requested: RequestedReplicas, min_replicas: int
) -> tuple[Finding, ...]:
    """Judge a count of 0.

    `min_replicas` is the setting `min`, with which none may be as it should.
    """
    if requested.count or (requested.is_ours and min_replicas == 0):
        return ()
    if not requested.is_requester_known and min_replicas == 0:
        said = f"{workload} has 0 replicas, and Kubernetes does not tell who set them"
        return (Finding("paused", FindingLevel.NOTE, f"{said}; the sidecar's verdict says what it makes"),)
    return (
        Finding(
            "paused",
            FindingLevel.WARNING,
            f"{workload} has 0 replicas, set by {requested.requested_by}: nothing is started "
            "until somebody sets "
            "another count",
            f"kubectl scale {workload} --replicas={max(1, min_replicas)}",
        ),
    )


def check_access(verb: str, resource: str, *, allowed: bool) -> Finding:
    """Judge a verb on a Kubernetes resource."""
    part = "Kubernetes rights"
    if allowed:
        return Finding(part, FindingLevel.OK, f"{verb} {resource} allowed")
    return Finding(
        part,
        FindingLevel.WRONG,
        f"{verb} {resource} not allowed",
        f"give the sidecar's role {verb} on {resource} (docs/kubernetes.md has the least role)",
    )


def _decode_member_decisions(members: Mapping[str, MemberMetadata]) -> set[str]:
    """Return the decisions that the members were told of."""
    given = (ConsumerProtocolAssignment.decode(s.assignment) for s in members.values())
    return {AssignmentUserData.decode(assignment.user_data).decision_fingerprint for assignment in given}


def _compute_expected_decision(
    plan: GroupPlan, members: Mapping[str, MemberMetadata], partitions: Iterable[TopicPartition]
) -> str:
    """Return the decision that a leader comes to with this plan, these members and partitions."""
    subscriptions = decode_subscriptions({name: s.subscription for name, s in members.items()})
    topics = subscribed_topics(subscriptions)
    universe = PartitionIndex.from_partitions(p for p in partitions if p.topic in topics)
    data = {name: MemberUserData.decode(s.user_data) for name, s in subscriptions.items()}
    roll = snapshot_from_subscriptions(subscriptions, data, universe)
    policy = PlacementPolicy(plan.heuristic, plan.capacity, plan.headroom)
    return compute_decision_fingerprint(roll.resolve_members(plan), universe, plan, policy)
