"""Encoded assignments as a leader has sent them, before kafka-python decodes them."""

from typing import Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.assignor.clients.leader_plugin import decode_assignment_data
from trimtab.assignor.rebalance.consumer_protocol import decode_assignment

EMPTY_ASSIGNMENT: Final = ConsumerProtocolAssignment(
    version=0, assigned_partitions=[], user_data=b""
).encode()


def is_readable_assignment(data: bytes) -> bool:
    """Return whether kafka-python can decode the bytes of an assignment."""
    try:
        ConsumerProtocolAssignment.decode(data).partitions()
    except Exception:  # noqa: BLE001 - struct.error, TypeError, ValueError and more, by what is wrong
        return False
    return True


def withhold_promised(data: bytes) -> bytes:
    """Return an assignment without what it promises, which an only round lists (`release_watch`, rule 8)."""
    placement = decode_assignment_data(decode_assignment(data).user_data)
    if not placement.is_only_round or not placement.promised:
        return data
    assignment = ConsumerProtocolAssignment.decode(data)  # slow, so only where something moves
    promised = {topic: set(numbers) for topic, numbers in placement.promised}
    for one in assignment.assigned_partitions:
        one.partitions = [n for n in one.partitions if n not in promised.get(one.topic, ())]
    return bytes(assignment.encode())
