"""ShareGroupDescribe (KIP-932) and DescribeShareGroupOffsets (KIP-1226), which kafka-python 3 lacks.

The JSON files beside this module define the messages in kafka-python's own form, with Kafka's field
names. `tests/kafka/test_queue_scaling.py` tests them against a broker.
"""

from typing import Any, Final

from kafka.protocol.api_message import (
    ApiMessage,  # pyright: ignore[reportMissingImports,reportUnknownVariableType] # stubs of v2
)

from trimtab.sidecar.kafka.coordinator_client import describe_group, raise_for_error_code, send_to_coordinator

PROTOCOL_PACKAGE: Final = "trimtab.sidecar.kafka.share_groups"

# `load_json` finds the file by the class name; a response is registered by its definition


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Requests start offset and lag (broker 4.2 or newer) of a share group's partitions."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Start offset and lag by partition."""


class ShareGroupDescribeRequest(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Requests state and members of a share group."""


class ShareGroupDescribeResponse(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """State and members."""


def describe_share_group(client: Any, group: str) -> Any:
    """Return `group_state` and `members` of a share group; None if it does not exist.

    `client` is a KafkaAdminClient. Raises KafkaError.
    """
    request: Any = ShareGroupDescribeRequest
    return describe_group(client, group, request(group_ids=[group], include_authorized_operations=False))


def describe_share_group_offsets(client: Any, group: str) -> Any:
    """Return `topics` of a share group with the `start_offset` and `lag` of each partition.

    An unknown offset or lag is -1. Raises KafkaError.
    """
    request: Any = DescribeShareGroupOffsetsRequest
    groups = [request.RequestedGroup(group_id=group, topics=None)]  # None: all topics
    (described,) = send_to_coordinator(client, group, request(groups=groups)).groups
    raise_for_error_code(described)
    for topic in described.topics:
        for partition in topic.partitions:
            # without the failed partition the others would look like the whole backlog
            raise_for_error_code(partition, f"{topic.topic_name}-{partition.partition_index}")
    return described
