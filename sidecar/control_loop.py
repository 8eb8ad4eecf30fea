"""The control loop: observe, decide, check again, act, report. Its state can be rebuilt.

Before acting it observes group and replicas again and repeats the decision; if the result differs,
it does nothing until the next iteration. A plan is published before its replicas are started or
stopped: the next sidecar completes from the plan what a crash interrupted.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import PeerError, TrimtabError
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.decision.scaling_policy import DecisionMemory
from trimtab.sidecar.errors import NotLeaderError
from trimtab.sidecar.kafka.control_topic_store import PlanStore
from trimtab.sidecar.leadership.leader_election import Leadership, SoleLeader, require_leadership
from trimtab.sidecar.measurement.group_monitor import GroupMeasurement, GroupObserver
from trimtab.sidecar.measurement.handover_time import HandoverTracker
from trimtab.sidecar.measurement.observation import (
    ExternalScaling,
    GroupState,
    Observation,
    ObservedGroup,
    ReplicaInstance,
)
from trimtab.sidecar.reporting.iteration_report import IterationReport, Reporter
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.process.rolling_restart import list_pending_restarts
from trimtab.sidecar.targets.replica_target import ReplicaTarget

if TYPE_CHECKING:  # it needs an extra
    from trimtab.sidecar.reporting.certifier import DecisionCertifier, TimedCertificate

log = logging.getLogger("trimtab.sidecar")

REPLICA_ACTIONS: Final = frozenset(
    {
        ScalingAction.SCALE_UP,
        ScalingAction.REPLACE,
        ScalingAction.SURGE,
        ScalingAction.DRAIN,
        ScalingAction.CANCEL_DRAIN,
        ScalingAction.STOP,
    }
)
"""Actions that advisory mode reports only."""

STANDBY_INTERVAL_S: Final = 2.0
"""Maximum seconds between two iterations in standby, to take over quickly."""


@dataclass(frozen=True, slots=True)
class LoopCollaborators:
    """Collaborators of the control loop.

    `read_external_scaling` returns requests of others, as of the last listing of replicas.
    """

    monitor: GroupObserver
    control_topics: PlanStore
    target: ReplicaTarget
    reporters: Sequence[Reporter] = ()
    certifier: "DecisionCertifier | None" = None
    read_external_scaling: Callable[[], ExternalScaling] = ExternalScaling
    leadership: Leadership = field(default_factory=SoleLeader)


class ControlLoop:
    """Manages one group; see `run`."""

    def __init__(self, settings: SidecarSettings, collaborators: LoopCollaborators, clock: Clock) -> None:
        self._settings = settings
        self._policy = settings.autoscaling_policy
        self._collaborators = collaborators
        self._clock = clock
        self._memory = DecisionMemory()
        self._plan: GroupPlan | None = None
        self._plan_known = False
        self._was_leader = False
        self._handover_tracker = HandoverTracker(clock.wall())

    def run(self, wait: Callable[[float], bool]) -> None:
        """Iterate until `wait(seconds)` returns True."""
        seconds = 0.0
        while not wait(seconds):
            begun = self._clock.monotonic()
            self.run_iteration()
            pause = self._settings.interval
            if not self._was_leader:
                pause = min(pause, STANDBY_INTERVAL_S)
            seconds = max(0.0, pause - (self._clock.monotonic() - begun))

    def run_iteration(self) -> ScalingDecision:
        """Observe, decide, check again, act and report, once."""
        begun = self._clock.monotonic()
        measurement = self._collaborators.monitor.measure()
        self._was_leader = self._collaborators.leadership.is_leader()
        if not self._was_leader:
            return self._stand_by(measurement, begun)
        trouble = [*measurement.trouble, *self._load_plan(), *self._publish_write_rates(measurement)]
        observation = self._build_observation(measurement, measurement.group, trouble)
        now, before = self._clock.wall(), self._memory
        started = self._clock.monotonic()
        decision, self._memory = make_decision(observation, self._policy, before, now, self._settings.group)
        decided_in = self._clock.monotonic() - started
        decision = self._recheck_decision(decision, observation, before, now)
        decision = self._execute_decision(decision, observation, now)
        report = IterationReport(
            time=now,
            decision=decision,
            write_rates=measurement.write_rates,
            epoch=0 if self._plan is None else self._plan.epoch,
            is_group_known=measurement.group.state is not GroupState.UNKNOWN and self._plan_known,
            decision_seconds=decided_in,
            iteration_seconds=self._clock.monotonic() - begun,
            trouble=observation.trouble,
            learned_capacities=self._memory.learned_capacities,
            scale_up_suspended=self._memory.scale_up_suspension is not None,
            certificate=self._certify_observation(observation),
        )
        self._report_iteration(report, measurement)
        return decision

    def stop_workers(self, wait: Callable[[float], bool]) -> bool:
        """Stop every replica and wait; return whether all have stopped."""
        deadline = self._clock.monotonic() + 2 * self._settings.worker_stop_timeout
        while self._clock.monotonic() < deadline:
            alive = [i.name for i in self._collaborators.target.list_replicas() if i.alive]
            if not alive:
                return True
            for name in alive:
                self._collaborators.target.stop_replica(name)
            wait(0.2)
        return False

    def _stand_by(self, measurement: GroupMeasurement, begun: float) -> ScalingDecision:
        """Measure only, to keep the windows full, and report the leader."""
        self._plan_known = False  # the leader may publish another plan
        leader = self._collaborators.leadership.get_leader()
        reason = f"standing by: {leader or 'no sidecar yet'} leads"
        decision = ScalingDecision(
            ScalingAction.HOLD, (reason,), DecisionMetrics(partitions=len(measurement.write_rates))
        )
        report = IterationReport(
            time=self._clock.wall(),
            decision=decision,
            write_rates=measurement.write_rates,
            epoch=0,
            is_group_known=measurement.group.state is not GroupState.UNKNOWN,
            decision_seconds=0.0,
            iteration_seconds=self._clock.monotonic() - begun,
            trouble=measurement.trouble,
            is_leader=False,
        )
        self._report_iteration(report, measurement)
        return decision

    def _load_plan(self) -> tuple[str, ...]:
        """Read the plan in force, once: the leader is its only writer."""
        if self._plan_known:
            return ()
        try:
            self._plan = self._collaborators.control_topics.read_plan()
        except PeerError as error:
            return (str(error),)
        self._plan_known = True
        if self._plan is not None:
            self._memory = replace(self._memory, last_change=self._plan.time)
            log.info("plan %d is in force: %s", self._plan.epoch, "; ".join(self._plan.reasons))
        return ()

    def _publish_write_rates(self, measurement: GroupMeasurement) -> tuple[str, ...]:
        if self._settings.dry_run or measurement.group.state is GroupState.UNKNOWN:
            return ()
        by_topic: dict[str, dict[int, PartitionLoad]] = {}
        for (topic, number), load in measurement.write_rates.items():
            by_topic.setdefault(topic, {})[number] = load
        s, now = self._settings, self._clock.wall()
        values = [
            TopicWriteRates(s.group, topic, now, s.window, s.source, loads)
            for topic, loads in sorted(by_topic.items())
        ]
        try:
            self._collaborators.control_topics.publish(values)
        except PeerError as error:
            return (str(error),)
        return ()

    def _build_observation(
        self, measurement: GroupMeasurement | Observation, group: ObservedGroup, trouble: list[str]
    ) -> Observation:
        replicas = self._list_replicas(group, trouble)
        managed = () if self._policy.advisory else replicas or ()
        alive = [i.name for i in managed if i.alive]
        external = self._collaborators.read_external_scaling()
        return Observation(
            write_rates=measurement.write_rates,
            consumption_rates=measurement.consumption_rates,
            stuck_partitions=measurement.stuck_partitions,
            replica_racks=measurement.replica_racks,
            queue=measurement.queue,
            group=distinguish_members(group) if self._policy.advisory else group,
            replicas=replicas,
            plan=self._plan,
            plan_known=self._plan_known,
            pending_restarts=self._list_pending_restarts(alive, trouble),
            external_scaling=external,
            trouble=(*trouble, *external.trouble),
        )

    def _list_replicas(self, group: ObservedGroup, trouble: list[str]) -> tuple[ReplicaInstance, ...] | None:
        if self._policy.advisory:
            names = sorted(r.instance for r in distinguish_members(group).members)
            return tuple(ReplicaInstance(name, alive=True, started_at=0.0) for name in names)
        try:
            return self._collaborators.target.list_replicas()
        except PeerError as error:
            trouble.append(str(error))
            return None

    def _list_pending_restarts(self, alive: Sequence[str], trouble: list[str]) -> tuple[str, ...]:
        try:
            return list_pending_restarts(self._settings.state_dir, alive) if alive else ()
        except PeerError as error:
            trouble.append(str(error))
            return ()

    def _recheck_decision(
        self, decision: ScalingDecision, observation: Observation, before: DecisionMemory, now: float
    ) -> ScalingDecision:
        """Decide again on fresh group and replicas; hold if the result differs."""
        if decision.action is ScalingAction.HOLD or self._policy.advisory:
            return decision
        current = self._build_observation(observation, self._collaborators.monitor.describe_group(), [])
        again, _ = make_decision(current, self._policy, before, now, self._settings.group)
        if again.agrees_with(decision):
            return decision
        reason = f"{decision.action} postponed: the group changed during the decision"
        return ScalingDecision(ScalingAction.HOLD, (reason, *again.reasons), decision.metrics)

    def _execute_decision(
        self, decision: ScalingDecision, observation: Observation, now: float
    ) -> ScalingDecision:
        if decision.action is ScalingAction.HOLD or self._is_advice_only(decision):
            return decision
        try:
            require_leadership(self._collaborators.leadership)
            started = self._apply_decision(decision, observation)
        except TrimtabError as error:
            log.error("%s failed: %s", decision.action, error)  # noqa: TRY400 - the text is complete
            if isinstance(error, NotLeaderError):
                self._plan_known = False  # the leader may have published another
            elif decision.action in (ScalingAction.REPLACE, ScalingAction.SURGE):
                # A failed start counts for the backoff, or the loop would retry at once.
                self._memory = record_execution(decision, observation, self._memory, now)
            return replace(decision, failure=str(error))
        self._memory = record_execution(decision, observation, self._memory, now)
        if started:
            return replace(decision, reasons=(*decision.reasons, f"started {' and '.join(started)}"))
        return decision

    def _apply_decision(self, decision: ScalingDecision, observation: Observation) -> tuple[str, ...]:
        """Publish, stop and start; return the started replicas. Raises TrimtabError."""
        # From zero, start before publishing: after a crash between the two, zero replicas beside a
        # plan for more would look like an external pause. Surplus replicas are adopted (rule 9).
        from_zero = observation.plan is not None and not observation.plan.replicas
        started = self._start_replicas(decision.replicas_to_start) if from_zero else ()
        self._publish_plan(decision.plan)
        for name in decision.replicas_to_stop:
            self._collaborators.target.stop_replica(name)
        return started if from_zero else self._start_replicas(decision.replicas_to_start)

    def _start_replicas(self, count: int) -> tuple[str, ...]:
        return self._collaborators.target.add_replicas(count) if count else ()

    def _is_advice_only(self, decision: ScalingDecision) -> bool:
        return self._policy.advisory and decision.action in REPLICA_ACTIONS

    def _publish_plan(self, plan: GroupPlan | None) -> None:
        """Publish a plan; after a failure it is read back first."""
        if plan is None:
            return
        if not self._settings.dry_run:
            self._plan_known = False
            self._collaborators.control_topics.publish([plan])
        self._plan_known = True
        self._plan = plan

    def _certify_observation(self, observation: Observation) -> "TimedCertificate | None":
        """Offer the observation to the certifier; return the newest certificate."""
        certifier = self._collaborators.certifier
        if certifier is None:
            return None
        certifier.offer_observation(observation)
        return certifier.last_certificate

    def _report_iteration(self, report: IterationReport, measurement: GroupMeasurement) -> None:
        handovers, self._handover_tracker = self._handover_tracker.collect_handovers(
            measurement.commit_metadata
        )
        members = measurement.group.members
        moves, self._handover_tracker = self._handover_tracker.collect_moves(members)
        report = replace(report, handover_seconds=handovers, members=members, observed_moves=moves)
        for reporter in self._collaborators.reporters:
            reporter(report)


def distinguish_members(group: ObservedGroup) -> ObservedGroup:
    """Replace shared or empty client ids by member ids."""
    names = [m.instance for m in group.members]
    shared = {name for name in names if names.count(name) > 1 or not name}
    members = tuple(replace(m, instance=m.id) if m.instance in shared else m for m in group.members)
    return replace(group, members=members)
