"""Which of several sidecars steers a group, told by the verdicts that they leave. Pure.

The lease of Kubernetes keeps those apart that steer one workload. This keeps all others apart, on
any target: advice publishes plans, too.

1. Each verdict names who left it, and its generation (`SidecarIdentity`).
2. Whoever hears another sidecar at work stands by. Another one is at work until it says that it
   ends, or has been silent for three of its intervals and 15 s while it could have been heard.
3. Who begins to steer takes a generation above all that it heard. The highest goes on, of equal
   ones the last by id: of two that begin at once one is left, and one that is told to take over
   (`take_over`) takes over.
4. One that goes on although it heard another lets that turn pass, for the other may have published
   a plan: it is read anew.
5. Ages of what is heard first are told by clocks, later ones by when they were heard. Clocks that
   are far apart make a sidecar take over early; by rule 3 still only one steers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab.sidecar.diagnostics.group_status import compute_silence_timeout
from trimtab.sidecar.reporting.decision_record import DecisionRecord, SidecarIdentity

UNNAMED_AUTHOR = SidecarIdentity("", "a sidecar of an older version", 0, 0.0)
"""Who leaves verdicts without a name."""


@dataclass(frozen=True, slots=True)
class PeerSidecar:
    """Another sidecar: `heard_at` is our monotonic time at which it was heard, `silence_timeout` is seconds."""

    author: SidecarIdentity
    heard_at: float
    silence_timeout: float


@dataclass(frozen=True, slots=True)
class GroupOwnership:
    """What one sidecar, `own_author`, knows of all; `peer_heard` while another was heard at this look."""

    own_author: SidecarIdentity
    take_over: bool = False
    peers: Mapping[str, PeerSidecar] = field(default_factory=dict[str, PeerSidecar])
    highest_generation: int = 0
    has_listened: bool = False
    peer_heard: bool = False

    def observe_decisions(
        self, records: Iterable[DecisionRecord], now: float, wall: float
    ) -> "GroupOwnership":
        """Take in what was left since the last look; `wall` is seconds since the epoch."""
        others, highest, disturbed = dict(self.peers), self.highest_generation, False
        for record in records:
            author = record.by or UNNAMED_AUTHOR
            highest = max(highest, author.generation)
            if author.id == self.own_author.id:
                continue
            age = 0.0 if self.has_listened else max(0.0, wall - record.until)
            others[author.id] = PeerSidecar(
                author, now - age, compute_silence_timeout(record.interval)
            )
            disturbed = True
            if record.ended:
                del others[author.id]
        return replace(
            self, peers=others, highest_generation=highest, has_listened=True, peer_heard=disturbed
        )

    def observe_outage(self, now: float) -> "GroupOwnership":
        """Take in that nobody could be heard: whoever was at work may still be."""
        at_work = {other.author.id for other in self._list_active_peers(now)}
        others = {n: replace(o, heard_at=now) if n in at_work else o for n, o in self.peers.items()}
        return replace(self, peers=others, peer_heard=False)

    def claim_ownership(self, now: float) -> "GroupOwnership":
        """Begin to steer, go on, or stand by."""
        if not self.has_listened:
            return self
        at_work = self._list_active_peers(now)
        if self.own_author.generation:
            lost = any(
                _rank_author(other.author) > _rank_author(self.own_author) for other in at_work
            )
            return (
                replace(self, own_author=replace(self.own_author, generation=0)) if lost else self
            )
        if at_work and not self.take_over:
            return self
        mine = replace(self.own_author, generation=self.highest_generation + 1)
        return replace(self, own_author=mine, take_over=False, peer_heard=False)

    def is_owner(self) -> bool:
        """Tell whether we may act now."""
        return self.own_author.generation > 0 and not self.peer_heard

    def find_leading_peer(self, now: float) -> PeerSidecar | None:
        """Return who else is at work, the highest; None where nobody is."""
        return max(
            self._list_active_peers(now), key=lambda other: _rank_author(other.author), default=None
        )

    def _list_active_peers(self, now: float) -> tuple[PeerSidecar, ...]:
        return tuple(o for o in self.peers.values() if now - o.heard_at <= o.silence_timeout)


def _rank_author(author: SidecarIdentity) -> tuple[int, str]:
    """Return what the highest of goes on."""
    return author.generation, author.id
