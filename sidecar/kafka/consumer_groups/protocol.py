"""ConsumerGroupHeartbeat and ConsumerGroupDescribe (KIP-848), which kafka-python 3 lacks.

The JSON files beside this module define the messages in kafka-python's own form, with Kafka's field
names. `tests/kafka/test_pilot.py` tests them against a broker.
"""

from typing import Any, Final

from kafka.protocol.api_message import (
    ApiMessage,  # pyright: ignore[reportMissingImports,reportUnknownVariableType] # stubs of v2
)

from trimtab.sidecar.kafka.coordinator_client import describe_group, raise_for_error_code, send_to_coordinator

PROTOCOL_PACKAGE: Final = "trimtab.sidecar.kafka.consumer_groups"

# `load_json` finds the file by the class name; a response is registered by its definition


class ConsumerGroupHeartbeatRequest(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Joins a group, keeps the membership, changes it, or leaves (epoch -1)."""


class ConsumerGroupHeartbeatResponse(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """The member's epoch and, if it changed, its assignment."""


class ConsumerGroupDescribeRequest(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Requests state and members of a group."""


class ConsumerGroupDescribeResponse(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """State, assignor, and the members with their present and their target assignments."""


def describe_consumer_group(admin: Any, group: str) -> Any:
    """Return state, assignor and members of a group; None if no group of the new protocol has that name.

    `admin` is a KafkaAdminClient. Raises KafkaError.
    """
    request: Any = ConsumerGroupDescribeRequest
    return describe_group(admin, group, request(group_ids=[group], include_authorized_operations=False))


def send_heartbeat(admin: Any, group: str, fields: dict[str, Any]) -> Any:
    """Send a heartbeat with these fields and return the response. Raises KafkaError."""
    request: Any = ConsumerGroupHeartbeatRequest
    response = send_to_coordinator(admin, group, request(group_id=group, **fields))
    raise_for_error_code(response)
    return response
