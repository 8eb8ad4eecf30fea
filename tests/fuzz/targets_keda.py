"""Calls of KEDA's external scaler: bytes of the messages, and the metadata of a trigger."""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, Final, NoReturn

from google.protobuf.message import DecodeError

from trimtab.common.clock import SystemClock
from trimtab.sidecar.errors import TriggerMismatchError
from trimtab.sidecar.targets.keda import externalscaler_pb2 as proto
from trimtab.sidecar.targets.keda.replica_count import KedaReplicaCount
from trimtab.sidecar.targets.keda.scaler_responses import KEDA_METRIC_NAME, StalenessLimits
from trimtab.sidecar.targets.keda.scaler_service import ExternalScalerService
from trimtab.sidecar.targets.keda.trigger_metadata import ScaledGroup, check_trigger_metadata

GROUP: Final = ScaledGroup("b:1,c:1", "lake", ("orders", "payments"), "latest")
METADATA: Final = {
    "bootstrapServers": "c:1, b:1",
    "consumerGroup": "lake",
    "topic": "orders,payments",
    "offsetResetPolicy": "latest",
    "scalerAddress": "trimtab:6000",
    "lagThreshold": "10",
    "bootstrapServersFromEnv": "B",
    "sasl": "none",
    "topics": "a",
}
REFERENCE: Final = proto.ScaledObjectRef(name="lake", namespace="default", scalerMetadata=METADATA)
SEEDS: Final = {
    "call_scaler": [
        REFERENCE.SerializeToString(),
        proto.ScaledObjectRef(name="lake").SerializeToString(),
        proto.GetMetricsRequest(
            scaledObjectRef=proto.ScaledObjectRef(name="lake"), metricName=KEDA_METRIC_NAME
        ).SerializeToString(),
        proto.GetMetricsRequest(scaledObjectRef=REFERENCE, metricName="x").SerializeToString(),
    ],
    "check_trigger": [json.dumps(METADATA).encode()],
}


class _AbortedError(Exception):
    """The end of a call with a status, as gRPC's own."""


class _Context:
    """Context of a call that has ended: a stream sends what it has and stops."""

    def abort(self, code: object, details: str) -> NoReturn:
        assert details
        raise _AbortedError(code)

    def is_active(self) -> bool:
        return False

    def add_callback(self, _: object) -> None:
        """Ignore it: the call is at its end."""


def call_scaler(data: bytes) -> None:
    """Each method answers, or ends the call with a status."""
    for handler in _handlers().values():
        try:
            request = handler.request_deserializer(data)  # gRPC itself refuses what this refuses
        except DecodeError:
            continue
        try:
            answer = (handler.unary_unary or handler.unary_stream)(request, _Context())
            answers: Iterable[Any] = [answer] if handler.unary_unary else answer
            assert all(isinstance(handler.response_serializer(one), bytes) for one in answers)
        except _AbortedError:
            continue


def check_trigger(data: bytes) -> None:
    """A trigger for another group is refused with all differences."""
    try:
        metadata = json.loads(data)
    except (ValueError, RecursionError):
        return
    if isinstance(metadata, dict):  # of text, as Protobuf's map is
        try:
            check_trigger_metadata({name: str(value) for name, value in metadata.items()}, GROUP)
        except TriggerMismatchError:
            return


@cache
def _handlers() -> dict[str, Any]:
    replica_count = KedaReplicaCount(StalenessLimits(2, 60.0), SystemClock())
    return ExternalScalerService(replica_count, GROUP)._build_handlers()
