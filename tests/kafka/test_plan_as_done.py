"""What the sidecar tells of a plan is what the group does, on a real broker."""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pytest
from sidecar_bench import CAPACITY, PARTITIONS, SidecarBench

from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.diagnostics.explanation import Explanation, build_explanation, explain_placement
from trimtab.sidecar.measurement.observation import GroupState

pytestmark = pytest.mark.broker

# of a PlanOutcome, with the end of its metric
OUTCOME_FIGURES = {"moves": "moves", "r_score": "r_score", "max_fill": "fullest_consumer_ratio"}
Owners: TypeAlias = Mapping[TopicPartition, str]


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


class GroupWatch:
    """Follows the owners on the broker, and remembers those that each plan found."""

    def __init__(self, bench: SidecarBench) -> None:
        self.bench = bench
        self.owners: Owners = {}  # of the last look at the stable group
        self.found_by: dict[tuple[int, int], Owners] = {}  # by epoch and revision

    def look(self) -> tuple[int, int] | None:
        """Return the plan in force."""
        before = self.owners
        group = self.bench.monitor.describe_group()
        if group.state is GroupState.STABLE:
            self.owners = {p: m.instance for m in group.members for p in m.owned_partitions}
        plan = self.bench.plan()
        key = None if plan.target is None else (plan.epoch, plan.target.revision)
        if key is not None:
            self.found_by.setdefault(key, before)
        return key


def explain_settled(watch: GroupWatch) -> Explanation | None:
    """Return the explanation once the last plan with moves is the one in force, and settled."""
    in_force = watch.look()
    explanation = build_explanation(watch.bench.store.read_decisions(), None, 0)
    outcome = None if explanation is None else explanation.plan_outcome
    if outcome is None or not outcome.is_settled or not outcome.moves:
        return None
    is_current = (outcome.epoch, outcome.revision) == in_force and watch.bench.is_settled()
    log = watch.bench.log.read_text()
    return explanation if is_current and f"plan {outcome.epoch} carried out" in log else None


def read_top(bench: SidecarBench) -> Any:
    command = [sys.executable, "-m", "trimtab.cli", "top", "-c", str(bench.config)]
    flags = ["--once", "--window", "1 s", "--format", "json"]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def list_settled(bench: SidecarBench) -> list[dict[str, float | None]]:
    """Return the figures of each plan that the decision topic tells as carried out."""
    outcomes = [record.outcome for record in bench.store.read_decisions()]
    return [{name: getattr(o, name) for name in OUTCOME_FIGURES} for o in outcomes if o and o.is_settled]


def read_metrics(bench: SidecarBench) -> dict[str, float]:
    return {
        name: read_metric(bench, f"trimtab_carried_out_{metric}") for name, metric in OUTCOME_FIGURES.items()
    }


def read_top_figures(bench: SidecarBench) -> dict[str, float]:
    outcome = read_top(bench)["plan_outcome"]
    return {name: outcome[name] for name in OUTCOME_FIGURES}


def read_metric(bench: SidecarBench, name: str) -> float:
    match = re.search(rf"^{name}{{[^}}]*}} (\S+)$", bench.page("/metrics"), re.MULTILINE)
    assert match is not None, name
    return float(match[1])


@pytest.mark.slow  # two minutes, and not yet certain beside others that compute
def test_what_is_told_is_what_was_done(bench: SidecarBench, eventually: Eventually) -> None:
    """Log, metrics, `explain` and `top` tell the moves, R-score and fill that the broker's owners show."""
    bench.flow.rate = 0.6 * CAPACITY
    bench.start()
    eventually(lambda: bench.state.exists() and len(bench.pids()) == 1, 60)
    eventually(bench.is_settled, 60)
    watch = GroupWatch(bench)
    eventually(lambda: watch.look() and len(watch.owners) == PARTITIONS)
    bench.flow.rate = 2.0 * CAPACITY
    eventually(lambda: watch.look() and bench.plan().replicas >= 3 and bench.is_settled(), 60)
    found: list[Explanation] = []
    eventually(lambda: found.extend(filter(None, [explain_settled(watch)])) or found, 60)
    check_told(watch, found[0])
    # meanwhile another plan may be the last one
    eventually(lambda: read_metrics(bench) in list_settled(bench))
    eventually(lambda: read_top_figures(bench) in list_settled(bench))


def check_told(watch: GroupWatch, explanation: Explanation) -> None:
    planned, outcome = explanation.last_plan_with_moves, explanation.plan_outcome
    assert planned is not None
    assert outcome is not None
    before = watch.found_by[outcome.epoch, outcome.revision]
    done = {p: (before[p], owner) for p, owner in watch.owners.items() if before[p] != owner}
    places = outcome.consumer_by_place
    told = {
        TopicPartition(m.topic, m.partition): (m.source, places.get(m.target, m.target))
        for m in planned.expected_moves
    }
    assert told == done
    r_score = sum(move.load_bytes_per_s or 0.0 for move in planned.expected_moves) / CAPACITY
    figures = (len(done), pytest.approx(r_score), 0)
    assert (outcome.moves, outcome.r_score, outcome.off_plan) == figures
    assert (planned.metrics.moves, planned.metrics.r_score) == figures[:2]
    assert outcome.max_fill is not None
    since = [r for r in watch.bench.store.read_decisions() if r.time >= planned.time]
    check_fill(outcome.max_fill, watch.owners, [r.metrics.required_rate or 0.0 for r in since])

    text = " ".join(explain_placement(explanation, explanation.decision.until))
    assert f"R {r_score:.2f} (the moved load in consumer capacities)" in text
    assert f"moved, R {r_score:.2f}, fullest consumer {outcome.max_fill:.0%}; as planned." in text
    assert "+1" not in text
    figures_line = rf"{len(done)} moves?, R {r_score:.2f}, fullest {outcome.max_fill:.0%}; as planned"
    assert re.search(rf"plan {outcome.epoch} carried out: {figures_line}", watch.bench.log.read_text())


def check_fill(max_fill: float, owners: Owners, required_rates: Sequence[float]) -> None:
    """Compare with the most partitions of a consumer: all partitions get the same load.

    What they require falls, with the backlog, between the decision and the moment in which it is carried out.
    """
    most = max(Counter(owners.values()).values()) / PARTITIONS / CAPACITY
    assert 0.8 * most * min(required_rates) <= max_fill <= 1.2 * most * max(required_rates)
