"""KEDA's external scaler service, called by a client generated from the protocol file."""

import importlib.util
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import grpc
import pytest

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import SystemClock
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.decision.decision import DecisionMetrics, ScalingAction, ScalingDecision
from trimtab.sidecar.errors import StartupError
from trimtab.sidecar.records.iteration_report import IterationReport
from trimtab.sidecar.targets.keda import externalscaler_pb2 as proto
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import KEDA_METRIC_NAME, StalenessLimits
from trimtab.sidecar.targets.keda.scaler_service import (
    MAX_CONCURRENT_CALLS,
    MAX_OPEN_STREAMS,
    ExternalScalerService,
    KeepaliveSettings,
)
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup

ROOT = Path(__file__).parents[2]
PROTO = "trimtab/sidecar/targets/keda/externalscaler.proto"
HOST = "127.0.0.1"
LOADS = {
    0: PartitionLoad(bytes_per_s=0.0, records_per_s=0.0, backlog_records=0),
    1: PartitionLoad(bytes_per_s=9.0, records_per_s=1.0, backlog_records=5),
}


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def compiled(folder: Path, *outputs: str) -> Path:
    """Compile the protocol under its installed name; return the folder of the generated files."""
    (folder / "trimtab").mkdir(exist_ok=True)
    link = folder / "trimtab" / "sidecar"
    if not link.is_symlink():
        link.symlink_to(ROOT / "sidecar")
    made = folder / "made"
    made.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(folder)]
    subprocess.run([*command, *(f"--{o}={made}" for o in outputs), PROTO], cwd=folder, check=True)
    return made / Path(PROTO).parent


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The generated client."""
    made = compiled(tmp_path_factory.mktemp("proto"), "grpc_python_out")
    spec = importlib.util.spec_from_file_location("client", made / "externalscaler_pb2_grpc.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def report(active: int = 1, *, running: int | None = 1) -> IterationReport:
    """Report of an iteration with backlog, or without (0); `running` is None without a replica count."""
    decision = ScalingDecision(
        ScalingAction.HOLD, ("all is well",), DecisionMetrics(running_replicas=running)
    )
    return IterationReport(
        time=0.0, decision=decision, write_rates={TopicPartition("t", 0): LOADS[active]}, epoch=1,
        is_group_known=True, decision_seconds=0.0, iteration_seconds=0.0,
    )  # fmt: skip


@pytest.fixture
def replica_count() -> KedaReplicaCount:
    return KedaReplicaCount(StalenessLimits(unknown_iterations=2, silent_seconds=60.0), SystemClock())


@pytest.fixture
def service(replica_count: KedaReplicaCount) -> Iterator[tuple[ExternalScalerService, int]]:
    made = ExternalScalerService(replica_count, ScaledGroup("b:1", "lake", ("orders",), "latest"))
    yield made, made.start(HOST, 0)
    made.stop()


@pytest.fixture
def client(service: tuple[ExternalScalerService, int], generated: ModuleType) -> Iterator[Any]:
    with grpc.insecure_channel(f"{HOST}:{service[1]}") as channel:
        yield generated.ExternalScalerStub(channel)


def scaled_object(**metadata: str) -> proto.ScaledObjectRef:
    return proto.ScaledObjectRef(name="lake", namespace="default", scalerMetadata=metadata)


def metrics(client: Any, name: str = KEDA_METRIC_NAME) -> Any:
    request = proto.GetMetricsRequest(scaledObjectRef=scaled_object(), metricName=name)
    return client.GetMetrics(request, timeout=20)


def test_the_generated_code_matches_the_protocol(tmp_path: Path) -> None:
    """`make proto` changes no committed file."""
    made = compiled(tmp_path, "python_out", "pyi_out")
    for name in ("externalscaler_pb2.py", "externalscaler_pb2.pyi"):
        assert (made / name).read_text() == (ROOT / "sidecar" / "targets" / "keda" / name).read_text()


def test_the_metric_is_the_replica_count_with_target_1(client: Any, replica_count: KedaReplicaCount) -> None:
    """The one metric is in the fields of new and of old versions of KEDA."""
    replica_count.get_or_adopt(1)
    replica_count.set_replicas(4)
    replica_count(report())
    (spec,) = client.GetMetricSpec(scaled_object(consumerGroup="lake"), timeout=20).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat, spec.targetSize) == (KEDA_METRIC_NAME, 1.0, 1)
    (value,) = metrics(client).metricValues
    assert (value.metricName, value.metricValueFloat, value.metricValue) == (KEDA_METRIC_NAME, 4.0, 4)
    assert client.IsActive(scaled_object(), timeout=20).result


def test_an_unknown_replica_count_is_unavailable(client: Any, replica_count: KedaReplicaCount) -> None:
    """Before the first iteration, and after unknown states, both calls give the reason; the spec is known."""
    replica_count.get_or_adopt(3)
    for _ in range(2):
        for ask in (lambda: metrics(client), lambda: client.IsActive(scaled_object(), timeout=20)):
            with pytest.raises(grpc.RpcError) as caught:
                ask()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "the sidecar" in caught.value.details()
        assert client.GetMetricSpec(scaled_object(), timeout=20).metricSpecs
        replica_count(report())
        replica_count(report(running=None))
        replica_count(report(running=None))


def test_a_wrong_trigger_is_named(client: Any, replica_count: KedaReplicaCount) -> None:
    """Every call and stream refuses it and names the ScaledObject and its metadata."""
    replica_count.get_or_adopt(3)
    replica_count(report())
    wrong = scaled_object(consumerGroup="sea")
    calls: list[Callable[[], object]] = [
        lambda: client.IsActive(wrong, timeout=20),
        lambda: client.GetMetricSpec(wrong, timeout=20),
        lambda: client.GetMetrics(proto.GetMetricsRequest(scaledObjectRef=wrong), timeout=20),
        lambda: next(client.StreamIsActive(wrong, timeout=20)),
        lambda: next(client.StreamMetricSpec(wrong, timeout=20)),
    ]
    for call in calls:
        with pytest.raises(grpc.RpcError) as caught:
            call()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "default/lake: consumerGroup is 'sea'" in caught.value.details()


def test_an_unknown_metric_is_named(client: Any, replica_count: KedaReplicaCount) -> None:
    """Only the one metric exists; others are refused."""
    replica_count.get_or_adopt(3)
    replica_count(report())
    with pytest.raises(grpc.RpcError, match="unknown metric 'lag'") as caught:
        metrics(client, "lag")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_activity_is_pushed_when_it_changes(client: Any, replica_count: KedaReplicaCount) -> None:
    """Each change is pushed at once, and nothing while the state is unknown."""
    stream = client.StreamIsActive(scaled_object(), timeout=60)
    replica_count.get_or_adopt(0)
    replica_count(report(0))
    assert not next(stream).result
    replica_count.set_replicas(1)
    assert next(stream).result
    replica_count(report())
    replica_count.set_replicas(5)
    replica_count(report(running=None))
    replica_count(report(running=None))
    replica_count.get_or_adopt(5)
    replica_count(report(0))
    replica_count.set_replicas(0)
    assert not next(stream).result
    stream.cancel()


def test_the_spec_is_pushed_once_and_the_stream_stays_open(
    client: Any, service: tuple[ExternalScalerService, int], replica_count: KedaReplicaCount
) -> None:
    """KEDA gets it when it opens the stream, which ends with the service only."""
    stream = client.StreamMetricSpec(scaled_object(), timeout=60)
    (spec,) = next(stream).metricSpecs
    assert spec.metricName == KEDA_METRIC_NAME
    replica_count.get_or_adopt(2)
    replica_count(report())
    service[0].stop()
    with suppress(grpc.RpcError):  # cancelled or ended
        assert list(stream) == []
    assert stream.done()


def test_streams_leave_capacity_for_calls(
    client: Any, replica_count: KedaReplicaCount, eventually: Eventually
) -> None:
    """Streams above the limit are refused; a cancelled stream frees its place."""
    replica_count.get_or_adopt(2)
    replica_count(report())
    streams = [client.StreamIsActive(scaled_object(), timeout=60) for _ in range(MAX_OPEN_STREAMS)]
    assert all(next(stream).result for stream in streams)
    with pytest.raises(grpc.RpcError) as caught:
        next(client.StreamIsActive(scaled_object(), timeout=20))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.IsActive(scaled_object(), timeout=20).result
    for stream in streams:
        stream.cancel()

    def again() -> bool:
        stream = client.StreamIsActive(scaled_object(), timeout=20)
        try:
            return bool(next(stream).result)
        except grpc.RpcError:
            return False
        finally:
            stream.cancel()

    eventually(again)


class Peer:
    """Minimal HTTP/2 client: the test sends pings and leaves the service's unanswered."""

    PING, GOAWAY = 6, 7

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), 10)
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        self._read = b""

    def ping(self) -> None:
        self._socket.sendall(b"\x00\x00\x08\x06" + bytes(13))

    def frames(self, seconds: float) -> list[tuple[int, int]] | None:
        """Return type and flags of the frames until `seconds` of silence; None if the peer closed."""
        self._socket.settimeout(seconds)
        with suppress(TimeoutError):
            while part := self._socket.recv(4096):
                self._read += part
            return None
        found: list[tuple[int, int]] = []
        while len(self._read) >= 9:
            found.append((self._read[3], self._read[4]))
            self._read = self._read[9 + int.from_bytes(self._read[:3], "big") :]
        return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def impatient(replica_count: KedaReplicaCount) -> Iterator[Peer]:
    """Client of a service whose keepalive times are a hundredth of the usual."""
    made = ExternalScalerService(
        replica_count, ScaledGroup("b:1", "lake", (), "latest"), KeepaliveSettings(0.1, 2.0, 0.5)
    )
    peer = Peer(made.start(HOST, 0))
    yield peer
    peer.close()
    made.stop()


