"""The gRPC service that KEDA asks: service externalscaler.ExternalScaler of `externalscaler.proto`.

A trigger that means another group is INVALID_ARGUMENT and says which name differs; a count that is
not known is UNAVAILABLE and says why. A stream holds a thread for as long as KEDA listens, so only
so many are open at once, and as many threads again answer single calls.

Streams are silent for days, so both sides may look by pings whether the other is there: KEDA's are
borne (gRPC's default ends the connection of who pings more often than every 5 minutes), and one
that answers none of ours, as after its node died, is let go with its streams. Connections have no
greatest age: KEDA would only open the same stream again.
"""

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Event
from typing import Any, Final

import grpc

from trimtab.common.kafka_security.tls import server_context
from trimtab.sidecar.errors import BadSetting, CannotStart, CountUnknown, TriggerMismatch
from trimtab.sidecar.targets.keda import externalscaler_pb2 as proto
from trimtab.sidecar.targets.keda.replica_count import Desk
from trimtab.sidecar.targets.keda.scaler_responses import METRIC, PER_REPLICA
from trimtab.sidecar.targets.keda.trigger_metadata import Steered, check

SERVICE: Final = "externalscaler.ExternalScaler"

STREAMS: Final = 16
"""Open at once: KEDA has two of a ScaledObject, and opens new ones where it lost the old."""

GRACE: Final = 1.0
"""Seconds that calls have to end when the service does."""


@dataclass(frozen=True, slots=True)
class Pings:
    """Seconds: between a client's pings at least, until ours, and until one counts as unanswered.

    Clients written in Go, as KEDA is, do not ping more often than every 10 s.
    """

    allowed: float = 9.0
    sent: float = 30.0
    answered: float = 10.0

    @property
    def options(self) -> tuple[tuple[str, int], ...]:
        """Return gRPC's options for this."""
        return (
            ("grpc.http2.min_ping_interval_without_data_ms", int(self.allowed * 1000)),
            ("grpc.keepalive_time_ms", int(self.sent * 1000)),
            ("grpc.keepalive_timeout_ms", int(self.answered * 1000)),
            ("grpc.http2.ping_timeout_ms", int(self.answered * 1000)),  # the longer one holds
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),  # of ours: as many as it takes
        )


