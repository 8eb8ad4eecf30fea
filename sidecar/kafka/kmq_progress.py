"""What is in work in a `kmq` queue, as its trackers tell it: one question about offsets a turn.

A tracker that is at work reads a marker as soon as it is written, and says so within a second.
Where nothing was read for `SILENT` seconds, nobody tracks, and nothing that a worker drops comes
back.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.kmq_offset_metadata import trackers_of
from trimtab.sidecar.kafka.broker_client import Brokers, Offsets
from trimtab.sidecar.measurement.queue_backlog import NOTHING, Work, work_of
from trimtab.sidecar.settings.settings import Settings

SILENT: Final = 15.0
"""Seconds without a word of a tracker, while markers are unread."""


@dataclass(frozen=True, slots=True)
class Told:
    """The open messages by partition of the messages, and what was wrong."""

    work: Mapping[TopicPartition, Work]
    trouble: tuple[str, ...] = ()


@dataclass(slots=True)
class _Heard:
    """What a tracker said last of a partition, and since when (seconds) nothing else."""

    note: str | None
    since: float


@dataclass(slots=True)
class Markers:
    """Asks the trackers' group; never raises because a broker is away."""

    topic: str
    trackers: Brokers
    clock: Clock
    _heard: dict[TopicPartition, _Heard] = field(default_factory=dict[TopicPartition, _Heard])

    @classmethod
    def connected(cls, settings: Settings, clock: Clock) -> "Markers":
        """Connect. Raises LoginRefused, TlsFailed."""
        group = trackers_of(settings.group)
        brokers = Brokers(settings.client, group, settings.timeout, clock)
        return cls(settings.markers, brokers, clock)

    def look(
        self,
        partitions: Sequence[TopicPartition],
        there: Collection[str],
        ends: Callable[[Iterable[TopicPartition]], Offsets],
    ) -> Told:
        """Return what is open of these partitions of the messages; `there` are the known topics.

        Trackers are asked first, and then where their markers end: what is written in between makes
        the answer unsure, never too small.
        """
        if self.topic not in there:
            return self._without(partitions)
        ours = {p: TopicPartition(self.topic, p.partition) for p in partitions}
        commits = self.trackers.commits(ours.values())
        ended = ends(ours.values())
        found = {
            p: work_of(commits.notes.get(marker), ended.values.get(marker))
            for p, marker in ours.items()
        }
        silent = self._silent(found, {p: commits.notes.get(m) for p, m in ours.items()})
        trouble = (*commits.trouble, *ended.trouble)
        return Told(found, trouble or self._told(silent))

    def close(self) -> None:
        """Let the connection go."""
        self.trackers.close()

    def _without(self, partitions: Sequence[TopicPartition]) -> Told:
        """Return what is open where there are no markers: nothing, if nobody made them yet."""
        hidden = self.trackers.hidden(self.topic)
        if hidden is None:
            return Told(dict.fromkeys(partitions, NOTHING))
        return Told(dict.fromkeys(partitions, Work()), (hidden,))

    def _silent(
        self,
        found: Mapping[TopicPartition, Work],
        notes: Mapping[TopicPartition, str | None],
    ) -> list[TopicPartition]:
        """Return the partitions of which nothing is known and nothing was heard for long."""
        now = self.clock.monotonic()
        for partition, note in notes.items():
            heard = self._heard.setdefault(partition, _Heard(note, now))
            if heard.note != note or found[partition].sure:
                heard.note, heard.since = note, now
        return sorted(p for p in found if now - self._heard[p].since >= SILENT)

    def _told(self, silent: list[TopicPartition]) -> tuple[str, ...]:
        if not silent:
            return ()
        more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        said = (
            f"nobody reads the markers of {silent[0]}{more} in {self.topic!r}, so what is in work "
            "is not known, and nothing that a worker drops comes back: run `trimtab redeliver`"
        )
        return (said,)
