"""What the sidecar tells of a plan is what the group does, on a real broker."""

import re
from collections.abc import Callable
from typing import Protocol

import pytest
from sidecar_bench import CAPACITY, SidecarBench

from trimtab.sidecar.diagnostics.explanation import Explanation, build_explanation, explain_placement

pytestmark = pytest.mark.broker


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def explain_settled(bench: SidecarBench) -> Explanation | None:
    """Return the explanation once the last plan with moves is the one in force, and settled."""
    explanation = build_explanation(bench.store.read_decisions(), None, 0)
    outcome = None if explanation is None else explanation.plan_outcome
    target = bench.plan().target
    if outcome is None or target is None or not outcome.is_settled or not outcome.moves:
        return None
    in_force = (outcome.epoch, outcome.revision) == (bench.plan().epoch, target.revision)
    return explanation if in_force and f"plan {outcome.epoch} carried out" in bench.log.read_text() else None


def test_what_is_told_is_what_was_done(bench: SidecarBench, eventually: Eventually) -> None:
    """Moves and R-score of a plan are those that the owners on the broker show once it is carried out."""
    bench.flow.rate = 0.6 * CAPACITY
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) == 1, 60)
    eventually(bench.is_settled, 60)
    bench.flow.rate = 2.0 * CAPACITY
    eventually(lambda: bench.plan().replicas >= 3 and bench.is_settled(), 60)
    found: list[Explanation] = []
    eventually(lambda: found.extend(filter(None, [explain_settled(bench)])) or found, 60)
    explanation = found[0]
    assert explanation.last_plan_with_moves is not None
    told, outcome = explanation.last_plan_with_moves.metrics, explanation.plan_outcome
    assert outcome is not None
    assert (outcome.moves, outcome.r_score, outcome.off_plan) == (told.moves, pytest.approx(told.r_score), 0)
    text = " ".join(explain_placement(explanation, explanation.decision.until))
    assert f"R {told.r_score:.2f} (the moved load in consumer capacities)" in text
    assert "as planned." in text
    assert "+1" not in text
    line = rf"plan {outcome.epoch} carried out: {outcome.moves} moves?, R {told.r_score:.2f}, .*; as planned"
    assert re.search(line, bench.log.read_text())
