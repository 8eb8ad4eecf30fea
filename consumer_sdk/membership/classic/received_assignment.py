"""Encoded assignments as a leader has sent them, before kafka-python decodes them."""

import logging
from typing import Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from trimtab.assignor.rebalance.consumer_protocol import decode_assignment
from trimtab.assignor.rebalance.user_data import AssignmentUserData
from trimtab.common.errors import InvalidPayloadError

log = logging.getLogger("trimtab.consumer_sdk")

EMPTY_ASSIGNMENT: Final[bytes] = ConsumerProtocolAssignment(
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
    """Return an assignment without what it promises, which an only round lists (`release_watch`, rule 8).

    With unreadable user data it is empty: any of its partitions could be a promised one.
    """
    try:
        placement = AssignmentUserData.decode(decode_assignment(data).user_data)
    except InvalidPayloadError as error:
        text = "the leader's user data is unreadable: %s; reading nothing until the next rebalance"
        log.warning(text, error)
        return EMPTY_ASSIGNMENT
    if not placement.is_only_round or not placement.promised:
        return data
    assignment = ConsumerProtocolAssignment.decode(data)  # slow, so only where something moves
    promised = {topic: set(numbers) for topic, numbers in placement.promised}
    for one in assignment.assigned_partitions:
        one.partitions = [n for n in one.partitions if n not in promised.get(one.topic, ())]
    return bytes(assignment.encode())
