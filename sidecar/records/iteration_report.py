"""Result of one control-loop iteration, and its reporters."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.units import format_age
from trimtab.sidecar.decision.condition import Condition
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.measurement.load_estimator import LearnedFigures
from trimtab.sidecar.measurement.load_forecast import ForecastStatus
from trimtab.sidecar.model.observation import GroupState, ObservedMember
from trimtab.sidecar.plan_carrier import CarrierStatus
from trimtab.sidecar.records.plan_outcome import PlanOutcome

log = logging.getLogger("trimtab.sidecar")


@dataclass(frozen=True, slots=True)
class IterationReport:
    """One iteration: its decision, the input of the decision, and durations in seconds."""

    time: float  # seconds since the epoch
    decision: ScalingDecision
    write_rates: Mapping[TopicPartition, PartitionLoad]
    epoch: int  # of the current plan; 0 in standby
    is_group_known: bool
    decision_seconds: float
    iteration_seconds: float
    handovers: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])  # seconds
    members: tuple[ObservedMember, ...] = ()
    observed_moves: tuple[PartitionMove, ...] = ()  # since the previous iteration
    capacity: float | None = None  # of one consumer by the plan, bytes/s
    errors: tuple[str, ...] = ()
    learned_capacities: Mapping[str, float] = field(default_factory=dict[str, float])  # bytes/s by instance
    conditions: tuple[Condition, ...] = ()
    consumption_rates: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    is_leader: bool = True
    plan_outcome: PlanOutcome | None = None  # None without a target, and until the group was stable
    carrier: CarrierStatus | None = None  # None: the group's members carry plans out themselves
    plan: GroupPlan | None = None  # in force after the decision; None in standby, and before the first
    group_state: GroupState = GroupState.UNKNOWN
    leader: str = ""  # the managing sidecar, as far as it is known
    forecast: ForecastStatus | None = None  # None without a season
    learned: LearnedFigures = field(default_factory=LearnedFigures)

    @property
    def handover_seconds(self) -> tuple[float, ...]:
        """Durations of the handovers since the previous iteration."""
        return tuple(self.handovers.values())

    @property
    def moved_load(self) -> float:
        """Load of the observed moves in bytes/s, where it is known."""
        loads = (self.write_rates.get(move.partition) for move in self.observed_moves)
        return sum((load.weight or 0.0 for load in loads if load is not None), 0.0)


class Reporter(Protocol):
    """Consumer of iteration reports."""

    def __call__(self, report: IterationReport) -> None:
        """Handle the report of one iteration."""
        ...


class LogReporter:
    """Logs one line per decision, plan that is carried out, and change of its carrier.

    A condition has a line when it begins, changes and ends. A standby decides nothing: it logs a line when
    its reason changes.
    """

    def __init__(self, group: str = "") -> None:
        """Begin each line with the group, if there is one."""
        self._prefix = f"{group}: " if group else ""
        self._conditions: dict[str, Condition] = {}
        self._last_outcome: tuple[int, str] | None = None
        self._last_carrier_text = ""
        self._last_standby_reason = ""

    def __call__(self, report: IterationReport) -> None:
        """Log the iteration."""
        self._log_conditions(report)
        self._log_carrier(report.carrier)
        self._log_outcome(report.plan_outcome)
        if report.is_leader:
            log.info("%s%s", self._prefix, report.decision.format_line())
        elif report.decision.reason_text != self._last_standby_reason:
            log.info("%s%s", self._prefix, report.decision.reason_text)
        self._last_standby_reason = "" if report.is_leader else report.decision.reason_text

    def _log_conditions(self, report: IterationReport) -> None:
        now = {one.type: one for one in report.conditions}
        for kind, one in now.items():
            before = self._conditions.get(kind)
            if before is None or before.key != one.key:
                log.warning("%scondition %s", self._prefix, one.format_line())
        ended = self._conditions.keys() - now.keys() if report.is_leader else ()  # others are the leader's
        for kind in ended:
            lasted = format_age(report.time - self._conditions[kind].since)
            log.info("%scondition %s has ended after %s", self._prefix, kind, lasted)
        self._conditions = now

    def _log_carrier(self, carrier: CarrierStatus | None) -> None:
        if carrier is not None and carrier.text != self._last_carrier_text:
            log.info("%s%s", self._prefix, carrier.text)
            self._last_carrier_text = carrier.text

    def _log_outcome(self, outcome: PlanOutcome | None) -> None:
        if outcome is None or not outcome.is_settled:
            return
        told = (outcome.revision, outcome.format_line())  # two targets of an epoch may have the same figures
        if told != self._last_outcome:  # again if a partition goes elsewhere later
            log.info("%s%s", self._prefix, told[1])
        self._last_outcome = told
