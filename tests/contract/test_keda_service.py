"""The service that KEDA asks, by a client that is generated from our own protocol file."""

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
from trimtab.sidecar.reporting.iteration_report import IterationReport
from trimtab.sidecar.targets.keda import externalscaler_pb2 as proto
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import KEDA_METRIC_NAME, StalenessLimits
from trimtab.sidecar.targets.keda.scaler_service import (
    MAX_OPEN_STREAMS,
    ExternalScalerService,
    KeepaliveSettings,
)
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup

ROOT = Path(__file__).parents[2]
PROTO = "trimtab/sidecar/targets/keda/externalscaler.proto"
HOST = "127.0.0.1"
SPEEDS = {
    0: PartitionLoad(bytes_per_s=0.0, records_per_s=0.0, backlog_records=0),
    1: PartitionLoad(bytes_per_s=9.0, records_per_s=1.0, backlog_records=5),
}


class Eventually(Protocol):
    def __call__(self, condition: Callable[[], object], timeout: float = 30.0) -> None: ...


def compiled(folder: Path, *outputs: str) -> Path:
    """Compile the protocol under its installed name; return where the files are."""
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
    """The client's code, fresh from the compiler."""
    made = compiled(tmp_path_factory.mktemp("proto"), "grpc_python_out")
    spec = importlib.util.spec_from_file_location("client", made / "externalscaler_pb2_grpc.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def turn(awake: int = 1, *, running: int | None = 1) -> IterationReport:
    """A turn that saw something to read, or nothing (0); `running` of None: it was blind."""
    verdict = ScalingDecision(ScalingAction.HOLD, ("all is well",), DecisionMetrics(running_replicas=running))
    return IterationReport(
        time=0.0, decision=verdict, write_rates={TopicPartition("t", 0): SPEEDS[awake]}, epoch=1,
        is_group_known=True, decision_seconds=0.0, iteration_seconds=0.0,
    )  # fmt: skip


@pytest.fixture
def desk() -> KedaReplicaCount:
    return KedaReplicaCount(StalenessLimits(blind_iterations=2, silent_seconds=60.0), SystemClock())


@pytest.fixture
def service(desk: KedaReplicaCount) -> Iterator[tuple[ExternalScalerService, int]]:
    made = ExternalScalerService(desk, ScaledGroup("b:1", "lake", ("orders",), "latest"))
    yield made, made.start(HOST, 0)
    made.stop()


@pytest.fixture
def client(service: tuple[ExternalScalerService, int], generated: ModuleType) -> Iterator[Any]:
    with grpc.insecure_channel(f"{HOST}:{service[1]}") as channel:
        yield generated.ExternalScalerStub(channel)


def asked(**metadata: str) -> proto.ScaledObjectRef:
    return proto.ScaledObjectRef(name="lake", namespace="default", scalerMetadata=metadata)


def metrics(client: Any, name: str = KEDA_METRIC_NAME) -> Any:
    request = proto.GetMetricsRequest(scaledObjectRef=asked(), metricName=name)
    return client.GetMetrics(request, timeout=20)


def test_the_committed_code_is_of_this_protocol(tmp_path: Path) -> None:
    """`make proto` would change nothing."""
    made = compiled(tmp_path, "python_out", "pyi_out")
    for name in ("externalscaler_pb2.py", "externalscaler_pb2.pyi"):
        assert (made / name).read_text() == (ROOT / "sidecar" / "targets" / "keda" / name).read_text()


def test_the_count_and_what_it_is_divided_by(client: Any, desk: KedaReplicaCount) -> None:
    """One metric, one replica each, in the fields of new and of old versions of KEDA."""
    desk.get_or_adopt(1)
    desk.set_replicas(4)
    desk(turn())
    (spec,) = client.GetMetricSpec(asked(consumerGroup="lake"), timeout=20).metricSpecs
    assert (spec.metricName, spec.targetSizeFloat, spec.targetSize) == (KEDA_METRIC_NAME, 1.0, 1)
    (value,) = metrics(client).metricValues
    assert (value.metricName, value.metricValueFloat, value.metricValue) == (KEDA_METRIC_NAME, 4.0, 4)
    assert client.IsActive(asked(), timeout=20).result


def test_what_is_not_known_is_unavailable(client: Any, desk: KedaReplicaCount) -> None:
    """Before the first turn, and after blind ones, both questions say why; the spec is there."""
    desk.get_or_adopt(3)
    for _ in range(2):
        for ask in (lambda: metrics(client), lambda: client.IsActive(asked(), timeout=20)):
            with pytest.raises(grpc.RpcError) as caught:
                ask()
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            assert "the sidecar" in caught.value.details()
        assert client.GetMetricSpec(asked(), timeout=20).metricSpecs
        desk(turn())
        desk(turn(running=None))
        desk(turn(running=None))


def test_a_wrong_trigger_is_named(client: Any, desk: KedaReplicaCount) -> None:
    """Every call refuses it, streams too, and says which ScaledObject and which name."""
    desk.get_or_adopt(3)
    desk(turn())
    wrong = asked(consumerGroup="sea")
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


def test_an_unknown_metric_is_named(client: Any, desk: KedaReplicaCount) -> None:
    """There is one; others are refused."""
    desk.get_or_adopt(3)
    desk(turn())
    with pytest.raises(grpc.RpcError, match="unknown metric 'lag'") as caught:
        metrics(client, "lag")
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def test_activity_is_pushed_when_it_changes(client: Any, desk: KedaReplicaCount) -> None:
    """Nothing until it is known, then each change at once, and nothing while it is not known."""
    stream = client.StreamIsActive(asked(), timeout=60)
    desk.get_or_adopt(0)
    desk(turn(0))
    assert not next(stream).result
    desk.set_replicas(1)
    assert next(stream).result
    desk(turn())
    desk.set_replicas(5)
    desk(turn(running=None))
    desk(turn(running=None))
    desk.get_or_adopt(5)
    desk(turn(0))
    desk.set_replicas(0)
    assert not next(stream).result
    stream.cancel()


def test_the_spec_is_pushed_once_and_the_stream_stays(
    client: Any, service: tuple[ExternalScalerService, int], desk: KedaReplicaCount
) -> None:
    """KEDA gets it when it opens the stream, which ends with the service only."""
    stream = client.StreamMetricSpec(asked(), timeout=60)
    (spec,) = next(stream).metricSpecs
    assert spec.metricName == KEDA_METRIC_NAME
    desk.get_or_adopt(2)
    desk(turn())
    service[0].stop()
    with suppress(grpc.RpcError):  # cancelled, or ended: either will do
        assert list(stream) == []
    assert stream.done()


def test_streams_leave_room_for_questions(
    client: Any, desk: KedaReplicaCount, eventually: Eventually
) -> None:
    """More streams than there is room for are refused; those that KEDA leaves make room."""
    desk.get_or_adopt(2)
    desk(turn())
    streams = [client.StreamIsActive(asked(), timeout=60) for _ in range(MAX_OPEN_STREAMS)]
    assert all(next(stream).result for stream in streams)
    with pytest.raises(grpc.RpcError) as caught:
        next(client.StreamIsActive(asked(), timeout=20))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert client.IsActive(asked(), timeout=20).result
    for stream in streams:
        stream.cancel()

    def again() -> bool:
        stream = client.StreamIsActive(asked(), timeout=20)
        try:
            return bool(next(stream).result)
        except grpc.RpcError:
            return False
        finally:
            stream.cancel()

    eventually(again)


class Peer:
    """The least of HTTP/2: frames, so that pings are ours to send and to leave unanswered."""

    PING, GOAWAY = 6, 7

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), 10)
        self._socket.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5))
        self._read = b""

    def ping(self) -> None:
        self._socket.sendall(b"\x00\x00\x08\x06" + bytes(13))

    def frames(self, seconds: float) -> list[tuple[int, int]] | None:
        """Return type and flags of what comes until it is quiet so long; None: it has hung up."""
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
def pinged(desk: KedaReplicaCount) -> Iterator[Peer]:
    """A peer of a service that counts in tenths of seconds what it counts in tens."""
    made = ExternalScalerService(
        desk, ScaledGroup("b:1", "lake", (), "latest"), KeepaliveSettings(0.1, 2.0, 0.5)
    )
    peer = Peer(made.start(HOST, 0))
    yield peer
    peer.close()
    made.stop()


