"""What goes wrong with groups and sidecars: each condition that follows is on every surface."""

import subprocess
import sys
from pathlib import Path

from dirty.run import DirtyRun, Figures, wait
from support.advised_group import ALL, AdvisedGroup, Surfaces, advise_group
from support.sidecar_bench import CAPACITY, SidecarBench

LOST_PROMETHEUS = {
    "weight-source": "prometheus",
    "weight-query": "vector(1)",
    "prometheus-url": "http://127.0.0.1:9",
}
UNPLANNED_WORKER = Path(__file__).parents[1] / "workers" / "librdkafka_worker.py"
STARTS_SLOWLY = [sys.executable, "-c", "import time; time.sleep(600)", "{instance}"]
MISSING = ["/no/such/worker", "{instance}"]
OTHER_RACK = {"client.rack": "r2", "group.protocol": "consumer"}
DIES = [sys.executable, "-c", "raise SystemExit(1)", "{instance}"]


def measure_advised(run: DirtyRun) -> Figures:
    """A group whose reader gets stuck, goes away and gets more than it can read; between, all is well."""
    settings = {"max": 2, "scale-up-evaluation-window": "4 s", "backlog-grace": "1 s"}
    with advise_group(run.bootstrap, run.create_topic(), run.folder, **settings) as group:
        surfaces, reader, flow = group.surfaces, group.reader, group.flow
        _wait_until_well(group)
        reader.left = frozenset({0})
        run.drive(surfaces, "PartitionsStuck")
        reader.left = ALL
        run.drive(surfaces, "ConsumersStuck")
        reader.left = frozenset()
        _wait_until_well(group)
        reader.halt, reader.left = "no column ts", frozenset({1})
        run.drive(surfaces, "PartitionsHalted")
        reader.left = frozenset()
        _wait_until_well(group)
        reader.is_away.set()
        run.drive(surfaces, "NothingConsumed", "BacklogOverdue")
        reader.is_away.clear()
        _wait_until_well(group)
        flow.order, flow.rate = (0,), 1.5 * CAPACITY
        run.drive(surfaces, "PartitionOversized", "ConsumerOverloaded")
        flow.order, flow.rate = tuple(ALL), 4.0 * CAPACITY
        run.drive(surfaces, "ScaleUpLimited", "ConsumerOverloaded")
    return {}


def measure_other_advice(run: DirtyRun) -> Figures:
    """A pause, an objective that long batches miss, weights that nobody answers, a group led by another."""
    for commit_s, kinds, settings in (
        (0.5, ("ScalingPaused",), {"pause": "all"}),
        (
            6.0,
            ("FreshnessMissed",),
            {
                "freshness-slo": "p99-freshness 2 s",
                "scale-up-evaluation-window": "14 s",
                "backlog-grace": None,
            },
        ),
        (0.5, ("WriteRateUnknown", "RequestsFailed"), LOST_PROMETHEUS),
        (0.5, ("GroupUnsteered",), {"lead": True, "startup-timeout": "3 s"}),
    ):
        with advise_group(run.bootstrap, run.create_topic(), run.folder, commit_s, **settings) as group:
            run.drive(group.surfaces, *kinds)
    return {}


def measure_managed(run: DirtyRun) -> Figures:
    """Workers that never join or die; then a scale-down that is paused."""
    topic = run.create_topic()
    group = f"group-of-{topic}"
    bench = SidecarBench(run.bootstrap, group, topic, run.folder, **{"startup-timeout": "3 s"})
    surfaces, command = Surfaces(bench.config, bench.log, group), bench.settings["worker-command"]
    bench.flow.rate = 0.5 * CAPACITY
    try:
        for worker, kinds in (
            (MISSING, ("DecisionFailed",)),
            (STARTS_SLOWLY, ("ReplicasNotJoined", "NothingConsumed")),
            (DIES, ("ReplicasMissing", "NothingConsumed")),
        ):
            _restart(bench, worker_command=worker)
            run.drive(surfaces, *kinds)
        _restart(bench, worker_command=command, startup_timeout="120 s")
        wait(bench.is_settled, "the workers read")
        bench.flow.rate = 2.4 * CAPACITY
        wait(lambda: bench.plan().replicas >= 3 and bench.is_settled(), "three workers read")
        _restart(bench, pause="scale-down")
        bench.flow.rate = 0.3 * CAPACITY
        run.drive(surfaces, "ScalingPaused", "ScaleDownBlocked")
        _drive_unknown_group(run, surfaces, bench.state / "workers")
    finally:
        bench.close()
    return {}


def measure_stranger(run: DirtyRun) -> Figures:
    """A member of the group that is none of the workers, all of which know no plans."""
    topic = run.create_topic()
    bench = SidecarBench(run.bootstrap, f"group-of-{topic}", topic, run.folder, UNPLANNED_WORKER)
    surfaces = Surfaces(bench.config, bench.log, bench.settings["group"])
    command = [part.replace("{instance}", "stranger") for part in bench.settings["worker-command"]]
    bench.flow.rate = 0.5 * CAPACITY
    stranger = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        bench.start("--stop-workers")
        run.drive(surfaces, "ForeignMembers")
    finally:
        stranger.terminate()
        stranger.wait(60)
        bench.close()
    return {}


def measure_unplanned(run: DirtyRun) -> Figures:
    """Workers that know no plans: that a further plan is not followed either ends nothing."""
    topic = run.create_topic()
    group, patience = f"group-of-{topic}", {"startup-timeout": "5 s"}
    bench = SidecarBench(run.bootstrap, group, topic, run.folder, UNPLANNED_WORKER, **patience)
    surfaces = Surfaces(bench.config, bench.log, group)
    bench.flow.rate = 1.2 * CAPACITY
    try:
        bench.start("--stop-workers")
        run.drive(surfaces, "PlanNotFollowed")
        bench.flow.rate = 2.4 * CAPACITY
        wait(lambda: bench.plan().replicas >= 3 and bench.is_settled(), "three workers read")
        run.drive(surfaces, "PlanNotFollowed")
        ended = "condition PlanNotFollowed has ended"
        return {"ended": float(sum(ended in line for line in surfaces.lines))}
    finally:
        bench.close()


def measure_racks(run: DirtyRun) -> Figures:
    """A reader in a rack without a replica."""
    topic = run.create_topic()
    with advise_group(run.bootstrap, topic, run.folder, client=OTHER_RACK, heuristic="rack-aware") as group:
        run.drive(group.surfaces, "RacksUncovered")
    return {}


def _drive_unknown_group(run: DirtyRun, surfaces: Surfaces, workers: Path) -> None:
    """Let the target list no workers, as after a fault of its disk."""
    away = workers.rename(workers.with_name("away"))
    workers.touch()
    try:
        run.drive(surfaces, "GroupUnknown")
    finally:
        workers.unlink()
        away.rename(workers)


def _restart(bench: SidecarBench, **changes: object) -> None:
    if bench.process is not None:
        bench.process.terminate()
        bench.process.wait(60)
    bench.configure(**changes)
    bench.start("--stop-workers")


def _wait_until_well(group: AdvisedGroup) -> None:
    """Wait until no condition holds; then no surface may tell one."""
    surfaces = group.surfaces
    wait(lambda: "hold:" in "".join(surfaces.lines) and not surfaces.list_conditions(), "all is well")