class Service:
    """Answers KEDA from what lies on the desk, for triggers that mean what is steered."""

    def __init__(self, desk: Desk, steered: Steered, pings: Pings | None = None) -> None:
        self._desk = desk
        self._steered = steered
        self._streams = BoundedSemaphore(STREAMS)
        self._ended = Event()
        self._server = grpc.server(
            ThreadPoolExecutor(2 * STREAMS, thread_name_prefix="trimtab-keda"),
            options=(
                ("grpc.so_reuseport", 0),  # else a second one on the port is not noticed
                *(pings or Pings()).options,
            ),
        )
        self._server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, self._handlers()),)
        )

    def start(self, host: str, port: int, credentials: grpc.ServerCredentials | None = None) -> int:
        """Begin to serve, without credentials in plain text; return the port.

        Raises CannotStart.
        """
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        try:
            if credentials is None:
                bound = self._server.add_insecure_port(address)
            else:
                bound = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise CannotStart(
                f"gRPC {host}:{port} cannot be listened on; choose another grpc-port (0: a free "
                "one) or grpc-host"
            ) from error
        self._server.start()
        return bound

    def stop(self) -> None:
        """Stop serving; streams end."""
        self._ended.set()
        self._desk.wake()
        self._server.stop(GRACE).wait()

    def _handlers(self) -> dict[str, "grpc.RpcMethodHandler[Any, Any]"]:
        ref, one, many = proto.ScaledObjectRef.FromString, _single, _streamed
        return {
            "IsActive": one(self._is_active, ref),
            "StreamIsActive": many(self._stream_is_active, ref),
            "GetMetricSpec": one(self._metric_spec, ref),
            "GetMetrics": one(self._metrics, proto.GetMetricsRequest.FromString),
            "StreamMetricSpec": many(self._stream_metric_spec, ref),
        }

    def _is_active(
        self, asked: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> proto.IsActiveResponse:
        self._check(asked, context)
        return proto.IsActiveResponse(result=self._count(context) > 0)

    def _stream_is_active(
        self, asked: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> Iterator[proto.IsActiveResponse]:
        self._check(asked, context)
        with self._held(context) as going:
            for active in self._desk.activity(going):
                yield proto.IsActiveResponse(result=active)

    def _metric_spec(
        self, asked: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> proto.GetMetricSpecResponse:
        self._check(asked, context)
        return _spec()

    def _stream_metric_spec(
        self, asked: proto.ScaledObjectRef, context: grpc.ServicerContext
    ) -> Iterator[proto.GetMetricSpecResponse]:
        """Say it once and listen on: it never changes, and KEDA would ask again at an end."""
        self._check(asked, context)
        with self._held(context) as going:
            yield _spec()
            for _ in self._desk.activity(going):
                pass

    def _metrics(
        self, asked: proto.GetMetricsRequest, context: grpc.ServicerContext
    ) -> proto.GetMetricsResponse:
        self._check(asked.scaledObjectRef, context)
        if asked.metricName != METRIC:
            what = f"metric {asked.metricName!r} is not known; there is {METRIC!r}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, what)
        count = self._count(context)
        value = proto.MetricValue(metricName=METRIC, metricValue=count, metricValueFloat=count)
        return proto.GetMetricsResponse(metricValues=[value])

    def _check(self, asked: proto.ScaledObjectRef, context: grpc.ServicerContext) -> None:
        try:
            check(asked.scalerMetadata, self._steered)
        except TriggerMismatch as error:
            said = f"ScaledObject {asked.namespace}/{asked.name}: {error}"
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, said)

    def _count(self, context: grpc.ServicerContext) -> int:
        try:
            return self._desk.count()
        except CountUnknown as error:
            context.abort(grpc.StatusCode.UNAVAILABLE, str(error))

    @contextmanager
    def _held(self, context: grpc.ServicerContext) -> Generator[Callable[[], bool]]:
        """Hold a place of a stream; gives whether it is to go on."""
        if not self._streams.acquire(blocking=False):
            said = f"{STREAMS} streams are open already"
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, said)
        try:
            context.add_callback(self._desk.wake)
            yield lambda: context.is_active() and not self._ended.is_set()
        finally:
            self._streams.release()


def credentials(certificate: Path, key: Path, client_ca: Path | None) -> grpc.ServerCredentials:
    """Return what the service speaks TLS with; with a `client_ca` KEDA must show a certificate.

    Raises SettingError.
    """
    server_context(certificate, key)  # gRPC would only find out, and say little, at the first call
    try:
        authority = None if client_ca is None else client_ca.read_bytes()
    except OSError as error:
        raise BadSetting(f"grpc-client-ca {client_ca}: {error.strerror}") from None
    pair = (key.read_bytes(), certificate.read_bytes())
    return grpc.ssl_server_credentials([pair], authority, authority is not None)


def _single(
    call: Callable[..., Any], read: Callable[[bytes], Any]
) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_unary_rpc_method_handler(call, read, _written)


def _streamed(
    call: Callable[..., Iterator[Any]], read: Callable[[bytes], Any]
) -> "grpc.RpcMethodHandler[Any, Any]":
    return grpc.unary_stream_rpc_method_handler(call, read, _written)


def _written(message: Any) -> bytes:
    written: bytes = message.SerializeToString()
    return written


def _spec() -> proto.GetMetricSpecResponse:
    spec = proto.MetricSpec(
        metricName=METRIC, targetSize=PER_REPLICA, targetSizeFloat=float(PER_REPLICA)
    )
    return proto.GetMetricSpecResponse(metricSpecs=[spec])
