"""KEDA's answers after iterations of the loop, and rejected triggers."""

from dataclasses import replace

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.errors import ReplicaCountUnavailableError, TriggerMismatchError
from trimtab.sidecar.model.observation import RequestedReplicas
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.settings.settings import load_settings
from trimtab.sidecar.targets.keda.factory import compute_reported_replicas
from trimtab.sidecar.targets.keda.scaler_responses import (
    ScalerState,
    StalenessLimits,
    apply_report,
    require_replica_count,
)
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup, check_trigger_metadata
from trimtab.sidecar.targets.kubernetes.workload import Pod, Workload, WorkloadKind, WorkloadSnapshot

PATIENCE = StalenessLimits(unknown_iterations=3, silent_seconds=60.0)
BUSY = PartitionLoad(bytes_per_s=50.0, records_per_s=1.0, backlog_records=3)
QUIET = PartitionLoad(bytes_per_s=0.0, records_per_s=0.0, backlog_bytes=0.0, backlog_records=0)
UNKNOWN = PartitionLoad()
STEERED = ScaledGroup("a:9092,b:9092", "lake", ("orders", "clicks"), "earliest")


def report(load: PartitionLoad = BUSY, *, running: int | None = 2, leading: bool = True) -> IterationReport:
    """Return the report of an iteration; `running` None means unknown state."""
    decision = ScalingDecision(ScalingAction.HOLD, ("so it is",), DecisionMetrics(running_replicas=running))
    return IterationReport(
        time=0.0,
        decision=decision,
        write_rates={TopicPartition("t", 0): load},
        epoch=1,
        is_group_known=running is not None,
        decision_seconds=0.0,
        iteration_seconds=0.0,
        is_leader=leading,
    )


def state_after(*reports: IterationReport, requested: int | None = 2, at: float = 0.0) -> ScalerState:
    """Return the state after iterations ten seconds apart, each with `requested` as the requested count."""
    standing = ScalerState(replicas=requested, last_iteration_at=at)
    for number, one in enumerate(reports):
        standing = apply_report(standing, one, PATIENCE, at + 10.0 * number)
    return standing


def test_the_count_is_the_requested_one() -> None:
    """After an iteration with plan, pods and group KEDA gets the count, with known load or not."""
    assert require_replica_count(state_after(report(), requested=4), PATIENCE, 1.0) == 4
    assert require_replica_count(state_after(report(UNKNOWN), requested=4), PATIENCE, 1.0) == 4


@pytest.mark.parametrize(
    "standing", [state_after(), state_after(report(running=None))], ids=["no turn", "only unknown state"]
)
def test_the_count_is_unavailable_at_first(standing: ScalerState) -> None:
    """Before the first complete iteration the count is UNAVAILABLE, even if one was adopted."""
    with pytest.raises(ReplicaCountUnavailableError, match="has no replica count yet"):
        require_replica_count(standing, PATIENCE, 1.0)


def test_unknown_state_keeps_the_count_for_a_while() -> None:
    """Two unknown states change nothing; the third in a row makes the count UNAVAILABLE with the reason."""
    unknown = report(running=None)
    assert require_replica_count(state_after(report(), unknown, unknown), PATIENCE, 21.0) == 2
    assert (
        require_replica_count(state_after(report(), unknown, unknown, report(), unknown), PATIENCE, 41.0) == 2
    )
    with pytest.raises(ReplicaCountUnavailableError, match="so it is"):
        require_replica_count(state_after(report(), unknown, unknown, unknown), PATIENCE, 31.0)


def test_zero_needs_a_known_idle_group() -> None:
    """Zero needs every partition to be known without writes and backlog."""
    assert require_replica_count(state_after(report(QUIET), requested=0), PATIENCE, 1.0) == 0
    for load in (UNKNOWN, BUSY, PartitionLoad(bytes_per_s=0.0)):
        standing = replace(state_after(report(load)), replicas=0)
        with pytest.raises(ReplicaCountUnavailableError, match="may have records to read"):
            require_replica_count(standing, PATIENCE, 1.0)


def test_a_stopped_loop_makes_the_count_unavailable() -> None:
    """Without an iteration for too long the count is not reported."""
    standing = state_after(report())
    assert require_replica_count(standing, PATIENCE, 60.0) == 2
    with pytest.raises(ReplicaCountUnavailableError, match="no iteration for 61 s"):
        require_replica_count(standing, PATIENCE, 61.0)


