"""What one consumer fewer and one more would have cost at a decision, computed in a thread for the page.

1. Each decision that does something is evaluated, with the plan that was in force before it; while a
   window follows, the present too, every `PRESENT_INTERVAL_S`.
2. One computation at a time: what comes meanwhile is left out, so that no iteration waits.
"""

from threading import Thread
from typing import Any, Final

from trimtab.common.control_topics.plan import GroupPlan
from trimtab.sidecar.decision.decision import ScalingAction
from trimtab.sidecar.diagnostics.alternatives import compute_alternatives
from trimtab.sidecar.diagnostics.explanation import AlternativeCount
from trimtab.sidecar.diagnostics.what_if import GroupBaseline
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.observation import ObservedGroup
from trimtab.sidecar.records.iteration_report import IterationReport

PRESENT_INTERVAL_S: Final = 30.0


class AlternativesThread:
    """Evaluates reports for one group; `move_cost` is λ, in consumers."""

    def __init__(self, policy: AutoscalingPolicy, move_cost: float) -> None:
        self.move_cost = move_cost
        self._policy = policy
        self._plan: GroupPlan | None = None  # before the report
        self._thread: Thread | None = None
        self._rows: dict[str, Any] | None = None
        self._last_time = float("-inf")

    def offer_report(self, report: IterationReport, *, is_watched: bool) -> None:
        """Start to evaluate a report, if it is worth it and nothing else is evaluated."""
        plan, self._plan = self._plan or report.plan, report.plan
        is_decision = report.decision.action is not ScalingAction.HOLD
        is_due = is_decision or (is_watched and report.time >= self._last_time + PRESENT_INTERVAL_S)
        if plan is None or not report.is_leader or not is_due or self._is_busy():
            return
        self._last_time = report.time
        group = ObservedGroup(report.group_state, report.members)
        baseline = GroupBaseline(group, report.write_rates, "", plan)
        self._thread = Thread(
            target=self._evaluate, args=(report.time, baseline), name="trimtab-alternatives", daemon=True
        )
        self._thread.start()

    def take_rows(self) -> dict[str, Any] | None:
        """Return the rows of the newest evaluation, once; `t` is the report's time."""
        rows, self._rows = self._rows, None
        return rows

    def wait(self, seconds: float) -> None:
        """Wait up to `seconds` for the evaluation in progress."""
        if self._thread is not None:
            self._thread.join(seconds)

    def _is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _evaluate(self, time: float, baseline: GroupBaseline) -> None:
        found = compute_alternatives(baseline, self._policy)
        self._rows = {"t": time, "rows": [self._build_row(one) for one in found]}

    def _build_row(self, one: AlternativeCount) -> dict[str, Any]:
        return {
            "consumers": one.consumers,
            "moves": one.moves,
            "moved_rate": one.moved_bytes_per_s,
            "r": one.r_score,
            "fill": one.fill,
            "fits": one.fits,
            "cost": one.consumers + self.move_cost * one.r_score,
        }
