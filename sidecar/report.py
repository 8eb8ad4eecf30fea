"""What one turn of the loop tells the outside."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

from trimtab.assignor.control import PartitionSpeed
from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.handovers import Change
from trimtab.sidecar.observation import Reader
from trimtab.sidecar.verdict import Action, Verdict

if TYPE_CHECKING:  # it needs an extra
    from trimtab.sidecar.certifier import Certified

log = logging.getLogger("trimtab.sidecar")

NOT_DONE = "not done: "
"""How a reason begins that tells why a verdict could not be carried out."""


AGAIN: Final = 60.0
"""Seconds after which a verdict that stands is logged again."""


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
    """A line for each new verdict, one a minute while it stands, and one for each new trouble."""

    def __init__(self) -> None:
        self._trouble: tuple[str, ...] = ()
        self._said: tuple[Action, tuple[str, ...]] | None = None
        self._at = 0.0

    def __call__(self, report: Report) -> None:
        """Log the turn; a verdict that was said within the minute at DEBUG."""
        for text in report.trouble:
            if text not in self._trouble:
                log.warning("%s", text)
        self._trouble = report.trouble
        verdict = report.verdict
        said, since = (verdict.action, verdict.reasons), report.time - self._at
        known = said == self._said and since < AGAIN
        log.log(logging.DEBUG if known else logging.INFO, "%s", verdict.line())
        if not known:
            self._said, self._at = said, report.time