@pytest.mark.parametrize(
    "standing",
    [
        state_after(report(), *[report(running=None)] * 3),
        state_after(report(), report(running=None, leading=False)),
        apply_report(state_after(report()), report(), PATIENCE, 100.0),
        state_after(report(UNKNOWN), requested=0),
    ],
    ids=["unknown state", "standing by", "stood still", "zero in the dark"],
)
def test_the_count_is_adopted_anew_after_an_outage(standing: ScalerState) -> None:
    """KEDA may have applied its fallback meanwhile, so the last count is dropped."""
    assert standing.replicas is None


def test_a_standby_makes_the_count_unavailable() -> None:
    """A standby says so, and does not repeat a count from when it led."""
    standing = replace(state_after(report(), report(running=None, leading=False)), replicas=5)
    with pytest.raises(ReplicaCountUnavailableError):
        require_replica_count(standing, PATIENCE, 11.0)


@pytest.mark.parametrize(
    "metadata",
    [
        {},
        {"scalerAddress": "here:1", "enableTLS": "false", "consumerGroup": "lake"},
        {"bootstrapServers": "b:9092, a:9092", "topic": "clicks,orders"},
        {"bootstrapServersFromEnv": "a:9092,b:9092", "offsetResetPolicy": "earliest"},
    ],
)
def test_triggers_of_this_group_are_accepted(metadata: dict[str, str]) -> None:
    """KEDA's names are accepted in any order, and from the workload's environment."""
    check_trigger_metadata(metadata, STEERED)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({"consumerGroup": "sea"}, "consumerGroup is 'sea', but this sidecar has 'lake'"),
        ({"topic": "orders"}, "topic is 'orders'"),
        ({"bootstrapServers": "c:9092"}, "bootstrapServers is 'c:9092'"),
        ({"offsetResetPolicy": "latest"}, "offsetResetPolicy is 'latest'"),
        ({"lagThreshold": "10"}, "lagThreshold has no effect"),
        ({"sasl": "plaintext"}, "sasl has no effect"),
        ({"consumergroup": "lake"}, "did you mean 'consumerGroup'"),
        ({"xyz": "1"}, "known keys: bootstrapServers"),
        ({"topic": "a", "consumerGroup": "b"}, "consumerGroup is 'b'.*; topic is 'a'"),
    ],
)
def test_other_triggers_are_rejected(metadata: dict[str, str], message: str) -> None:
    """All differing, useless and unknown keys are named at once."""
    with pytest.raises(TriggerMismatchError, match=message):
        check_trigger_metadata(metadata, STEERED)


def test_unset_settings_are_not_compared() -> None:
    """Without topics in its settings the sidecar accepts any topic."""
    given = {"bootstrap": "b:1", "group": "g", "capacity": "1 MB/s", "target": "keda"}
    steered = ScaledGroup.from_settings(load_settings(None, {**given, "workload": "deployment/lake"}))
    assert steered == ScaledGroup("b:1", "g", (), "latest")
    check_trigger_metadata({"topic": "whatever"}, steered)


def found(kind: WorkloadKind, replicas: int, marks: str) -> WorkloadSnapshot:
    """Return a workload with a requested count and live pods: x is marked, o is not."""
    request = RequestedReplicas(replicas, "KEDA", 0.0, is_ours=False)
    workload = Workload(kind, "w", "u", "1", replicas, request)
    pods = tuple(
        Pod(
            f"w-{n}",
            0.0,
            alive=True,
            ready=True,
            deletion_cost=None,
            previous_cost="" if mark == "x" else None,
            error=None,
        )
        for n, mark in enumerate(marks)
    )
    return WorkloadSnapshot(workload, pods)


@pytest.mark.parametrize(
    ("seen", "requested", "owing"),
    [
        (found(WorkloadKind.DEPLOYMENT, 3, "oox"), 2, 2),
        (found(WorkloadKind.DEPLOYMENT, 1, "o"), 3, 3),
        (found(WorkloadKind.DEPLOYMENT, 6, "oooooo"), 3, 6),
        (found(WorkloadKind.DEPLOYMENT, 3, "oooo"), 3, 3),
        (found(WorkloadKind.DEPLOYMENT, 1, "x"), 0, 0),
        (found(WorkloadKind.STATEFULSET, 3, "ooo"), 2, 2),
    ],
    ids=["draining", "growing", "others made more", "rollout", "the last one", "statefulset"],
)
def test_the_reported_count_covers_all_unmarked_pods(
    seen: WorkloadSnapshot, requested: int, owing: int
) -> None:
    """The reported count is at least the number of pods that are not draining."""
    assert compute_reported_replicas(seen, requested) == owing
