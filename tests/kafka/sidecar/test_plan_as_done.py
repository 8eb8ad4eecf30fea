"""What the sidecar tells of a plan is what the group does, on a real broker."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pytest

from support.sidecar_bench import CAPACITY, PARTITIONS, SidecarBench
from trimtab.assignor.model import TopicPartition
from trimtab.sidecar.diagnostics.explanation import Explanation, build_explanation, explain_placement
from trimtab.sidecar.model.observation import GroupState
from trimtab.sidecar.records.plan_outcome import PlanOutcome

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


def start_with_one(bench: SidecarBench, eventually: Eventually) -> None:
    """Start a group of one consumer that has the load of three, managed by a sidecar that may start three.

    The sidecar scales up in one plan, and the group rests on it: no backlog adds to the load, which three
    consumers can read and which is nowhere above the headroom, also where a busy machine writes unevenly.
    """
    bench.flow.rate = 2.0 * CAPACITY
    flags = ("--set", "pause=scale-down", "--set", "backlog-grace=1 h")
    bench.start("--max", "1", *flags)
    eventually(lambda: bench.state.exists() and len(bench.pids()) == 1, 60)
    eventually(bench.is_settled, 60)
    bench.stop(signal.SIGKILL)
    bench.start("--max", "3", *flags)


@pytest.mark.slow  # about 20 s of CPU: two sidecars, four consumers and `top`
def test_what_is_told_is_what_was_done(bench: SidecarBench, eventually: Eventually) -> None:
    """Log, metrics, `explain` and `top` tell the moves, R-score and fill that the broker's owners show.

    Then a consumer dies: the leader moves its partitions and no others, and that is told as well.
    """
    start_with_one(bench, eventually)
    watch = GroupWatch(bench)
    found: list[Explanation] = []
    eventually(lambda: found.extend(filter(None, [explain_settled(watch)])) or found, 60)
    check_told(watch, found[0])
    eventually(lambda: read_metrics(bench) in list_settled(bench))
    eventually(lambda: read_top_figures(bench) in list_settled(bench))
    check_repaired(watch, found[0], eventually)


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


def check_repaired(watch: GroupWatch, explanation: Explanation, eventually: Eventually) -> None:
    """A consumer dies while the sidecar is suspended: the leader repairs the plan, the sidecar tells it."""
    bench, planned, settled = watch.bench, dict(watch.owners), explanation.plan_outcome
    assert bench.process is not None
    assert settled is not None
    victim = Counter(planned.values()).most_common()[-1][0]
    lost = {p for p, owner in planned.items() if owner == victim}
    observed = read_metric(bench, "trimtab_moves_total")
    bench.process.send_signal(signal.SIGSTOP)
    os.kill(bench.pids()[victim], signal.SIGKILL)
    eventually(
        lambda: watch.look() and victim not in watch.owners.values() and len(watch.owners) == PARTITIONS, 60
    )
    repaired = dict(watch.owners)
    assert {p for p in planned if repaired[p] != planned[p]} == lost
    bench.process.send_signal(signal.SIGCONT)

    found: list[Explanation] = []
    eventually(lambda: found.extend(filter(None, [find_off_plan(bench, settled)])) or found, 60)
    told = found[0].plan_outcome
    assert told is not None
    # the figures of the moment in which the plan was carried out
    assert [getattr(told, name) for name in OUTCOME_FIGURES] == [getattr(settled, n) for n in OUTCOME_FIGURES]
    assert (told.is_settled, told.off_plan) == (True, len(lost))
    elsewhere = {TopicPartition(e.topic, e.partition): (e.planned, e.owner, e.reason) for e in told.elsewhere}
    assert elsewhere == {p: (victim, repaired[p], f"{victim} left") for p in lost}
    text = " ".join(explain_placement(found[0], found[0].decision.until))
    assert all(f"is at {repaired[p]}, not {victim}: {victim} left" in text for p in lost)
    eventually(lambda: f"elsewhere ({victim} left)" in bench.log.read_text())
    eventually(lambda: read_metric(bench, "trimtab_moves_total") >= observed + len(lost))


def find_off_plan(bench: SidecarBench, settled: PlanOutcome) -> Explanation | None:
    """Return the first explanation that tells of partitions elsewhere than in a plan that was carried out."""
    records = bench.store.read_decisions()
    key = (settled.epoch, settled.revision)
    outcomes = ((r, r.outcome) for r in records if r.outcome is not None)
    # one that is not settled tells of the time before the plan was carried out
    later = (r for r, o in outcomes if o.is_settled and o.off_plan and (o.epoch, o.revision) == key)
    first = next(later, None)
    return None if first is None else build_explanation(records, first.time, 0)