def test_a_client_may_ping_to_see_that_we_are_there(pinged: Peer) -> None:
    """Each ping is answered, and nobody is sent away for it, though nothing else is said."""
    seen = []
    for _ in range(6):
        pinged.ping()
        seen += pinged.frames(0.2) or []
    assert seen.count((Peer.PING, 1)) == 6
    assert not [kind for kind, _ in seen if kind == Peer.GOAWAY]


def test_a_client_that_is_gone_without_a_word_is_let_go(pinged: Peer) -> None:
    """It is pinged, answers nothing, and holds its place for no longer than that takes."""
    assert pinged.frames(20.0) is None


def test_pings_are_as_keda_has_them() -> None:
    """A client in Go pings every 10 s at the most, and timers are not exact."""
    assert (
        KeepaliveSettings().min_client_ping_interval
        < 10
        <= KeepaliveSettings().ping_timeout
        < KeepaliveSettings().ping_interval
    )


def test_a_port_in_use_is_named(service: tuple[ExternalScalerService, int], desk: KedaReplicaCount) -> None:
    """A second service on the port does not start, and says what to do."""
    second = ExternalScalerService(desk, ScaledGroup("b:1", "lake", (), "latest"))
    with pytest.raises(StartupError, match="choose another grpc-port"):
        second.start(HOST, service[1])
    second.stop()
