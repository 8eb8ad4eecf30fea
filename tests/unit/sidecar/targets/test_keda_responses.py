"""What KEDA is answered after which turns, and which triggers are refused."""

from dataclasses import replace

import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.errors import ReplicaCountUnavailableError, TriggerMismatchError
from trimtab.sidecar.measurement.observation import RequestedReplicas
from trimtab.sidecar.reporting.iteration_report import IterationReport
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

PATIENCE = StalenessLimits(blind_iterations=3, silent_seconds=60.0)
BUSY = PartitionLoad(bytes_per_s=50.0, records_per_s=1.0, backlog_records=3)
QUIET = PartitionLoad(bytes_per_s=0.0, records_per_s=0.0, backlog_bytes=0.0, backlog_records=0)
UNKNOWN = PartitionLoad()
STEERED = ScaledGroup("a:9092,b:9092", "lake", ("orders", "clicks"), "earliest")


def report(speed: PartitionLoad = BUSY, *, running: int | None = 2, leading: bool = True) -> IterationReport:
    """A turn; `running` of None is one that was blind."""
    verdict = ScalingDecision(ScalingAction.HOLD, ("so it is",), DecisionMetrics(running_replicas=running))
    return IterationReport(
        time=0.0,
        decision=verdict,
        write_rates={TopicPartition("t", 0): speed},
        epoch=1,
        is_group_known=running is not None,
        decision_seconds=0.0,
        iteration_seconds=0.0,
        is_leader=leading,
    )


def turned(*reports: IterationReport, told: int | None = 2, at: float = 0.0) -> ScalerState:
    """What turns ten seconds apart leave, the first at a time; each finds `told` asked for."""
    standing = ScalerState(replicas=told, last_iteration_at=at)
    for number, one in enumerate(reports):
        standing = apply_report(standing, one, PATIENCE, at + 10.0 * number)
    return standing


def test_the_count_is_what_the_target_was_asked_for() -> None:
    """After a turn that knew everything KEDA gets the count, the load being known or not."""
    assert require_replica_count(turned(report(), told=4), PATIENCE, 1.0) == 4
    assert require_replica_count(turned(report(UNKNOWN), told=4), PATIENCE, 1.0) == 4


@pytest.mark.parametrize(
    "standing", [turned(), turned(report(running=None))], ids=["no turn", "only a blind one"]
)
def test_nothing_is_answered_at_first(standing: ScalerState) -> None:
    """Before a turn has known everything there is no answer, whatever count was found."""
    with pytest.raises(ReplicaCountUnavailableError, match="has no replica count yet"):
        require_replica_count(standing, PATIENCE, 1.0)


def test_blind_turns_leave_the_count_for_a_while() -> None:
    """Two blind turns change nothing; the third in a row ends the answers and says why."""
    blind = report(running=None)
    assert require_replica_count(turned(report(), blind, blind), PATIENCE, 21.0) == 2
    assert require_replica_count(turned(report(), blind, blind, report(), blind), PATIENCE, 41.0) == 2
    with pytest.raises(ReplicaCountUnavailableError, match="so it is"):
        require_replica_count(turned(report(), blind, blind, blind), PATIENCE, 31.0)


def test_zero_is_answered_only_where_idleness_is_known() -> None:
    """Nothing written and nothing waiting, known of every partition: else never zero."""
    assert require_replica_count(turned(report(QUIET), told=0), PATIENCE, 1.0) == 0
    for speed in (UNKNOWN, BUSY, PartitionLoad(bytes_per_s=0.0)):
        standing = replace(turned(report(speed)), replicas=0)
        with pytest.raises(ReplicaCountUnavailableError, match="may have records to read"):
            require_replica_count(standing, PATIENCE, 1.0)


def test_a_loop_that_stands_still_is_no_answer() -> None:
    """A count grows old: without a turn for longer than the patience it is not told."""
    standing = turned(report())
    assert require_replica_count(standing, PATIENCE, 60.0) == 2
    with pytest.raises(ReplicaCountUnavailableError, match="no iteration for 61 s"):
        require_replica_count(standing, PATIENCE, 61.0)


@pytest.mark.parametrize(
    "standing",
    [
        turned(report(), *[report(running=None)] * 3),
        turned(report(), report(running=None, leading=False)),
        apply_report(turned(report()), report(), PATIENCE, 100.0),
        turned(report(UNKNOWN), told=0),
    ],
    ids=["blind", "standing by", "stood still", "zero in the dark"],
)
def test_after_no_answer_the_count_is_looked_up_anew(standing: ScalerState) -> None:
    """KEDA may have fallen back meanwhile: what was told before is forgotten."""
    assert standing.replicas is None


def test_another_leader_is_no_answer() -> None:
    """One that stands by says so, and does not vouch for what it said as a leader."""
    standing = replace(turned(report(), report(running=None, leading=False)), replicas=5)
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
def test_triggers_that_mean_this_group(metadata: dict[str, str]) -> None:
    """KEDA's own names may be given, in any order, and by the workload's environment."""
    check_trigger_metadata(metadata, STEERED)


@pytest.mark.parametrize(
    ("metadata", "said"),
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
def test_other_triggers_are_refused_by_name(metadata: dict[str, str], said: str) -> None:
    """Each name that differs, means nothing or is not known is told, all at once."""
    with pytest.raises(TriggerMismatchError, match=said):
        check_trigger_metadata(metadata, STEERED)


def test_what_the_sidecar_was_not_told_is_not_compared() -> None:
    """Without topics in its settings it takes what the group reads, so any will do."""
    given = {"bootstrap": "b:1", "group": "g", "capacity": "1 MB/s", "target": "keda"}
    steered = ScaledGroup.from_settings(load_settings(None, {**given, "workload": "deployment/lake"}))
    assert steered == ScaledGroup("b:1", "g", (), "latest")
    check_trigger_metadata({"topic": "whatever"}, steered)


def found(kind: WorkloadKind, replicas: int, marks: str) -> WorkloadSnapshot:
    """A workload that asks for so many, and its live pods: x has our mark, o has not."""
    asked = RequestedReplicas(replicas, "KEDA", 0.0, is_ours=False)
    workload = Workload(kind, "w", "u", "1", replicas, asked)
    pods = tuple(
        Pod(
            f"w-{n}",
            0.0,
            alive=True,
            ready=True,
            deletion_cost=None,
            previous_cost="" if mark == "x" else None,
            trouble=None,
        )
        for n, mark in enumerate(marks)
    )
    return WorkloadSnapshot(workload, pods)


@pytest.mark.parametrize(
    ("seen", "told", "owing"),
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
def test_no_pod_that_stays_is_told_away(seen: WorkloadSnapshot, told: int, owing: int) -> None:
    """The count is at least that of the pods that nobody has drained."""
    assert compute_reported_replicas(seen, told) == owing
