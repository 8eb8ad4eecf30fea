"""What `trimtab doctor` finds, and how it judges what it was told. Pure.

A finding is `ok`, a `note` (fine for now, or not ours to judge), a `warning` (as somebody wanted
it, but the group is not steered as usual), `wrong` (with what to do), or `skipped` where something
before it is wrong. Only what is wrong makes the doctor fail.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.assignor.clients.leader_plugin import read_subscriptions, subscribed_topics
from trimtab.assignor.model import Policy, TopicPartition
from trimtab.assignor.partition_index import Universe
from trimtab.assignor.rebalance.group_snapshot import cause, enroll
from trimtab.assignor.rebalance.user_data import MemberData, PlacementData
from trimtab.common.control_topics.values import GroupPlan
from trimtab.common.errors import BadPayload
from trimtab.sidecar.diagnostics.group_status import ago, fresh
from trimtab.sidecar.measurement.observation import Asked
from trimtab.sidecar.reporting.decision_record import VerdictRecord

PROTOCOL: Final = "trimtab"
"""Name of the assignor in the group protocol."""

FOLLOW: Final = "consumers follow the plan"
"""Name of the part that `of_following` judges."""

JUST_NOW: Final = 30.0
"""Seconds for which a plan may not have reached everybody."""

SKEW: Final = 5.0
"""Seconds by which clocks may differ."""


class Level(StrEnum):
    """How a finding is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    WRONG = "wrong"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a part, and what to do about it where something is to be done."""

    part: str
    level: Level
    says: str
    do: str = ""


@dataclass(frozen=True, slots=True)
class Seat:
    """A member as the coordinator tells of it: what it sent, and what it was given."""

    subscription: bytes
    assignment: bytes


def is_wrong(findings: Iterable[Finding]) -> bool:
    """Tell whether anything is wrong."""
    return any(finding.level is Level.WRONG for finding in findings)


def of_rights(what: str, needed: Sequence[str], have: Collection[str] | None) -> Finding:
    """Judge the operations that are allowed on something, None where nobody tells."""
    part = f"rights on {what}"
    if have is None:
        return Finding(part, Level.NOTE, "the broker does not tell what is allowed")
    missing = [operation for operation in needed if operation not in have]
    if missing:
        named = " and ".join(missing)
        return Finding(part, Level.WRONG, f"{named} not allowed", f"grant {named} on {what}")
    return Finding(part, Level.OK, f"{' and '.join(needed)} allowed")


def of_control(topic: str, partitions: int, policy: str | None) -> Finding:
    """Judge the shape of a control topic; `policy` is its cleanup.policy, None if not told."""
    part = f"control topic {topic}"
    if policy is not None and policy != "compact":
        return Finding(
            part,
            Level.WRONG,
            f"cleanup.policy is {policy}: what is in force may be deleted",
            f"kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact",
        )
    if partitions != 1:
        return Finding(part, Level.NOTE, f"{partitions} partitions, where one would do")
    if policy is None:
        return Finding(
            part,
            Level.NOTE,
            "one partition; DescribeConfigs is not allowed, so "
            "whether it is compacted is not known",
        )
    return Finding(part, Level.OK, "compacted, one partition")


def of_clock(now: float, told: Mapping[str, float]) -> Finding:
    """Judge our clock by times (seconds since the epoch) at which others say things happened."""
    ahead = {who: at - now for who, at in told.items() if at - now > SKEW}
    if not told:
        return Finding("clocks", Level.NOTE, "nobody has told a time yet")
    if ahead:
        who, by = max(ahead.items(), key=lambda item: item[1])
        return Finding(
            "clocks",
            Level.WRONG,
            f"{who} is {ago(by)} ahead of this machine",
            "let NTP set both clocks; ages of speeds and verdicts are wrong till then",
        )
    return Finding("clocks", Level.OK, f"{' and '.join(sorted(told))}: nobody is ahead of us")


def of_sidecar_clock(until: float, appended: float) -> Finding:
    """Judge the sidecar's clock: when it decided, and when the broker took the newest verdict.

    That may be another group's, which came later; so only a clock that is ahead can be told.
    """
    ahead = until - appended
    if ahead > SKEW:
        return Finding(
            "sidecar's clock",
            Level.WRONG,
            f"it is {ago(ahead)} ahead of the broker's",
            "let NTP set both clocks",
        )
    return Finding("sidecar's clock", Level.OK, "not ahead of the broker's")


def of_verdict(last: VerdictRecord | None, plan: GroupPlan | None, now: float) -> Finding:
    """Judge whether a sidecar is at work."""
    part = "sidecar"
    if last is None and plan is None:
        return Finding(part, Level.NOTE, "nothing steers this group: no plan and no verdict")
    if last is None:
        return Finding(
            part,
            Level.WRONG,
            "there is a plan, but no verdict",
            "start the sidecar; if it runs, its log says why verdicts are not kept",
        )
    said = f"{last.action}: {'; '.join(last.reasons)}"
    age, by = ago(now - last.until), last.by or "a sidecar"
    if not fresh(last, now):
        how = f"ended {age} ago" if last.ended else f"has been silent for {age}"
        return Finding(
            part,
            Level.WRONG,
            f"{by} {how}; its last verdict was {said}",
            "start it again, or look into its log: the plan stays, but nobody adapts it",
        )
    if last.trouble:
        return Finding(
            part,
            Level.WRONG,
            f"verdict {age} ago, with trouble: {'; '.join(last.trouble)}",
            "see to what it names; while it lasts the sidecar holds what it cannot know",
        )
    return Finding(part, Level.OK, f"{by} steers; verdict {age} ago: {said}")


def of_following(
    plan: GroupPlan | None,
    protocol: str,
    seats: Mapping[str, Seat],
    partitions: Iterable[TopicPartition],
    now: float,
) -> Finding:
    """Judge whether what the members were given was decided by the plan in force."""
    nothing = _unfollowed(plan, protocol, seats)
    if nothing is not None or plan is None:
        return nothing or Finding(FOLLOW, Level.NOTE, "there is no plan to follow")
    try:
        told, wanted = _told(seats), _wanted(plan, seats, partitions)
    except BadPayload as error:
        return Finding(
            FOLLOW, Level.WRONG, f"a member's data cannot be read: {error}", "upgrade this machine"
        )
    if told == {wanted}:
        return Finding(FOLLOW, Level.OK, f"all {len(seats)} have what epoch {plan.epoch} decided")
    if now - plan.time < JUST_NOW:
        return Finding(FOLLOW, Level.NOTE, f"epoch {plan.epoch} is new; ask again in a moment")
    return Finding(
        FOLLOW,
        Level.WRONG,
        f"what they read was not decided by epoch {plan.epoch}",
        "let trimtab.plan.topic of the consumers be plan-topic of the sidecar, and grant them Read "
        "on it; while the group rebalances, ask again",
    )


def _unfollowed(plan: GroupPlan | None, protocol: str, seats: Mapping[str, Seat]) -> Finding | None:
    """Return why nobody can follow a plan; None where everybody could."""
    if not seats:
        return Finding(FOLLOW, Level.NOTE, "the group has no members")
    if protocol != PROTOCOL:
        return Finding(
            FOLLOW,
            Level.WRONG if plan else Level.NOTE,
            f"the members agreed on the assignor {protocol or '?'!r}",
            "use trimtab.consumer_sdk.Consumer or a plugin in all of them; till then the group "
            "can be measured, but not placed or drained",
        )
    if not all(seat.assignment for seat in seats.values()):
        return Finding(FOLLOW, Level.NOTE, "the group rebalances; ask again in a moment")
    return None


def of_pause(by: str, paused: Collection[str], end: str) -> tuple[Finding, ...]:
    """Judge directions ("in", "out") in which nobody scales because `by` says so; `end` ends it."""
    if not paused:
        return ()
    named = " and ".join(sorted(paused))
    return (Finding("paused", Level.WARNING, f"scaling {named} is paused by {by}", end),)


def of_count(workload: str, asked: Asked, least: int) -> tuple[Finding, ...]:
    """Judge a count of 0; `least` is the setting `min`, with which none may be as it should."""
    if asked.count or (asked.ours and least == 0):
        return ()
    if not asked.traced and least == 0:
        said = f"{workload} has 0 replicas, and Kubernetes does not tell who set them"
        return (Finding("paused", Level.NOTE, f"{said}; the sidecar's verdict says what it makes"),)
    return (
        Finding(
            "paused",
            Level.WARNING,
            f"{workload} has 0 replicas, set by {asked.by}: nothing is started until somebody sets "
            "another count",
            f"kubectl scale {workload} --replicas={max(1, least)}",
        ),
    )


def of_access(verb: str, resource: str, *, allowed: bool) -> Finding:
    """Judge a verb on a Kubernetes resource."""
    part = "Kubernetes rights"
    if allowed:
        return Finding(part, Level.OK, f"{verb} {resource} allowed")
    return Finding(
        part,
        Level.WRONG,
        f"{verb} {resource} not allowed",
        f"give the sidecar's role {verb} on {resource} (docs/operate.md has the least role)",
    )


def _told(seats: Mapping[str, Seat]) -> set[str]:
    """Return the decisions that the members were told of."""
    given = (ConsumerProtocolAssignment.decode(s.assignment) for s in seats.values())
    return {PlacementData.decode(assignment.user_data).decision for assignment in given}


def _wanted(
    plan: GroupPlan, seats: Mapping[str, Seat], partitions: Iterable[TopicPartition]
) -> str:
    """Return the decision that a leader comes to with this plan, these members and partitions."""
    subscriptions = read_subscriptions({name: s.subscription for name, s in seats.items()})
    topics = subscribed_topics(subscriptions)
    universe = Universe.named(p for p in partitions if p.topic in topics)
    data = {name: MemberData.decode(s.user_data) for name, s in subscriptions.items()}
    roll = enroll(subscriptions, data, universe)
    policy = Policy(plan.heuristic, plan.capacity, plan.headroom)
    return cause(roll.members(plan), universe, plan, policy)
