"""KEDA's external scaler: gRPC service externalscaler.ExternalScaler of `externalscaler.proto`.

A trigger for another group gets INVALID_ARGUMENT with the differing keys. An unknown replica count
gets UNAVAILABLE with the reason. With several groups the trigger's `consumerGroup` tells which.
"""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any, Final

import grpc

from trimtab.common.tls import create_server_context
from trimtab.sidecar.errors import (
    ReplicaCountUnavailableError,
    SidecarSettingError,
    StartupError,
    TriggerMismatchError,
)
from trimtab.sidecar.targets.keda import externalscaler_pb2 as proto
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import KEDA_METRIC_NAME, METRIC_PER_REPLICA
from trimtab.sidecar.targets.keda.trigger_metadata import (
    ScaledGroup,
    check_trigger_metadata,
    select_scaled_group,
)

SCALER_SERVICE_NAME: Final = "externalscaler.ExternalScaler"

# KEDA opens two streams per ScaledObject and replaces lost ones; each occupies a thread for as long
# as KEDA listens, and as many threads serve unary calls.
MAX_OPEN_STREAMS: Final = 16
CALLS_PER_STREAM: Final = 2
MAX_CONCURRENT_CALLS: Final = (
    CALLS_PER_STREAM * MAX_OPEN_STREAMS
)  # further ones are refused instead of queued
MAX_MESSAGE_BYTES: Final = 65536  # a trigger's metadata have some hundred bytes; gRPC's default is 4 MB
STOP_GRACE_PERIOD_S: Final = 1.0  # seconds that open calls may take to end when the service stops


@dataclass(frozen=True, slots=True)
class KeepaliveSettings:
    """gRPC keepalive in seconds."""

    # gRPC's default would close connections of clients that ping more often than every 5 minutes;
    # Go clients such as KEDA ping at most every 10 s.
    min_client_ping_interval: float = 9.0
    # Streams are silent for days, and only pings detect a dead peer. There is no maximum connection
    # age: KEDA would reopen the stream.
    ping_interval: float = 30.0
    ping_timeout: float = 10.0
    idle_timeout: float = 300.0  # of a connection without a call; KEDA's have streams

    @property
    def grpc_options(self) -> tuple[tuple[str, int], ...]:
        """Return the gRPC channel options."""
        return (
            ("grpc.http2.min_ping_interval_without_data_ms", int(self.min_client_ping_interval * 1000)),
            ("grpc.keepalive_time_ms", int(self.ping_interval * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.ping_timeout * 1000)),
            ("grpc.http2.ping_timeout_ms", int(self.ping_timeout * 1000)),  # the longer wins
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.max_connection_idle_ms", int(self.idle_timeout * 1000)),
            ("grpc.http2.max_pings_without_data", 0),  # no limit on own pings
        )