def test_a_client_may_ping(impatient: Peer) -> None:
    """Each ping is answered, also without calls; the connection stays open."""
    seen = []
    for _ in range(6):
        impatient.ping()
        seen += impatient.frames(0.2) or []
    assert seen.count((Peer.PING, 1)) == 6
    assert not [kind for kind, _ in seen if kind == Peer.GOAWAY]


def test_a_client_that_answers_no_ping_is_disconnected(impatient: Peer) -> None:
    """Its connection is closed after the ping timeout."""
    assert impatient.frames(20.0) is None


def test_keepalive_times_fit_kedas() -> None:
    """A Go client pings at most every 10 s, and timers are not exact."""
    assert (
        KeepaliveSettings().min_client_ping_interval
        < 10
        <= KeepaliveSettings().ping_timeout
        < KeepaliveSettings().ping_interval
    )


def test_a_port_in_use_is_named(
    service: tuple[ExternalScalerService, int], replica_count: KedaReplicaCount
) -> None:
    """A second service on the port fails to start, with a remedy."""
    second = ExternalScalerService(replica_count, ScaledGroup("b:1", "lake", (), "latest"))
    with pytest.raises(StartupError, match="choose another grpc-port"):
        second.start(HOST, service[1])
    second.stop()


def test_calls_beyond_the_limit_are_refused(
    client: Any, replica_count: KedaReplicaCount, eventually: Eventually
) -> None:
    """A flood of calls takes neither threads nor memory without bound; the next call is served."""
    replica_count.set_replicas(1)
    replica_count(report())
    with replica_count._changed:  # no call can be answered meanwhile
        calls = [client.IsActive.future(scaled_object(), timeout=60) for _ in range(200)]
        eventually(lambda: sum(call.done() for call in calls) == 200 - MAX_CONCURRENT_CALLS)
    refused = [call for call in calls if call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED]
    assert len(refused) == 200 - MAX_CONCURRENT_CALLS
    assert client.IsActive(scaled_object(), timeout=20).result


