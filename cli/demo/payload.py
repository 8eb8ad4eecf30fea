"""Records that can be checked long after: each says who it is and carries its own checksum.

A value is "topic partition sequence " + random bytes + 8 hex digits: the CRC-32 of all that is
before them. The sequence counts from 0 in each partition, so that it equals the record's offset.
"""

import random
import zlib
from dataclasses import dataclass
from typing import Final

from trimtab.assignor.model import TopicPartition

CHECK_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """Key, value, and the CRC-32 of the whole value."""

    key: bytes
    value: bytes
    checksum: int


def make_record(where: TopicPartition, sequence: int, size: int, rng: random.Random) -> DemoRecord:
    """Return the record of `size` bytes, key and value together."""
    head = f"{where.topic} {where.partition} {sequence} ".encode()
    key = f"{where}-{sequence}".encode()
    filler = rng.randbytes(max(0, size - len(key) - len(head) - CHECK_DIGITS))
    body = head + filler
    value = body + f"{zlib.crc32(body):08x}".encode()
    return DemoRecord(key, value, zlib.crc32(value))
