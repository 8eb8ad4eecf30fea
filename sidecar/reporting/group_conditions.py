"""Finds the conditions of a group: from its observation, the policy, the decision and its memory. Pure.

1. One function for each type, in `FINDERS`. It returns reason, message and remedy, or None.
2. While plan, replicas or group are unknown only that is found: what was known before becomes unknown.
3. What lasts a moment in normal work is none: a rebalance, a drain, a replica that starts.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeAlias

from trimtab.assignor.model import TopicPartition
from trimtab.common.units import format_bytes, format_count, format_first, format_name_list, format_rate
from trimtab.sidecar.decision.condition import MAX_MESSAGE_CHARS, Condition, ConditionType, build_condition
from trimtab.sidecar.decision.decide import DRAIN_RETRIED, RESTART_BACKOFF_RESET_S
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingDecision
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.decision.external_scaling import explain_external_pause, explain_missing_replicas
from trimtab.sidecar.decision.group_model import GroupModel, build_group_model, exceeds
from trimtab.sidecar.decision.load_rules import UNSTEERED
from trimtab.sidecar.decision.running_replicas import describe_crowded_replica
from trimtab.sidecar.measurement.freshness import estimate_freshness
from trimtab.sidecar.measurement.halts import describe_halts
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.hpa_behavior import Direction
from trimtab.sidecar.model.observation import Observation, explain_unknown_state
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.records.plan_outcome import PlanOutcome

MAX_NAMED: Final = 3  # in a message
MIN_REPLACEMENTS: Final = 3  # of dead replicas in a row, that are no accident
READ_LOGS: Final = "read its log for a record that fails or a slow table; more consumers would not help"

FoundCondition: TypeAlias = tuple[str, str, str] | None
"""Reason, message and remedy."""


@dataclass(frozen=True)  # without slots, which hold no cached property
class GroupFacts:
    """What an iteration knows of a group, after its decision was carried out."""

    observation: Observation
    policy: AutoscalingPolicy
    decision: ScalingDecision
    memory: DecisionMemory
    now: float  # seconds since the epoch
    carrier: CarrierStatus | None = None
    outcome: PlanOutcome | None = None

    @property
    def metrics(self) -> DecisionMetrics:
        """Figures of the decision."""
        return self.decision.metrics

    @cached_property
    def scheduled_policy(self) -> AutoscalingPolicy:
        """The policy with its schedule."""
        return self.policy.apply_schedule(self.now)

    @cached_property
    def model(self) -> GroupModel:
        """The group as the decision saw it; only where there is a plan."""
        plan = self.observation.plan
        assert plan is not None, "without a plan no finder is asked that needs the model"
        return build_group_model(self.observation, self.scheduled_policy, plan, self.memory.last_owners)

    @property
    def is_observed(self) -> bool:
        """Whether plan, replicas and group are known."""
        return explain_unknown_state(self.observation) is None


def find_conditions(facts: GroupFacts) -> tuple[Condition, ...]:
    """Return the conditions that hold, without their begin."""
    finders = {**FINDERS, **MODEL_FINDERS} if facts.observation.plan is not None else FINDERS
    if not facts.is_observed:
        finders = {kind: FINDERS[kind] for kind in UNOBSERVED_TYPES}
    return tuple(one for kind, finder in finders.items() for one in build_found(kind, finder(facts)))


def find_failed_requests(errors: Iterable[str]) -> FoundCondition:
    """Find errors alone, as of a standby, which decides nothing."""
    text = "; ".join(dict.fromkeys(errors))
    remedy = "mend what the message names; until then nothing changes that depends on it"
    return ("Errors", text, remedy) if text else None


def find_halted_partitions(halts: Mapping[TopicPartition, str]) -> FoundCondition:
    """Find partitions that their consumer does not read for an error."""
    remedy = "mend what it names; tables are tried again by themselves, partitions when assigned"
    return ("Halted", describe_halts(halts, MAX_MESSAGE_CHARS), remedy) if halts else None


def build_found(kind: ConditionType, found: FoundCondition) -> tuple[Condition, ...]:
    """Return what was found as a condition; empty for None."""
    return () if found is None else (build_condition(kind, *found),)


def _find_unknown_group(facts: GroupFacts) -> FoundCondition:
    unknown = explain_unknown_state(facts.observation)
    if unknown is None:
        return None
    return "NotObserved", "; ".join(unknown), "mend what the message names; until then nothing is decided"


def _find_failed_requests(facts: GroupFacts) -> FoundCondition:
    carrier = () if facts.carrier is None else facts.carrier.errors
    return find_failed_requests((*facts.observation.errors, *carrier))


def _find_failed_decision(facts: GroupFacts) -> FoundCondition:
    failure, action = facts.decision.failure, str(facts.decision.action)
    if not failure and _lacks_replica(facts):  # between two attempts nothing is better
        failure, action = facts.memory.failed_start, "the start of a replica"
    what = f"{action} was not carried out: {failure}"
    return ("NotCarriedOut", what, "mend the cause; it is tried again by itself") if failure else None


def _lacks_replica(facts: GroupFacts) -> bool:
    running, planned = facts.metrics.running_replicas, facts.metrics.planned_replicas
    return bool(facts.observation.pending_restarts) or (running or 0) < (planned or 0)


def _find_stuck_partitions(facts: GroupFacts) -> FoundCondition:
    stuck, owners = _list_stuck(facts)
    wholly_stuck = _list_stuck_consumers(facts)
    stuck = [p for p in stuck if owners.get(p) not in wholly_stuck]
    if not stuck:
        return None
    owner = owners.get(stuck[0], "no consumer")
    window = facts.policy.scale_up_evaluation_window
    waiting = format_bytes(sum(facts.model.write_rates[p].backlog_bytes or 0.0 for p in stuck))
    message = f"{format_first(stuck)} seems stuck: {owner} has committed nothing of it for {window:.0f} s"
    return "NoCommits", f"{message}, {waiting} waiting", READ_LOGS


def _find_stuck_consumers(facts: GroupFacts) -> FoundCondition:
    names = sorted(_list_stuck_consumers(facts))
    if not names:
        return None
    have = "has" if len(names) == 1 else "have"
    window = facts.policy.scale_up_evaluation_window
    message = f"{_list_names(names)} {have} committed nothing of any partition for {window:.0f} s"
    return "NoProgress", message, READ_LOGS


def _list_stuck(facts: GroupFacts) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
    """Return the stuck partitions, the largest backlog first, and the owners of all."""
    model = facts.model
    # A replica that started a moment ago may yet write its first batch, on a busy machine for long.
    starting = model.list_started_since(facts.now - facts.policy.startup_timeout)
    owners = {p: m.instance for m in facts.observation.group.members for p in m.owned_partitions}
    stuck = facts.observation.stuck_partitions - facts.observation.halts.keys()
    told = [p for p in stuck if owners.get(p) not in starting]
    return sorted(told, key=lambda p: (-(model.write_rates[p].backlog_bytes or 0.0), p)), owners


def _list_stuck_consumers(facts: GroupFacts) -> frozenset[str]:
    """Return the consumers of several partitions with backlog, all of which are stuck."""
    stuck, owners = _list_stuck(facts)
    loads = facts.model.write_rates
    behind = Counter(name for p, name in owners.items() if p in loads and loads[p].backlog_bytes)
    counts = Counter(owners[p] for p in stuck if p in owners)
    return frozenset(name for name, n in counts.items() if n > 1 and n >= behind[name])


def _find_nothing_consumed(facts: GroupFacts) -> FoundCondition:
    """Return that nobody owns a partition; who owns one and reads nothing is stuck."""
    waiting, model = facts.metrics.overdue_backlog_bytes, facts.model
    has_owner = any(member.owned_partitions for member in facts.observation.group.members)
    if not waiting or has_owner or model.is_share_group:
        return None
    is_starting = model.list_started_since(facts.now - facts.policy.startup_timeout)
    if is_starting and not facts.memory.replacements:
        return None
    message = f"no consumer owns a partition, {format_bytes(waiting)} wait"
    return "NoOwners", message, "start the consumers, or read their logs for why they do not join"


def _find_open_transactions(facts: GroupFacts) -> FoundCondition:
    held = facts.observation.open_transactions
    if not held:
        return None
    names = sorted(held)
    message = f"an open transaction hides the end of {format_first(names)} from its readers: {held[names[0]]}"
    # no broker tells how a consumer reads
    remedy = "end or abort it (kafka-transactions.sh find-hanging, abort); with read_uncommitted all is well"
    return "LastStableOffset", message, remedy


def _find_overload(facts: GroupFacts) -> FoundCondition:
    fill = facts.metrics.max_fill or 0.0
    if not exceeds(fill, 1.0):
        return None
    model = facts.model
    fullest = max(model.members, key=model.compute_fill, default="")
    named = (
        f"the fullest consumer, {fullest},"
        if fullest and not model.is_share_group
        else "the fullest consumer"
    )
    message = f"{named} is at {fill:.0%} of its capacity and falls behind"
    return "AboveCapacity", message, "if it lasts: raise max, or split the keys of its largest partition"


def _find_oversized_partition(facts: GroupFacts) -> FoundCondition:
    message, _, remedy = (facts.model.describe_oversized_partitions() or "").rpartition(": ")
    return ("AboveCapacity", message, remedy) if message else None


def _find_overdue_backlog(facts: GroupFacts) -> FoundCondition:
    m = facts.metrics
    if not m.overdue_backlog_bytes:
        return None
    read, written = m.consumption_rate, m.write_rate
    rates = f"; consuming {format_rate(read)}, writing {format_rate(written)}"
    grace = facts.policy.catch_up.backlog_grace
    message = f"{format_bytes(m.overdue_backlog_bytes)} wait longer than {grace:.0f} s{rates}"
    return "Overdue", message, "if it lasts: trimtab explain tells what keeps the count as it is"


def _find_missed_freshness(facts: GroupFacts) -> FoundCondition:
    slo, freshness = facts.policy.freshness_slo, estimate_freshness(facts.memory.age_samples)
    miss = None if slo is None or freshness is None else freshness.describe_slo_miss(slo)
    return None if miss is None else ("AboveObjective", miss, "see docs/sidecar.md, freshness")


def _find_unknown_rates(facts: GroupFacts) -> FoundCondition:
    m, memory = facts.metrics, facts.memory
    # a rate takes some readings after the start
    is_early = memory.unknown_iterations < facts.policy.fallback.failure_threshold
    if not m.unknown_partitions or (is_early and m.unknown_partitions == m.partitions):
        return None
    message = (
        f"the write rate of {m.unknown_partitions} of {format_count(m.partitions, 'partition')} is unknown"
    )
    return "NotMeasured", f"{message}: no scale-down", "run trimtab doctor for the missing answer or right"


def _find_suspension(facts: GroupFacts) -> FoundCondition:
    suspension = facts.memory.scale_up_suspension
    if suspension is None:
        return None
    if suspension.limit is not None and suspension.limit.is_trial:
        return (
            "Measuring",
            suspension.reason,
            "wait: if fewer read no less, they stay; otherwise all run again",
        )
    message = f"{suspension.reason}; retried in {max(0.0, suspension.until - facts.now):.0f} s"
    return "NoEffect", message, "check the sink, the network and the consumers' logs: they are the limit"


def _find_limit(facts: GroupFacts) -> FoundCondition:
    m, policy = facts.metrics, facts.scheduled_policy
    needed, planned = m.recommended_replicas, m.planned_replicas
    if needed is None or planned is None or needed <= planned:
        return _find_partition_limit(facts, needed)
    if needed > policy.max_replicas:
        return (
            "Max",
            f"the load needs {needed}, max is {policy.max_replicas}",
            "raise max, or consumers' capacity",
        )
    pause = facts.model.explain_pause(Direction.UP)
    return None if pause is None else ("Paused", f"the load needs {needed}: {pause}", "end the pause")


def _find_partition_limit(facts: GroupFacts, needed: int | None) -> FoundCondition:
    """Return why a queue on a consumer group cannot use another worker."""
    queue, partitions = facts.observation.queue, len(facts.model.write_rates)
    if queue is None or facts.model.is_share_group or needed is None or needed < partitions:
        return None
    if partitions >= facts.scheduled_policy.max_replicas:
        return None
    message = f"{queue.kind} allows one worker per partition, and the topic has {partitions}"
    return "PartitionCount", message, "add partitions, or concurrency per worker"


def _find_blocked_scale_down(facts: GroupFacts) -> FoundCondition:
    m, model = facts.metrics, facts.model
    if any(DRAIN_RETRIED in reason for reason in model.plan.reasons) and model.draining:
        message = "; ".join(model.plan.reasons)
        return "NotDrained", message, "read the log of the consumer that keeps its partitions"
    if facts.policy.advisory or None in (m.desired_replicas, m.planned_replicas):
        return None
    if (m.desired_replicas or 0) >= (m.planned_replicas or 0):
        return None
    what = f"{format_count(m.desired_replicas, 'consumer')} would be enough, {m.planned_replicas} run"
    if not facts.observation.is_steered:
        return "Unsteered", f"{what}: {UNSTEERED}", "see GroupUnsteered"
    if _list_foreign(facts):
        return "ForeignMembers", f"{what}: {model.explain_instability()}", "see ForeignMembers"
    pause = model.explain_pause(Direction.DOWN)
    return None if pause is None else ("Paused", f"{what}: {pause}", "end the pause")


def _find_pause(facts: GroupFacts) -> FoundCondition:
    external = explain_external_pause(facts.model)
    if external is not None:
        return "ExternalZero", external, "scale the workload up to end the pause"
    target = facts.observation.target_status.paused_direction
    at_target = Direction if target == "all" else [target] if target else []
    always, now = facts.policy.paused_directions, facts.scheduled_policy.paused_directions
    paused = (
        ("the target", at_target, "take its pause annotation away"),
        ("the settings", always, "take pause out of the sidecar's settings"),
        ("the schedule", now - always, "wait for the end of its period"),
    )
    found = [
        (f"{' and '.join(sorted(names))} is paused by {by}", what) for by, names, what in paused if names
    ]
    messages, remedies = ([one[n] for one in found] for n in range(2))
    return ("Paused", "; ".join(messages), "; ".join(remedies)) if found else None


def _find_missing_replicas(facts: GroupFacts) -> FoundCondition:
    shortfall = explain_missing_replicas(facts.model, facts.memory, facts.now)
    if shortfall is not None:
        return (
            "NotStarted",
            shortfall,
            "check the target's own limits (maxReplicaCount, a quota) and the nodes",
        )
    recent = [t for t in facts.memory.replacements if 0 <= facts.now - t <= RESTART_BACKOFF_RESET_S]
    if len(recent) < MIN_REPLACEMENTS:
        return None
    replaced = format_count(len(recent), "replica was", "replicas were")
    message = f"{replaced} replaced in the last {RESTART_BACKOFF_RESET_S:.0f} s"
    return "Dying", message, "read the logs of the replicas"


def _find_unjoined_replicas(facts: GroupFacts) -> FoundCondition:
    model = facts.model
    late = [name for name in model.unjoined if name not in model.find_unjoined_replicas(facts.now)]
    if not late or len(facts.observation.group.members) >= len(model.expected_members):
        return None  # or they have, under names that the target does not know
    have, logs = ("has", "its log") if len(late) == 1 else ("have", "their logs")
    message = f"{_list_names(late)} {have} not joined within {facts.policy.startup_timeout:g} s"
    return "StartupTimeout", message, f"read {logs}"


def _find_foreign_members(facts: GroupFacts) -> FoundCondition:
    foreign = _list_foreign(facts)
    if not foreign:
        return None
    own = "owns partitions and is" if len(foreign) == 1 else "own partitions and are"
    observation, replica = facts.observation, facts.policy.consumers_per_replica
    crowded = describe_crowded_replica(observation.group.members, observation.target_status, replica)
    remedy = crowded or "stop that client, give it another group, or set instance names that the target knows"
    return "NotOfTarget", f"{_list_names(foreign)} {own} not of the replicas", remedy


def _list_foreign(facts: GroupFacts) -> list[str]:
    model, target = facts.model, facts.model.plan.target
    # those of the plan, of earlier owners and of a target that is empty are our own, on their way out
    planned = () if target is None else target.consumers
    own = {*model.running, *model.members, *model.last_owners.values(), *planned}
    if facts.policy.advisory or model.is_share_group or not model.running:
        return []
    members = facts.observation.group.members
    return sorted(m.instance or m.id for m in members if m.owned_partitions and m.instance not in own)


def _find_unsteered_group(facts: GroupFacts) -> FoundCondition:
    carrier = facts.carrier
    if carrier is None or carrier.is_steering:
        return None
    since = facts.now if carrier.since is None else carrier.since
    if not carrier.text.startswith("unsteered") and facts.now - since < facts.policy.startup_timeout:
        return None  # it is about to lead
    return "NotLed", carrier.text, "do what the message says (docs/any-client.md)"


def _find_unfollowed_plan(facts: GroupFacts) -> FoundCondition:
    outcome, plan = facts.outcome, facts.model.plan
    if outcome is None or not outcome.off_plan or facts.now - plan.time < facts.policy.startup_timeout:
        return None
    message = f"plan {outcome.epoch}: {outcome.describe_difference()}"
    return "Elsewhere", message, "trimtab explain shows which and why; the leader's log names a fault"


def _find_uncovered_racks(facts: GroupFacts) -> FoundCondition:
    traffic = facts.model.compute_cross_rack_traffic() if facts.model.weighs_racks() else None
    message = "" if traffic is None else "; ".join(traffic.notes)
    return ("NoLocalReplica", message, "see docs/rack-awareness.md, finding faults") if message else None


def _list_names(names: list[str]) -> str:
    return format_name_list(names[:MAX_NAMED], len(names))


Finder: TypeAlias = Callable[[GroupFacts], FoundCondition]

FINDERS: Final[Mapping[ConditionType, Finder]] = {
    ConditionType.GROUP_UNKNOWN: _find_unknown_group,
    ConditionType.REQUESTS_FAILED: _find_failed_requests,
    ConditionType.DECISION_FAILED: _find_failed_decision,
    ConditionType.PARTITIONS_HALTED: lambda facts: find_halted_partitions(facts.observation.halts),
    ConditionType.TRANSACTION_OPEN: _find_open_transactions,
    ConditionType.BACKLOG_OVERDUE: _find_overdue_backlog,
    ConditionType.FRESHNESS_MISSED: _find_missed_freshness,
    ConditionType.WRITE_RATE_UNKNOWN: _find_unknown_rates,
    ConditionType.SCALE_UP_SUSPENDED: _find_suspension,
    ConditionType.GROUP_UNSTEERED: _find_unsteered_group,
}
MODEL_FINDERS: Final[Mapping[ConditionType, Finder]] = {  # asked once there is a plan
    ConditionType.PARTITIONS_STUCK: _find_stuck_partitions,
    ConditionType.CONSUMERS_STUCK: _find_stuck_consumers,
    ConditionType.NOTHING_CONSUMED: _find_nothing_consumed,
    ConditionType.CONSUMER_OVERLOADED: _find_overload,
    ConditionType.PARTITION_OVERSIZED: _find_oversized_partition,
    ConditionType.SCALE_UP_LIMITED: _find_limit,
    ConditionType.SCALE_DOWN_BLOCKED: _find_blocked_scale_down,
    ConditionType.SCALING_PAUSED: _find_pause,
    ConditionType.REPLICAS_MISSING: _find_missing_replicas,
    ConditionType.REPLICAS_NOT_JOINED: _find_unjoined_replicas,
    ConditionType.FOREIGN_MEMBERS: _find_foreign_members,
    ConditionType.PLAN_NOT_FOLLOWED: _find_unfollowed_plan,
    ConditionType.RACKS_UNCOVERED: _find_uncovered_racks,
}
UNOBSERVED_TYPES: Final = (ConditionType.GROUP_UNKNOWN, ConditionType.REQUESTS_FAILED)
