"""What one turn of the loop tells the outside."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decision import ScalingDecision
from trimtab.sidecar.measurement.handover_time import PartitionMove
from trimtab.sidecar.measurement.observation import ObservedMember

if TYPE_CHECKING:  # it needs an extra
    from trimtab.sidecar.reporting.certifier import TimedCertificate

log = logging.getLogger("trimtab.sidecar")


@dataclass(frozen=True, slots=True)
class IterationReport:
    """One turn: its verdict, what it was made from, and how long it took (seconds).

    `time` is seconds since the epoch; `epoch` is that of the plan in force; `is_group_known` tells
    whether the group could be described; `is_leader` whether it is us who acts;
    `learned_capacities` are capacities in bytes/s by instance; `observed_moves` the moves that were
    seen since the turn before.
    """

    time: float
    decision: ScalingDecision
    write_rates: Mapping[TopicPartition, PartitionLoad]
    epoch: int
    is_group_known: bool
    decision_seconds: float
    iteration_seconds: float
    handover_seconds: tuple[float, ...] = ()
    members: tuple[ObservedMember, ...] = ()
    observed_moves: tuple[PartitionMove, ...] = ()
    trouble: tuple[str, ...] = ()
    learned_capacities: Mapping[str, float] = field(default_factory=dict[str, float])
    scale_up_suspended: bool = False
    is_leader: bool = True
    certificate: "TimedCertificate | None" = None  # the newest, of an earlier turn


class Reporter(Protocol):
    """Somebody who wants to know."""

    def __call__(self, report: IterationReport) -> None:
        """Take note of a turn."""
        ...


class LogReporter:
    """One line for each verdict, and one for each trouble that is new."""

    def __init__(self) -> None:
        self._last_trouble: tuple[str, ...] = ()

    def __call__(self, report: IterationReport) -> None:
        """Log the turn."""
        for text in report.trouble:
            if text not in self._last_trouble:
                log.warning("%s", text)
        self._last_trouble = report.trouble
        log.info("%s", report.decision.format_line())
