"""Text form of a plan: rack ids of pilot members, which the broker's assignor plugin reads.

A rack id is `trimtab1:EPOCH.REVISION:K/N:` and the K-th of N pieces of base64(deflate(body)). The body is
big-endian:

1. u8: bytes of a member's digest, the shortest prefix of SHA-256(member id) that tells all apart;
2. u16 slots, then a digest for each slot 1, 2, …; zeros for a free slot, which a member without one takes;
3. for each topic: 16-byte topic id, u32 partitions, then a u16 slot for each partition, 0 where it is open.

`broker_plugin/io/trimtab/Plan.java` is the other end.
"""

import base64
import hashlib
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from trimtab.common.control_topics.plan_target import PlanTarget

FORMAT_PREFIX: Final = "trimtab1:"
MAX_RACK_ID_LENGTH: Final = 32_767  # of a string in a Kafka record; past it the broker closes the connection
MAX_HEADER_LENGTH: Final = 64
MAX_SLOTS: Final = 0xFFFF
SHORTEST_DIGEST: Final = 4


def encode_plan(
    epoch: int, target: PlanTarget, topic_ids: Mapping[str, str], member_ids: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the rack ids that carry `target`, each at most 32,767 bytes: one pilot member for each.

    `topic_ids` maps topics to Kafka's Uuid as text, `str(described.topic_id)`; `member_ids` maps the
    instance names of `target.consumers` to the group's member ids, as DescribeConsumerGroups tells them.
    Of a topic without an id the plan says nothing: its partitions stay where they are. A consumer without
    a member id leaves its slot free for the next member that joins, as a place is.

    One rack id suffices for 10,000 partitions on 1,000 members. The plugin carries out the highest
    (epoch, revision) of which all pieces are in the group; while pieces of two plans are mixed, nothing
    moves. A changed rack id alone does not start an assignment: the heartbeat that brings it must also
    change the pilot's subscription. Raises ValueError for more than 65,535 consumers and places.
    """
    raise NotImplementedError
