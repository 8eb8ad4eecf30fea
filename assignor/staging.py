"""Cooperative staging (KIP-429): from the target to what may be handed out in this round.

The rules, all kept here:

1. A partition has at most one owner: the claimant with the newest generation. Two claims of one
   generation cancel each other, neither keeps the partition.
2. A partition is handed to a member only if that member owns it, or if no member at all claims it.
   Everything else of the target is promised: its claimants revoke it, rejoin, and the next round
   hands it out. So no partition is ever given to two members, whatever the target says.
3. A promise is repeated by the member that holds it (`MemberData.promised`). While the cause of a
   decision stays the same, the next round completes it instead of deciding afresh.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trimtab.assignor.model import TopicPartition


@dataclass(frozen=True, slots=True)
class Claim:
    """What one member says it reads, and since which generation."""

    member: str
    generation: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class Share:
    """One member's part of a round: what it reads now, what it is promised for the next."""

    now: frozenset[TopicPartition]
    promised: frozenset[TopicPartition]


def settle(claims: Iterable[Claim]) -> dict[TopicPartition, str]:
    """Return the owner of each claimed partition (rule 1); contested ones have none."""
    best: dict[TopicPartition, tuple[int, str | None]] = {}
    for claim in claims:
        for partition in claim.partitions:
            generation, _ = best.get(partition, (claim.generation - 1, None))
            if claim.generation > generation:
                best[partition] = (claim.generation, claim.member)
            elif claim.generation == generation:
                best[partition] = (generation, None)
    return {p: member for p, (_, member) in best.items() if member is not None}


def stage(
    target: Mapping[str, Iterable[TopicPartition]], claims: Iterable[Claim]
) -> dict[str, Share]:
    """Split each member's target into what it gets now and what it is promised (rule 2)."""
    claims = tuple(claims)
    owners = settle(claims)
    claimed = {partition for claim in claims for partition in claim.partitions}
    shares: dict[str, Share] = {}
    for member, wanted in target.items():
        whole = frozenset(wanted)
        now = frozenset(p for p in whole if owners.get(p) == member or p not in claimed)
        shares[member] = Share(now=now, promised=whole - now)
    return shares
