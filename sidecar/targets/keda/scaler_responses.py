"""What KEDA is answered, from what the turns left. Pure.

1. The count is the one that the target was asked for last: it rises when the plan grows, and falls
   only when a drained pod owns nothing, is marked as the one to go, and the group is at rest.
2. Before the first turn that knew plan, pods and group there is no answer.
3. A blind turn, which did not know one of them, leaves the count; after so many in a row there is
   no answer. Unknown write speeds alone are not blind: the policy's `fallback` makes the count.
4. Zero is answered only where it is known that nothing is to be read.
5. Without a turn for too long, and from a sidecar that stands by, there is no answer.
6. Where there was no answer KEDA may have set a count by its own `fallback`, or another sidecar may
   have answered. So the count is forgotten, and the next turn goes on from the one that it finds.

No answer is UNAVAILABLE: KEDA then leaves the count, or does what its own `fallback` says.
"""

from dataclasses import dataclass, replace
from typing import Final

from trimtab.sidecar.decision.scale_to_zero import idle
from trimtab.sidecar.errors import CountUnknown
from trimtab.sidecar.reporting.iteration_report import Report

METRIC: Final = "trimtab-replicas"
"""Name of the one metric: replicas."""

PER_REPLICA: Final = 1
"""One replica's share of it."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How many blind turns in a row are borne, and how many seconds without any turn."""

    turns: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Standing:
    """What the turns left.

    `count` is what the target was asked for last, None where it was forgotten, and `why` it was;
    `turned` when the last turn ended (monotonic seconds); `sighted` whether one has known all it
    must; `blind` how many since then have not; `idle` whether it is known that nothing is to be
    read; `said` why the last one did what it did.
    """

    count: int | None = None
    turned: float = 0.0
    sighted: bool = False
    blind: int = 0
    idle: bool = False
    said: str = "no turn yet"
    why: str = "the sidecar has made no turn yet"


def after(standing: Standing, report: Report, patience: Patience, now: float) -> Standing:
    """Return what is left after another turn; `now` is monotonic seconds."""
    sighted = report.verdict.numbers.running is not None
    new = replace(
        standing,
        turned=now,
        sighted=report.leading and (standing.sighted or sighted),
        blind=0 if sighted else standing.blind + 1,
        idle=sighted and idle(report.speeds),
        said="; ".join(report.verdict.reasons),
    )
    late = now - standing.turned > patience.seconds
    why = "the sidecar made no turn for long" if late else why_not(new, patience, now)
    return replace(new, count=None, why=why) if why else new


def why_not(standing: Standing, patience: Patience, now: float) -> str:
    """Say why there is no answer; empty where there is one."""
    silent = now - standing.turned
    if standing.count is None:
        return standing.why
    if not standing.sighted:
        return f"the sidecar knows no count yet: {standing.said}"
    if silent > patience.seconds:
        return f"the sidecar has made no turn for {silent:.0f} s; look into its log"
    if standing.blind >= patience.turns:
        return f"the sidecar has been blind for {standing.blind} turns: {standing.said}"
    if not standing.count and not standing.idle:
        return f"it is not known that nothing is to be read: {standing.said}"
    return ""


def count(standing: Standing, patience: Patience, now: float) -> int:
    """Return how many replicas there are to be. Raises CountUnknown, saying why."""
    reason = why_not(standing, patience, now)
    if reason or standing.count is None:
        raise CountUnknown(reason)
    return standing.count
