"""Text form of a plan: rack ids of pilot members, which the broker's assignor plugin reads.

A rack id is `trimtab1:EPOCH.REVISION:NNN:` and piece NNN of base64(zlib(body)). EPOCH and REVISION have 19
digits, so that a higher plan sorts later. The body is big-endian:

1. u16: number of slots, then 6 bytes for each slot 1, 2, …: the upper ones of FNV-1a(member id), 64 bits;
   zeros for a place;
2. for each topic: 16-byte topic id, u32 number of partitions, then a u16 slot for each partition, 0 where it
   is open.

`broker_plugin/Plan.java` is the other end.
"""

import base64
import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final

from trimtab.common.control_topics.plan_target import PlanTarget

FORMAT_PREFIX: Final = "trimtab1:"
MAX_RACK_ID_BYTES: Final = 32_767  # of a string in Kafka's protocol: past it the broker closes the connection
DIGEST_BYTES: Final = 6
MAX_SLOTS: Final = 2**16 - 1


def encode_plan(
    epoch: int, target: PlanTarget, topic_ids: Mapping[str, str], member_ids: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the rack ids that carry `target`, each at most 32,767 bytes: one pilot member for each.

    `topic_ids` maps topics to Kafka's Uuid as text, `str(described.topic_id)`; `member_ids` maps the
    instance names of `target.consumers` to the group's member ids, as DescribeConsumerGroups returns them.
    The partitions of a topic without an id stay with their members. Until a new plan has the member id of a
    consumer, a joiner may take its slot, as it takes places.

    One rack id holds 10,000 partitions on 1,000 members. The plugin carries out the highest (epoch,
    revision) of which the group has all pieces; while the pieces do not fit together, nothing moves. A
    changed rack id alone starts no assignment: the heartbeat that brings it must also change the pilot's
    subscription. Raises ValueError for more than 65,535 consumers and places.
    """
    if target.size > MAX_SLOTS:
        raise ValueError(f"the plan has {target.size} consumers and places; a rack id holds {MAX_SLOTS}")
    body = b"".join((_encode_slots(target, member_ids), *_encode_topics(target, topic_ids)))
    text = base64.b64encode(zlib.compress(body, 9)).decode()
    key = f"{FORMAT_PREFIX}{epoch:019}.{target.revision:019}"
    room = MAX_RACK_ID_BYTES - len(key) - len(":000:")
    return tuple(f"{key}:{i // room:03}:{text[i : i + room]}" for i in range(0, len(text), room))


def _encode_slots(target: PlanTarget, member_ids: Mapping[str, str]) -> bytes:
    # an unknown consumer's name stands for its member id: no member has it, so the slot is free
    digests = (_digest(member_ids.get(name, name)) for name in target.consumers)
    return struct.pack(">H", target.size) + b"".join(digests) + bytes(target.places * DIGEST_BYTES)


def _encode_topics(target: PlanTarget, topic_ids: Mapping[str, str]) -> Iterator[bytes]:
    for topic, slots in sorted(target.partitions.items()):
        if topic in topic_ids:
            yield _decode_topic_id(topic_ids[topic]) + struct.pack(f">I{len(slots)}H", len(slots), *slots)


def _digest(member_id: str) -> bytes:
    value = 0xCBF29CE484222325
    for byte in member_id.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value.to_bytes(8)[:DIGEST_BYTES]


def _decode_topic_id(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "==")  # Uuid.toString() leaves out the padding
