"""Two questions about a share group that kafka-python 3 cannot ask, by what is private of it.

The layout of their frames stands in the JSON files beside this one, in kafka-python's own form, the
fields under names of ours: ShareGroupDescribe (KIP-932), and DescribeShareGroupOffsets, which tells
the lag from Kafka 4.2 on (KIP-1226). `tests/kafka/test_queue_scaling.py` holds it.
"""

# ruff: noqa: SLF001 - the reason is the module's docstring

from typing import Any, Final

from kafka.errors import for_code
from kafka.protocol.api_message import (
    ApiMessage,  # pyright: ignore[reportMissingImports,reportUnknownVariableType] # stubs of v2
)

PROTOCOL_PACKAGE: Final = "trimtab.sidecar.kafka.share_groups"
GROUP_ID_NOT_FOUND_CODE: Final = 69
"""Error code of a group that does not exist, or is of another kind."""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Asks how far a share group is."""


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Its answer; registered by being defined."""


class ShareGroupDescribeRequest(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Asks for the state and the members of a share group."""


class ShareGroupDescribeResponse(ApiMessage, load_json=PROTOCOL_PACKAGE):  # type: ignore[call-arg,misc]
    """Its answer; registered by being defined."""


def describe_share_group(client: Any, group: str) -> Any:
    """Return `state` and `members` (`id`, `client`) of a share group; None where there is none.

    `client` is a KafkaAdminClient. Raises KafkaError.
    """
    made: Any = ShareGroupDescribeRequest
    told = _send_to_coordinator(client, group, made(groups=[group], with_operations=False))
    if told.error_code == GROUP_ID_NOT_FOUND_CODE:
        return None
    _raise_for_error_code(told)
    return told


def describe_share_group_offsets(client: Any, group: str) -> Any:
    """Return `topics` (`topic`, `partitions`) of a share group, none of one that nobody knows.

    A partition has `number`, `start` and `lag`, -1 where the broker has none. Raises KafkaError,
    also of a single partition: without it the others look like all that there is.
    """
    made: Any = DescribeShareGroupOffsetsRequest
    told = _send_to_coordinator(client, group, made(asked=[made.AskedGroup(group=group, topics=None)]))
    _raise_for_error_code(told)
    for topic in told.topics:
        for partition in topic.partitions:
            _raise_for_error_code(partition, f"{topic.topic}-{partition.number}")
    return told


def _send_to_coordinator(client: Any, group: str, request: Any) -> Any:
    async def ask() -> Any:
        node = await client._find_coordinator_id(group)
        return await client._manager.send(request, node_id=node)

    (told,) = client._manager.run(ask).told
    return told


def _raise_for_error_code(response: Any, where: str = "") -> None:
    if response.error_code:
        raise for_code(response.error_code)(": ".join(filter(None, (where, response.error_text))))
