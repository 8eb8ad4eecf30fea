"""Self-checking records: each holds its own position and checksum.

A value is "topic partition sequence " + random bytes + 8 hex digits, the CRC-32 of the bytes before
them. The sequence starts at 0 in each partition and equals the record's offset.
"""

import random
import zlib
from dataclasses import dataclass
from typing import Final

from trimtab.assignor.model import TopicPartition

CHECK_DIGITS: Final = 8


@dataclass(frozen=True, slots=True)
class DemoRecord:
    """Key, value and the CRC-32 of the whole value."""

    key: bytes
    value: bytes
    checksum: int


def make_record(where: TopicPartition, sequence: int, size: int, rng: random.Random) -> DemoRecord:
    """Return the record; key and value together have `size` bytes."""
    head = f"{where.topic} {where.partition} {sequence} ".encode()
    key = f"{where}-{sequence}".encode()
    filler = rng.randbytes(max(0, size - len(key) - len(head) - CHECK_DIGITS))
    body = head + filler
    value = body + f"{zlib.crc32(body):08x}".encode()
    return DemoRecord(key, value, zlib.crc32(value))
