"""Who leads a classic group after its leader has left. Pure.

The coordinator takes the first member of its hash table: `ClassicGroup.remove` of Kafka 4 of a Java
HashMap, `GroupMetadata.remove` of Kafka 3 of a Scala one. Both order their buckets by the same bits of
the member id's hash; in one bucket the older member comes first. A table doubles when it is three
quarters full and never shrinks, so a group that was larger once may have twice the buckets it needs.
"""

from collections.abc import Collection
from functools import lru_cache
from typing import Final

MIN_BUCKETS: Final = 16
MAX_FILL: Final = 0.75


def list_members_ahead(member_id: str, others: Collection[str]) -> frozenset[str]:
    """Return which others may be elected before this member; the leader, who leaves, is none of them."""
    sizes = _list_table_sizes(others)
    own = [_find_bucket(member_id, size) for size in sizes]
    return frozenset(
        other
        for other in others
        if any(_find_bucket(other, size) <= bucket for size, bucket in zip(sizes, own, strict=True))
    )


def can_advance(member_id: str, others: Collection[str], tolerance: int = 0) -> bool:
    """Return whether another member id could have fewer members ahead, by more than the tolerance."""
    # nobody can be before the members of the first bucket
    first = sum(_find_bucket(other, _list_table_sizes(others)[0]) == 0 for other in others)
    return len(list_members_ahead(member_id, others)) > first + tolerance


def _list_table_sizes(others: Collection[str]) -> tuple[int, int]:
    size = MIN_BUCKETS
    while size * MAX_FILL < len(others) + 2:  # this member and the leader
        size *= 2
    return size, 2 * size


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