def test_a_large_message_is_refused(client: Any, replica_count: KedaReplicaCount) -> None:
    """A trigger's metadata are small; a megabyte of them is not read."""
    replica_count.set_replicas(1)
    replica_count(report())
    with pytest.raises(grpc.RpcError) as caught:
        client.IsActive(scaled_object(topic="orders" + " " * 2**20), timeout=20)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


def test_one_service_serves_many_groups_by_the_name_in_the_trigger(
    generated: ModuleType, replica_count: KedaReplicaCount
) -> None:
    """Each ScaledObject gets the count of the group that it names; without a known name it is refused."""
    clicks = KedaReplicaCount(StalenessLimits(unknown_iterations=2, silent_seconds=60.0), SystemClock())
    made = ExternalScalerService()
    for count, group, replicas in ((replica_count, "lake", 3), (clicks, "clicks", 5)):
        count.get_or_adopt(replicas)
        count(report())
        made.add_group(count, ScaledGroup("b:1", group, (), "latest"))
    port = made.start(HOST, 0)

    def ask(**metadata: str) -> float:
        named = scaled_object(**metadata)
        request = proto.GetMetricsRequest(scaledObjectRef=named, metricName=KEDA_METRIC_NAME)
        (value,) = stub.GetMetrics(request, timeout=20).metricValues
        return float(value.metricValueFloat)

    with grpc.insecure_channel(f"{HOST}:{port}") as channel:
        stub = generated.ExternalScalerStub(channel)
        assert (ask(consumerGroup="lake"), ask(consumerGroup="clicks")) == (3.0, 5.0)
        for metadata, text in (({}, "consumerGroup is missing"), ({"consumerGroup": "other"}, "'other'")):
            with pytest.raises(grpc.RpcError, match=text) as caught:
                ask(**metadata)
            assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        stream = stub.StreamIsActive(scaled_object(consumerGroup="clicks"), timeout=10)
        assert next(stream).result
        made.remove_group("clicks")
        assert list(stream) == []  # KEDA opens another, which may get the group's next count
        with pytest.raises(grpc.RpcError, match="clicks"):
            ask(consumerGroup="clicks")
    made.stop()
