"""Selects one of several sidecars per group by the decisions they publish. Pure.

The Kubernetes lease separates the sidecars of one workload. This separates all others, on any
target: an advisory sidecar publishes plans, too.

1. Each decision carries its author and the author's generation (`SidecarIdentity`).
2. A sidecar that reads decisions of an active peer stands by. A peer is active until it publishes
   its end, or was silent for three of its intervals and 15 s while it could have been read.
3. A sidecar that takes ownership uses a generation above all it has read. The highest generation
   keeps ownership, ties go to the highest id: of two that start at once, one remains. With
   `take_over` a sidecar takes ownership from an active peer.
4. An owner that reads a peer's decision skips that iteration and reads the plan again: the peer may
   have published one.
5. The age of the first decisions is computed from clocks, later ones from the time of reading.
   Clocks that differ make a sidecar take over early; by rule 3 one owner remains.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab.sidecar.diagnostics.group_status import compute_silence_timeout
from trimtab.sidecar.reporting.decision_record import DecisionRecord, SidecarIdentity

UNNAMED_AUTHOR = SidecarIdentity("", "a sidecar of an older version", 0, 0.0)  # of decisions without one


@dataclass(frozen=True, slots=True)
class PeerSidecar:
    """Another sidecar."""

    author: SidecarIdentity
    heard_at: float  # our monotonic time
    silence_timeout: float  # seconds


@dataclass(frozen=True, slots=True)
class GroupOwnership:
    """View of one sidecar on all."""

    own_author: SidecarIdentity
    take_over: bool = False
    peers: Mapping[str, PeerSidecar] = field(default_factory=dict[str, PeerSidecar])
    highest_generation: int = 0
    has_listened: bool = False  # before it, a peer may be active unseen
    peer_heard: bool = False  # the last read had a peer's decision

    def observe_decisions(
        self, records: Iterable[DecisionRecord], now: float, wall: float
    ) -> "GroupOwnership":
        """Add decisions published since the last read; `wall` is seconds since the epoch."""
        peers = dict(self.peers)
        highest = self.highest_generation
        heard = False
        for record in records:
            author = record.author or UNNAMED_AUTHOR
            highest = max(highest, author.generation)
            if author.id == self.own_author.id:
                continue
            age = 0.0 if self.has_listened else max(0.0, wall - record.until)
            peers[author.id] = PeerSidecar(author, now - age, compute_silence_timeout(record.interval))
            heard = True
            if record.is_final:
                del peers[author.id]
        return replace(self, peers=peers, highest_generation=highest, has_listened=True, peer_heard=heard)

    def observe_outage(self, now: float) -> "GroupOwnership":
        """Record that decisions could not be read; active peers stay active."""
        # They may have published: silence counts only while they could be heard (rule 2).
        active = {peer.author.id for peer in self._list_active_peers(now)}
        peers = {n: replace(p, heard_at=now) if n in active else p for n, p in self.peers.items()}
        return replace(self, peers=peers, peer_heard=False)

    def claim_ownership(self, now: float) -> "GroupOwnership":
        """Take, keep or give up ownership."""
        if not self.has_listened:
            return self
        active = self._list_active_peers(now)
        if self.own_author.generation:
            lost = any(_rank(peer.author) > _rank(self.own_author) for peer in active)
            return replace(self, own_author=replace(self.own_author, generation=0)) if lost else self
        if active and not self.take_over:
            return self
        author = replace(self.own_author, generation=self.highest_generation + 1)
        # `take_over` counts once: two sidecars that both keep it would take over in turn for ever.
        return replace(self, own_author=author, take_over=False, peer_heard=False)

    def is_owner(self) -> bool:
        """Return whether this sidecar may act now."""
        return self.own_author.generation > 0 and not self.peer_heard

    def find_leading_peer(self, now: float) -> PeerSidecar | None:
        """Return the active peer of the highest rank; None without one."""
        return max(self._list_active_peers(now), key=lambda peer: _rank(peer.author), default=None)

    def _list_active_peers(self, now: float) -> tuple[PeerSidecar, ...]:
        return tuple(p for p in self.peers.values() if now - p.heard_at <= p.silence_timeout)


def _rank(author: SidecarIdentity) -> tuple[int, str]:
    return author.generation, author.id  # rule 3
