"""Which of several sidecars steers a group, told by the verdicts that they leave. Pure.

The lease of Kubernetes keeps those apart that steer one workload. This keeps all others apart, on
any target: advice publishes plans, too.

1. Each verdict names who left it, and its generation (`Author`).
2. Whoever hears another sidecar at work stands by. Another one is at work until it says that it
   ends, or has been silent for three of its intervals and 15 s while it could have been heard.
3. Who begins to steer takes a generation above all that it heard. The highest goes on, of equal
   ones the last by id: of two that begin at once one is left, and one that is told to take over
   (`force`) takes over.
4. One that goes on although it heard another lets that turn pass, for the other may have published
   a plan: it is read anew.
5. Ages of what is heard first are told by clocks, later ones by when they were heard. Clocks that
   are far apart make a sidecar take over early; by rule 3 still only one steers.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from trimtab.sidecar.diagnostics.group_status import silence
from trimtab.sidecar.reporting.decision_record import Author, VerdictRecord

OLDER = Author("", "a sidecar of an older version", 0, 0.0)
"""Who leaves verdicts without a name."""


@dataclass(frozen=True, slots=True)
class Other:
    """Another sidecar: `at` is our monotonic time at which it was heard, `patience` is seconds."""

    author: Author
    at: float
    patience: float


@dataclass(frozen=True, slots=True)
class Claims:
    """What one sidecar, `me`, knows of all; `disturbed` while another was heard at this look."""

    me: Author
    force: bool = False
    others: Mapping[str, Other] = field(default_factory=dict[str, Other])
    highest: int = 0
    listened: bool = False
    disturbed: bool = False

    def heard(self, news: Iterable[VerdictRecord], now: float, wall: float) -> "Claims":
        """Take in what was left since the last look; `wall` is seconds since the epoch."""
        others, highest, disturbed = dict(self.others), self.highest, False
        for record in news:
            author = record.by or OLDER
            highest = max(highest, author.generation)
            if author.id == self.me.id:
                continue
            age = 0.0 if self.listened else max(0.0, wall - record.until)
            others[author.id] = Other(author, now - age, silence(record.interval))
            disturbed = True
            if record.ended:
                del others[author.id]
        return replace(self, others=others, highest=highest, listened=True, disturbed=disturbed)

    def deaf(self, now: float) -> "Claims":
        """Take in that nobody could be heard: whoever was at work may still be."""
        at_work = {other.author.id for other in self._at_work(now)}
        others = {n: replace(o, at=now) if n in at_work else o for n, o in self.others.items()}
        return replace(self, others=others, disturbed=False)

    def claimed(self, now: float) -> "Claims":
        """Begin to steer, go on, or stand by."""
        if not self.listened:
            return self
        at_work = self._at_work(now)
        if self.me.generation:
            lost = any(_rank(other.author) > _rank(self.me) for other in at_work)
            return replace(self, me=replace(self.me, generation=0)) if lost else self
        if at_work and not self.force:
            return self
        mine = replace(self.me, generation=self.highest + 1)
        return replace(self, me=mine, force=False, disturbed=False)

    def leads(self) -> bool:
        """Tell whether we may act now."""
        return self.me.generation > 0 and not self.disturbed

    def other(self, now: float) -> Other | None:
        """Return who else is at work, the highest; None where nobody is."""
        return max(self._at_work(now), key=lambda other: _rank(other.author), default=None)

    def _at_work(self, now: float) -> tuple[Other, ...]:
        return tuple(o for o in self.others.values() if now - o.at <= o.patience)


def _rank(author: Author) -> tuple[int, str]:
    """Return what the highest of goes on."""
    return author.generation, author.id
