"""Divides the groups among several sidecars. Pure.

1. A group is in one shard, by the CRC-32 of its name. The shards are the partitions of a topic.
2. The sidecars read that topic as one consumer group, in which a shard has one owner. Membership is the
   lease: a sidecar that is silent for its session timeout loses its shards to the others.
3. A shard tells which sidecar opens a group. Which one may act is still told by `group_ownership`: while
   a shard moves, the new owner stands by until the former one has published its end or is silent.
4. A sidecar that lost its membership keeps its shards until it is a member again. If others have them,
   rule 3 holds; if the brokers are away, none has.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Protocol
from zlib import crc32


@dataclass(frozen=True, slots=True)
class OwnedShards:
    """The shards of this sidecar."""

    count: int = 0  # of all shards; 0 before the first assignment
    numbers: frozenset[int] = frozenset()
    is_stale: bool = False  # the membership was lost (rule 4)

    def assign(self, numbers: Iterable[int], count: int) -> "OwnedShards":
        """Add shards; the first ones after a loss replace all."""
        kept = frozenset[int]() if self.is_stale else self.numbers
        return OwnedShards(count, kept.union(numbers))

    def revoke(self, numbers: Iterable[int]) -> "OwnedShards":
        """Remove shards."""
        return replace(self, numbers=self.numbers.difference(numbers))

    def lose_membership(self) -> "OwnedShards":
        """Keep the shards until the next assignment."""
        return replace(self, is_stale=True)

    def owns_group(self, group: str) -> bool:
        """Return whether this sidecar is to manage a group."""
        return self.count > 0 and compute_shard(group, self.count) in self.numbers


ALL_SHARDS = OwnedShards(1, frozenset([0]))


def compute_shard(group: str, count: int) -> int:
    """Return the shard of a group."""
    return crc32(group.encode()) % count


class ShardSource(Protocol):
    """Tells the shards of this sidecar."""

    # Only the rounds may call: a call proves that they go on.
    def begin_round(self) -> OwnedShards:
        """Return the shards."""
        ...

    def get_error(self) -> str:
        """Return why shards cannot be had; empty without an error."""
        ...


class SoleSidecar:
    """All shards are this sidecar's."""

    def begin_round(self) -> OwnedShards:
        """Return all shards."""
        return ALL_SHARDS

    def get_error(self) -> str:
        """Return no error."""
        return ""
