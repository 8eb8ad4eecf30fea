"""What one turn of the loop tells the outside."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.values import PartitionSpeed
from trimtab.sidecar.decision.decision import Verdict
from trimtab.sidecar.measurement.handover_time import Change
from trimtab.sidecar.measurement.observation import Reader

if TYPE_CHECKING:  # it needs an extra
    from trimtab.sidecar.reporting.certifier import Certified

log = logging.getLogger("trimtab.sidecar")

NOT_DONE = "not done: "
"""How a reason begins that tells why a verdict could not be carried out."""


@dataclass(frozen=True, slots=True)
class Report:
    """One turn: its verdict, what it was made from, and how long it took (seconds).

    `time` is seconds since the epoch; `epoch` is that of the plan in force; `reachable` tells
    whether the group could be described; `leading` whether it is us who acts; `learned` are
    capacities in bytes/s by instance; `changed` the moves that were seen since the turn before.
    """

    time: float
    verdict: Verdict
    speeds: Mapping[TopicPartition, PartitionSpeed]
    epoch: int
    reachable: bool
    decided_in: float
    turned_in: float
    handovers: tuple[float, ...] = ()
    readers: tuple[Reader, ...] = ()
    changed: tuple[Change, ...] = ()
    trouble: tuple[str, ...] = ()
    learned: Mapping[str, float] = field(default_factory=dict[str, float])
    growing_stopped: bool = False
    leading: bool = True
    certificate: "Certified | None" = None  # the newest, of an earlier turn


class Reporter(Protocol):
    """Somebody who wants to know."""

    def __call__(self, report: Report) -> None:
        """Take note of a turn."""
        ...


class LogLines:
    """One line for each verdict, and one for each trouble that is new."""

    def __init__(self) -> None:
        self._trouble: tuple[str, ...] = ()

    def __call__(self, report: Report) -> None:
        """Log the turn."""
        for text in report.trouble:
            if text not in self._trouble:
                log.warning("%s", text)
        self._trouble = report.trouble
        log.info("%s", report.verdict.line())
