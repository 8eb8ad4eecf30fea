"""Selects one of several sidecars per group by the decisions they publish. Pure.

The Kubernetes lease separates the sidecars of one workload. This separates all others, on any
target: an advisory sidecar publishes plans, too.

1. Each decision carries its author and the author's ownership term (`SidecarIdentity`).
2. A sidecar that reads decisions of an active peer stands by. A peer is active until it publishes
   its end, or was silent for three of its intervals and 15 s while it could have been read.
3. A sidecar that takes ownership uses a term above all it has read. The highest term keeps
   ownership, ties go to the highest id: of two that start at once, one remains. With
   `take_over` a sidecar takes ownership from an active peer.
4. An owner that reads a peer's decision skips that iteration and reads the plan again: the peer may
   have published one.
5. The age of the first decisions is computed from clocks, later ones from the time of reading.
   Clocks that differ make a sidecar take over early; by rule 3 one owner remains.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from trimtab.sidecar.records.decision_record import DecisionRecord, SidecarIdentity

SILENCE_GRACE_S: Final = 15.0  # beyond three intervals: a slow iteration is not an outage
UNNAMED_AUTHOR = SidecarIdentity("", "a sidecar of an older version", 0, 0.0)  # of decisions without one


@dataclass(frozen=True, slots=True)
class PeerSidecar:
    """Another sidecar."""

    author: SidecarIdentity
    last_decision_at: float  # our monotonic time
    silence_timeout: float  # seconds


@dataclass(frozen=True, slots=True)
class GroupOwnership:
    """View of one sidecar on all."""

    own_author: SidecarIdentity
    take_over: bool = False
    peers: Mapping[str, PeerSidecar] = field(default_factory=dict[str, PeerSidecar])
    highest_term: int = 0
    has_read_decisions: bool = False  # before it, a peer may be active unseen
    has_new_peer_decision: bool = False  # in the last read

    def observe_decisions(
        self, records: Iterable[DecisionRecord], now: float, wall: float
    ) -> "GroupOwnership":
        """Add decisions published since the last read; `wall` is seconds since the epoch."""
        peers = dict(self.peers)
        highest = self.highest_term
        has_new = False
        for record in records:
            author = record.author or UNNAMED_AUTHOR
            highest = max(highest, author.ownership_term)
            if author.id == self.own_author.id:
                continue
            age = 0.0 if self.has_read_decisions else max(0.0, wall - record.until)
            peers[author.id] = PeerSidecar(author, now - age, compute_silence_timeout(record.interval))
            has_new = True
            if record.is_final:
                del peers[author.id]
        return replace(
            self, peers=peers, highest_term=highest, has_read_decisions=True, has_new_peer_decision=has_new
        )

    def observe_outage(self, now: float) -> "GroupOwnership":
        """Record that decisions could not be read; active peers stay active."""
        # They may have published: silence counts only while they could be read (rule 2).
        active = {peer.author.id for peer in self._list_active_peers(now)}
        peers = {n: replace(p, last_decision_at=now) if n in active else p for n, p in self.peers.items()}
        return replace(self, peers=peers, has_new_peer_decision=False)

    def claim_ownership(self, now: float) -> "GroupOwnership":
        """Take, keep or give up ownership."""
        if not self.has_read_decisions:
            return self
        active = self._list_active_peers(now)
        if self.own_author.ownership_term:
            lost = any(_rank(peer.author) > _rank(self.own_author) for peer in active)
            return replace(self, own_author=replace(self.own_author, ownership_term=0)) if lost else self
        if active and not self.take_over:
            return self
        author = replace(self.own_author, ownership_term=self.highest_term + 1)
        # `take_over` counts once: two sidecars that both keep it would take over in turn for ever.
        return replace(self, own_author=author, take_over=False, has_new_peer_decision=False)

    def is_owner(self) -> bool:
        """Return whether this sidecar may act now."""
        return self.own_author.ownership_term > 0 and not self.has_new_peer_decision

    def find_leading_peer(self, now: float) -> PeerSidecar | None:
        """Return the active peer of the highest rank; None without one."""
        return max(self._list_active_peers(now), key=lambda peer: _rank(peer.author), default=None)

    def _list_active_peers(self, now: float) -> tuple[PeerSidecar, ...]:
        return tuple(p for p in self.peers.values() if now - p.last_decision_at <= p.silence_timeout)


def compute_silence_timeout(interval: float) -> float:
    """Return the seconds after which a sidecar with this interval counts as silent."""
    return 3 * interval + SILENCE_GRACE_S


def _rank(author: SidecarIdentity) -> tuple[int, str]:
    return author.ownership_term, author.id  # rule 3
