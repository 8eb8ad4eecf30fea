"""Codec of a member's assignment (ConsumerProtocolAssignment), and of a plain subscription."""

import struct
from typing import Any, Final

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.kafka_protocol.errors import MalformedMessageError
from trimtab.common.kafka_protocol.fields import Reader, compile_table
from trimtab.consumer_sdk.membership.machine.values import Partitions

ASSIGNMENT_TABLE: Final = "version:int16 assigned:[topic:string partitions:[int32]]? user_data:bytes?"
_MAX_SHOWN: Final = 80


def decode_partitions(data: bytes) -> tuple[Partitions, bytes | None, str]:
    """Return partitions and user data of an assignment of any version, and why it is unreadable."""
    read, _ = compile_table(ASSIGNMENT_TABLE, 0, flexible=False)
    if not data:  # the broker's for a member that its leader forgot
        return frozenset(), None, ""
    try:
        message: Any = read(Reader(data))
    except (struct.error, UnicodeDecodeError, IndexError, MalformedMessageError) as error:
        return frozenset(), None, f"unreadable: {error}: {data[:_MAX_SHOWN]!r}"
    if message.version < 0:
        return frozenset(), None, f"unreadable: version {message.version}"
    found = frozenset(TopicPartition(t.topic, n) for t in message.assigned or () for n in t.partitions)
    return found, message.user_data, ""