class ExternalScalerService:
    """Serves the replica counts to triggers whose metadata match their scaled group."""

    def __init__(
        self,
        replica_count: KedaReplicaCount | None = None,
        scaled_group: ScaledGroup | None = None,
        keepalive: KeepaliveSettings | None = None,
        max_streams: int = MAX_OPEN_STREAMS,
    ) -> None:
        """Serve this group, if one is given; further ones come by `add_group`."""
        self._groups: dict[str, tuple[KedaReplicaCount, ScaledGroup]] = {}
        if replica_count is not None and scaled_group is not None:
            self.add_group(replica_count, scaled_group)
        self._max_streams = max_streams
        self._stream_slots = BoundedSemaphore(max_streams)
        self._stopped = Event()
        calls = CALLS_PER_STREAM * max_streams  # a thread starts when a call needs it
        threads = ThreadPoolExecutor(calls, thread_name_prefix="trimtab-keda")
        exclusive = ("grpc.so_reuseport", 0)  # fail if another process listens on the port
        small = ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES)
        options = (exclusive, small, *(keepalive or KeepaliveSettings()).grpc_options)
        self._server = grpc.server(threads, options=options, maximum_concurrent_rpcs=calls)
        service = grpc.method_handlers_generic_handler(SCALER_SERVICE_NAME, self._build_handlers())
        self._server.add_generic_rpc_handlers((service,))

    def add_group(self, replica_count: KedaReplicaCount, scaled_group: ScaledGroup) -> None:
        """Serve the count of a group from now on."""
        self._groups[scaled_group.group] = (replica_count, scaled_group)

    def remove_group(self, group: str) -> None:
        """Serve a group no longer: its streams end, KEDA's next call is refused."""
        count, _ = self._groups.pop(group)
        count.wake_watchers()

    def start(self, host: str, port: int, credentials: grpc.ServerCredentials | None = None) -> int:
        """Start serving and return the port; plain text without credentials. Raises StartupError."""
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"  # an IPv6 address
        try:
            if credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise StartupError(
                f"gRPC service cannot listen on {host}:{port}; choose another grpc-port (0: any "
                "free port) or grpc-host"
            ) from error
        self._server.start()
        return bound

    def stop(self) -> None:
        """Stop serving and end all streams."""
        self._stopped.set()
        for count, _ in list(self._groups.values()):
            count.wake_watchers()
        self._server.stop(STOP_GRACE_PERIOD_S).wait()

    def _build_handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        one, many = grpc.unary_unary_rpc_method_handler, grpc.unary_stream_rpc_method_handler
        ref = proto.ScaledObjectRef.FromString
        return {
            "IsActive": one(self._is_active, ref, _serialize),
            "StreamIsActive": many(self._stream_is_active, ref, _serialize),
            "GetMetricSpec": one(self._get_metric_spec, ref, _serialize),
            "GetMetrics": one(self._get_metrics, proto.GetMetricsRequest.FromString, _serialize),
            "StreamMetricSpec": many(self._stream_metric_spec, ref, _serialize),
        }

    def _is_active(
        self, scaled_object: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> proto.IsActiveResponse:
        count = self._find_count(scaled_object, context)
        return proto.IsActiveResponse(result=_get_replicas(count, context) > 0)

    def _stream_is_active(
        self, scaled_object: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> Iterator[proto.IsActiveResponse]:
        count = self._find_count(scaled_object, context)
        with self._hold_stream_slot(count, context) as keep_watching:
            for active in count.watch_activity(keep_watching):
                yield proto.IsActiveResponse(result=active)

    def _get_metric_spec(
        self, scaled_object: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> proto.GetMetricSpecResponse:
        self._find_count(scaled_object, context)
        return _build_metric_spec()

    def _stream_metric_spec(
        self, scaled_object: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> Iterator[proto.GetMetricSpecResponse]:
        count = self._find_count(scaled_object, context)
        with self._hold_stream_slot(count, context) as keep_watching:
            yield _build_metric_spec()
            for _ in count.watch_activity(keep_watching):
                pass  # KEDA reopens a stream that ends

    def _get_metrics(
        self, request: proto.GetMetricsRequest, context: grpc.ServicerContext
    ) -> proto.GetMetricsResponse:
        known = self._find_count(request.scaledObjectRef, context)
        if request.metricName != KEDA_METRIC_NAME:
            message = f"unknown metric {request.metricName!r}; use {KEDA_METRIC_NAME!r}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        count = _get_replicas(known, context)
        value = proto.MetricValue(metricName=KEDA_METRIC_NAME, metricValue=count, metricValueFloat=count)
        return proto.GetMetricsResponse(metricValues=[value])

    def _find_count(
        self, scaled_object: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> KedaReplicaCount:
        try:
            count, scaled_group = select_scaled_group(scaled_object.scalerMetadata, self._groups)
            check_trigger_metadata(scaled_object.scalerMetadata, scaled_group)
        except TriggerMismatchError as error:
            message = f"ScaledObject {scaled_object.namespace}/{scaled_object.name}: {error}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, message)
        return count

    @contextmanager
    def _hold_stream_slot(
        self, count: KedaReplicaCount, context: grpc.ServicerContext
    ) -> Generator[Callable[[], bool]]:
        """Reserve a stream slot; yield the condition to keep the stream open."""
        if not self._stream_slots.acquire(blocking=False):
            message = f"all {self._max_streams} streams are in use"
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, message)
        try:
            context.add_callback(count.wake_watchers)  # else a lost stream keeps its slot
            yield lambda: context.is_active() and not self._stopped.is_set() and self._serves(count)
        finally:
            self._stream_slots.release()

    def _serves(self, count: KedaReplicaCount) -> bool:
        return any(served is count for served, _ in tuple(self._groups.values()))


def make_server_credentials(certificate: Path, key: Path, client_ca: Path | None) -> grpc.ServerCredentials:
    """Return TLS credentials; `client_ca` demands a client certificate of KEDA. Raises SettingError."""
    # checked here: gRPC reports an invalid pair at the first call only, without details
    create_server_context(certificate, key)
    try:
        authority = None if client_ca is None else client_ca.read_bytes()
    except OSError as error:
        raise SidecarSettingError(f"grpc-client-ca {client_ca}: {error.strerror}") from None
    pair = (key.read_bytes(), certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], authority, authority is not None)


def _get_replicas(count: KedaReplicaCount, context: grpc.ServicerContext) -> int:
    try:
        return count.get_replicas()
    except ReplicaCountUnavailableError as error:
        context.abort(grpc.StatusCode.UNAVAILABLE, str(error))


def _serialize(message: Any) -> bytes:
    value: bytes = message.SerializeToString()  # the generated stubs have no base class
    return value


def _build_metric_spec() -> proto.GetMetricSpecResponse:
    size = METRIC_PER_REPLICA  # both: older versions of KEDA read the integer
    spec = proto.MetricSpec(metricName=KEDA_METRIC_NAME, targetSize=size, targetSizeFloat=float(size))
    return proto.GetMetricSpecResponse(metricSpecs=[spec])
