"""Who leads a classic group after its leader has left. Pure.

The coordinator takes the first member of its hash table: `ClassicGroup.remove` of Kafka 4 of a Java
HashMap, `GroupMetadata.remove` of Kafka 3 of a Scala one. Both order their buckets by the same bits of
the member id's hash, and a table doubles when it is three quarters full, but never shrinks.
"""

from collections.abc import Collection
from functools import lru_cache
from typing import Final

MIN_BUCKETS: Final = 16
MAX_FILL: Final = 0.75
PAST_GROWTH: Final = 4  # a group that once had up to four times its members has a larger table


def is_next_leader(member_id: str, others: Collection[str]) -> bool:
    """Return whether this member is elected when the leader, not one of the others, leaves."""
    first = MIN_BUCKETS
    while first * MAX_FILL < len(others) + 2:  # this member and the leader
        first *= 2
    sizes = [first * 2**n for n in range(PAST_GROWTH.bit_length())]
    return all(
        _find_bucket(member_id, n) < min((_find_bucket(m, n) for m in others), default=n) for n in sizes
    )


def _find_bucket(member_id: str, buckets: int) -> int:
    code = hash_string(member_id)
    return (code ^ code >> 16) & (buckets - 1)


@lru_cache(maxsize=4096)  # of the others, for each new id
def hash_string(text: str) -> int:
    """Return Java's String.hashCode, unsigned."""
    code = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code
