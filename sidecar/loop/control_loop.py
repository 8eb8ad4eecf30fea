"""The control loop: observe, decide, check again, act, report.

1. Its state can be rebuilt: from the plan in force, the group and the replicas.
2. Before acting it observes group and replicas again and repeats the decision; if the result differs,
   it does nothing until the next iteration.
3. A plan is published before its replicas are started or stopped: the next sidecar completes from the
   plan what a crash interrupted.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from trimtab.common.clock import Clock
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.common.errors import PeerError, TrimtabError
from trimtab.common.replica_names import get_replica
from trimtab.sidecar.decision.condition import Condition, ConditionType, track_conditions
from trimtab.sidecar.decision.decide import make_decision, record_execution
from trimtab.sidecar.decision.decision import (
    REPLICA_ACTIONS,
    DecisionMetrics,
    ScalingAction,
    ScalingDecision,
    make_advice,
)
from trimtab.sidecar.decision.decision_memory import DecisionMemory
from trimtab.sidecar.errors import NotLeaderError
from trimtab.sidecar.kafka.control_topic_store import PlanStore
from trimtab.sidecar.leadership.leader_election import Leadership, SoleLeader, require_leadership
from trimtab.sidecar.measurement.commit_interval import CommitInterval, extend_window
from trimtab.sidecar.measurement.handover_time import HandoverTracker
from trimtab.sidecar.measurement.load_forecast import ForecastStatus, LoadForecaster
from trimtab.sidecar.measurement.startup_time import StartupTimes
from trimtab.sidecar.model.member_names import (
    distinguish_members,
    name_observed_members,
    number_observed_members,
)
from trimtab.sidecar.model.observation import (
    GroupState,
    Observation,
    ObservedGroup,
    ReplicaInstance,
    TargetStatus,
)
from trimtab.sidecar.model.record_weights import RecordWeights
from trimtab.sidecar.plan_carrier import CarrierStatus, PlanCarrier
from trimtab.sidecar.readings.group_monitor import GroupMeasurement, GroupObserver
from trimtab.sidecar.records.iteration_report import IterationReport, Reporter
from trimtab.sidecar.records.plan_outcome import PlanOutcome, PlanTracker
from trimtab.sidecar.records.season_record import SeasonArchive
from trimtab.sidecar.reporting.group_conditions import (
    GroupFacts,
    build_found,
    find_conditions,
    find_failed_requests,
)
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.sidecar.targets.process.rolling_restart import list_pending_restarts
from trimtab.sidecar.targets.replica_target import ReplicaTarget

log = logging.getLogger("trimtab.sidecar")

STANDBY_INTERVAL_S: Final = 2.0  # at most, to take over quickly
STOP_POLL_INTERVAL_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class LoopCollaborators:
    """Collaborators of the control loop."""

    monitor: GroupObserver
    control_topics: PlanStore
    target: ReplicaTarget
    reporters: Sequence[Reporter] = ()
    read_target_status: Callable[[], TargetStatus] = TargetStatus  # as of the last replica list
    leadership: Leadership = field(default_factory=SoleLeader)
    plan_carrier: PlanCarrier | None = None  # None: the group's members carry plans out themselves
    season_archive: SeasonArchive | None = None  # None: seasons end with the process


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
        self._plan_tracker = PlanTracker(self._policy.consumers_per_replica)
        self._carrier_status: CarrierStatus | None = None
        self._conditions: tuple[Condition, ...] = ()
        self._forecaster = _build_forecaster(settings)
        self._forecast: ForecastStatus | None = None
        self._startup_times = StartupTimes()
        # seasons outlive the process, and pass steadily
        self._epoch_offset_s = clock.wall() - clock.monotonic()

    def run(self, wait: Callable[[float], bool]) -> None:
        """Iterate until `wait(seconds)` returns True."""
        seconds = 0.0
        while not wait(seconds):
            started_at = self._clock.monotonic()
            self.run_iteration()
            interval = self._settings.interval
            if not self._was_leader:
                interval = min(interval, STANDBY_INTERVAL_S)
            # from start to start, or a slow broker would stretch every window
            seconds = max(0.0, interval - (self._clock.monotonic() - started_at))

    def run_iteration(self) -> ScalingDecision:
        """Observe, decide, check again, act and report, once."""
        started_at = self._clock.monotonic()
        measurement = self._forecast_load(self._collaborators.monitor.measure())
        self._follow_weights(measurement.load.record_weights)
        self._follow_commits(measurement.load.learned.rare_commits)
        self._was_leader = self._collaborators.leadership.is_leader()
        if not self._was_leader:
            return self._stand_by(measurement, started_at)
        errors = [*measurement.errors, *self._load_plan(), *self._publish_write_rates(measurement)]
        observation = self._build_observation(measurement, errors)
        now = self._clock.wall()
        self._learn_startup_time(observation, now)
        memory = self._memory
        decided_at = self._clock.monotonic()
        decision, self._memory = make_decision(observation, self._policy, memory, now, self._settings.group)
        decision_seconds = self._clock.monotonic() - decided_at
        decision = self._recheck(decision, observation, memory, now)
        decision = self._execute(decision, observation, now)
        outcome, carrier = self._track_plan(observation), self._carry_out_plan(measurement)
        facts = GroupFacts(observation, self._policy, decision, self._memory, now, carrier, outcome)
        self._conditions = track_conditions(
            self._conditions, find_conditions(facts), now, is_observed=facts.is_observed
        )
        report = IterationReport(
            time=now,
            decision=decision,
            write_rates=measurement.load.write_rates,
            epoch=0 if self._plan is None else self._plan.epoch,
            is_group_known=measurement.group.state is not GroupState.UNKNOWN and self._plan_known,
            decision_seconds=decision_seconds,
            iteration_seconds=self._clock.monotonic() - started_at,
            errors=observation.errors,
            learned_capacities=self._memory.learned_capacities,
            conditions=self._conditions,
            consumption_rates=measurement.load.consumption_rates,
            capacity=self._policy.placement.capacity,
            plan_outcome=outcome,
            carrier=carrier,
            plan=self._plan,
            forecast=self._forecast,
            learned=measurement.load.learned,
        )
        self._report(report, measurement)
        return decision

    def stop_workers(self, wait: Callable[[float], bool]) -> bool:
        """Stop every replica and wait; return whether all have stopped."""
        target = self._collaborators.target
        # twice: the target kills a replica only after its own timeout
        deadline = self._clock.monotonic() + 2 * self._settings.worker_stop_timeout
        while self._clock.monotonic() < deadline:
            alive = [i.name for i in target.list_replicas() if i.alive]
            if not alive:
                return True
            for name in alive:
                target.stop_replica(name)
            wait(STOP_POLL_INTERVAL_S)
        return False

    def _stand_by(self, measurement: GroupMeasurement, started_at: float) -> ScalingDecision:
        # measured all the same: after a takeover the windows of write rates are full
        self._plan_known = False  # the leader may publish another plan
        self._plan_tracker = PlanTracker(self._policy.consumers_per_replica)
        carrier = self._collaborators.plan_carrier
        self._carrier_status = None if carrier is None else carrier.stand_by()
        leader = self._collaborators.leadership.get_leader()
        now = self._clock.wall()
        errors = (*measurement.errors, *(self._carrier_status.errors if self._carrier_status else ()))
        found = build_found(ConditionType.REQUESTS_FAILED, find_failed_requests(errors))
        self._conditions = track_conditions(self._conditions, found, now, is_observed=True)
        reason = f"standing by: {leader or 'no sidecar yet'} manages the group"
        metrics = DecisionMetrics(partitions=len(measurement.load.write_rates))
        decision = ScalingDecision(ScalingAction.HOLD, (reason,), metrics)
        report = IterationReport(
            time=now,
            decision=decision,
            write_rates=measurement.load.write_rates,
            epoch=0,
            is_group_known=measurement.group.state is not GroupState.UNKNOWN,
            decision_seconds=0.0,
            iteration_seconds=self._clock.monotonic() - started_at,
            errors=measurement.errors,
            is_leader=False,
            carrier=self._carrier_status,
            conditions=self._conditions,
        )
        self._report(report, measurement)
        return decision

    def _forecast_load(self, measurement: GroupMeasurement) -> GroupMeasurement:
        """Return the measurement with the load that is forecast, if a season is set."""
        if self._forecaster is None:
            return measurement
        if self._collaborators.season_archive is not None:  # has read nothing before the first report
            self._collaborators.season_archive.exchange(self._forecaster)
        now, startup = self._clock.monotonic() + self._epoch_offset_s, self._startup_times.median
        loads, weights = measurement.load.write_rates, measurement.load.byte_weights
        required, self._forecast = self._forecaster.forecast_load(now, loads, startup, weights)
        return replace(measurement, load=replace(measurement.load, write_rates=required))

    def _follow_weights(self, weights: RecordWeights) -> None:
        if weights != self._policy.record_weights:
            self._policy = replace(self._policy, record_weights=weights)
            self._memory = self._memory.forget_rates()

    def _follow_commits(self, rare: CommitInterval | None) -> None:
        catch_up = self._settings.catch_up
        if rare is not None:
            catch_up = replace(catch_up, backlog_grace=rare.grace)
        window = extend_window(self._settings.consumption_window, rare)
        self._policy = replace(self._policy, catch_up=catch_up, scale_up_evaluation_window=window)

    def _learn_startup_time(self, observation: Observation, now: float) -> None:
        if self._policy.advisory:
            return  # it does not know when a member's process started
        joined = {member.instance for member in observation.group.members}
        joined |= set(map(get_replica, joined))  # by its first consumer, where a replica has several
        self._startup_times = self._startup_times.add_replicas(observation.replicas or (), joined, now)

    def _load_plan(self) -> tuple[str, ...]:
        if self._plan_known:
            return ()  # the leader is the only writer
        try:
            self._plan = self._collaborators.control_topics.read_plan()
        except PeerError as error:
            return (str(error),)
        self._plan_known = True
        if self._plan is not None:
            # the cooldown goes on across restarts
            self._memory = replace(self._memory, last_change=self._plan.time)
            log.info("plan %d is in force: %s", self._plan.epoch, "; ".join(self._plan.reasons))
        return ()

    def _publish_write_rates(self, measurement: GroupMeasurement) -> tuple[str, ...]:
        s = self._settings
        now = self._clock.wall()
        if s.dry_run or measurement.group.state is GroupState.UNKNOWN:
            return ()
        by_topic: dict[str, dict[int, PartitionLoad]] = {}
        for (topic, number), load in measurement.load.write_rates.items():
            by_topic.setdefault(topic, {})[number] = load
        try:
            self._collaborators.control_topics.publish(
                TopicWriteRates(s.group, topic, now, s.window, s.load_source, loads)
                for topic, loads in sorted(by_topic.items())
            )
        except PeerError as error:
            return (str(error),)
        return ()

    def _build_observation(self, measurement: GroupMeasurement, errors: Sequence[str]) -> Observation:
        load = measurement.load
        measured = Observation(
            write_rates=load.write_rates,
            consumption_rates=load.consumption_rates,
            stuck_partitions=load.stuck_partitions,
            halts=measurement.halts,
            replica_racks=measurement.replica_racks,
            queue=measurement.queue,
            open_transactions=measurement.open_transactions,
            group=measurement.group,
            replicas=None,
            plan=self._plan,
            plan_known=self._plan_known,
            is_steered=self._carrier_status is None or self._carrier_status.is_steering,
            forecast_rise=None if self._forecast is None else self._forecast.rise,
        )
        return self._observe_replicas(measured, measurement.group, errors)

    def _observe_replicas(
        self, observation: Observation, group: ObservedGroup, before: Sequence[str] = ()
    ) -> Observation:
        """Return the observation with the replicas of now, and the group under their names."""
        errors = list(before)
        replicas = self._list_replicas(group, errors)
        target_status = self._collaborators.read_target_status()
        group = self._name_members(group)
        managed = () if self._policy.advisory else replicas or ()
        restarts = self._list_pending_restarts([i.name for i in managed if i.alive], errors)
        return replace(
            observation,
            group=distinguish_members(group) if self._policy.advisory else group,
            replicas=replicas,
            pending_restarts=restarts,
            target_status=target_status,
            errors=(*errors, *target_status.errors),
        )

    def _name_members(self, group: ObservedGroup) -> ObservedGroup:
        """Return the group with its replicas' names, if its members do not tell them."""
        per_replica = self._settings.consumers_per_replica
        if not self._settings.lead and group.assignor is None:
            return group if per_replica == 1 else number_observed_members(group)
        addresses = self._collaborators.read_target_status().replicas_by_address  # as of the last list
        return name_observed_members(group, addresses, per_replica)

    def _list_replicas(self, group: ObservedGroup, errors: list[str]) -> tuple[ReplicaInstance, ...] | None:
        if self._policy.advisory:  # without a target each member counts as a replica
            names = sorted(m.instance for m in distinguish_members(self._name_members(group)).members)
            return tuple(ReplicaInstance(name, alive=True, started_at=0.0) for name in names)
        try:
            return self._collaborators.target.list_replicas()
        except PeerError as error:
            errors.append(str(error))
            return None

    def _list_pending_restarts(self, alive: Sequence[str], errors: list[str]) -> tuple[str, ...]:
        # `trimtab sidecar restart` leaves its request in the state folder. The loop reads it, not the
        # target: a restart is decided here, and a target only starts and stops replicas.
        try:
            return list_pending_restarts(self._settings.state_dir, alive) if alive else ()
        except PeerError as error:
            errors.append(str(error))
            return ()

    def _recheck(
        self, decision: ScalingDecision, observation: Observation, memory: DecisionMemory, now: float
    ) -> ScalingDecision:
        if decision.action is ScalingAction.HOLD or self._policy.advisory:
            return decision
        described = self._collaborators.monitor.describe_group()  # without commits, which tell of releases
        group = replace(described, unreleased=observation.group.unreleased)
        current = self._observe_replicas(observation, group)
        repeated, _ = make_decision(current, self._policy, memory, now, self._settings.group)
        if repeated.agrees_with(decision):
            return decision
        reason = f"{decision.action} postponed: the group changed during the decision"
        return ScalingDecision(ScalingAction.HOLD, (reason, *repeated.reasons), decision.metrics)

    def _execute(self, decision: ScalingDecision, observation: Observation, now: float) -> ScalingDecision:
        if decision.action is ScalingAction.HOLD:
            return decision
        if self._policy.advisory and decision.action in REPLICA_ACTIONS:
            return make_advice(decision)
        try:
            require_leadership(self._collaborators.leadership)  # it may have been lost since the decision
            started = self._apply(decision, observation)
        except TrimtabError as error:
            log.error("%s failed: %s", decision.action, error)  # noqa: TRY400 - the text is complete
            if isinstance(error, NotLeaderError):
                self._plan_known = False  # the leader may have published another
            elif decision.action in (ScalingAction.REPLACE, ScalingAction.SURGE):
                # A failed start counts for the backoff, or the loop would retry at once.
                failed = replace(decision, failure=str(error))
                self._memory = record_execution(failed, observation, self._memory, now)
            return replace(decision, failure=str(error))
        self._memory = record_execution(decision, observation, self._memory, now)
        if started:
            return replace(decision, reasons=(*decision.reasons, f"started {' and '.join(started)}"))
        return decision

    def _apply(self, decision: ScalingDecision, observation: Observation) -> tuple[str, ...]:
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

    def _publish_plan(self, plan: GroupPlan | None) -> None:
        if plan is None:
            return
        if not self._settings.dry_run:
            # after a timeout the plan may have been written: it is read back before the next decision
            self._plan_known = False
            self._collaborators.control_topics.publish([plan])
        self._plan_known = True
        self._plan = plan

    def _track_plan(self, observation: Observation) -> PlanOutcome | None:
        if self._settings.dry_run:
            return None  # nobody carries out a plan that is not published
        self._plan_tracker = self._plan_tracker.track_outcome(observation, self._memory.last_owners)
        outcome = self._plan_tracker.outcome
        # in an unsteered group the members carry out no plan, even if it is not settled
        is_told = observation.is_steered or (outcome is not None and outcome.is_settled)
        return outcome if is_told else None

    def _carry_out_plan(self, measurement: GroupMeasurement) -> CarrierStatus | None:
        carrier = self._collaborators.plan_carrier
        if carrier is not None and self._plan_known:  # else the last known plan is carried out further
            self._carrier_status = carrier.carry_out(self._plan, measurement.load.write_rates)
        return self._carrier_status

    def _report(self, report: IterationReport, measurement: GroupMeasurement) -> None:
        tracker = self._handover_tracker
        members = self._name_members(measurement.group).members
        handovers, tracker = tracker.collect_handovers(measurement.commit_metadata)
        moves, self._handover_tracker = tracker.collect_moves(members)
        report = replace(
            report,
            handovers=handovers,
            members=members,
            observed_moves=moves,
            group_state=measurement.group.state,
            leader=self._collaborators.leadership.get_leader(),
        )
        for reporter in self._collaborators.reporters:
            reporter(report)


def _build_forecaster(settings: SidecarSettings) -> LoadForecaster | None:
    if settings.season is None:
        return None
    return LoadForecaster(
        settings.season,
        settings.interval,
        lag=settings.window / 2,
        look_ahead=settings.scale_down_stabilization_window,
    )
