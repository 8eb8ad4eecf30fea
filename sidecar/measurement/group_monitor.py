"""One look at the group: members, offsets, sizes; what it measures becomes speeds and backlog."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from trimtab.assignor.heuristics.registry import get
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.values import PartitionSpeed
from trimtab.sidecar.kafka.broker_client import Brokers, Commits, Layout, Offsets
from trimtab.sidecar.kafka.kmq_progress import Markers, Told
from trimtab.sidecar.kafka.log_dirs import LogDirs
from trimtab.sidecar.kafka.record_sampler import Sampler
from trimtab.sidecar.kafka.share_groups.share_group import ShareGroup
from trimtab.sidecar.measurement.measurement import Gauge
from trimtab.sidecar.measurement.observation import GroupView, Racks
from trimtab.sidecar.measurement.queue_backlog import Kind, Queued, queued
from trimtab.sidecar.measurement.write_rate import Readings
from trimtab.sidecar.settings.settings import Settings

T = TypeVar("T")

REMEMBERED: Final = 60.0
"""Seconds for which a topic that the group has read belongs to it although nobody reads it now."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one look gave; `notes` are the commits' metadata, `trouble` says what is not known.

    `consumed` is in bytes/s, of partitions of which it is known; `stuck` are those of which nothing
    is consumed although it waits and is read. `racks` is empty where nobody asked (`Monitor`);
    `queue` is what there is to do, in messages.
    """

    speeds: Mapping[TopicPartition, PartitionSpeed]
    group: GroupView
    notes: Mapping[TopicPartition, str]
    trouble: tuple[str, ...]
    consumed: Mapping[TopicPartition, float] = field(default_factory=dict[TopicPartition, float])
    stuck: frozenset[TopicPartition] = frozenset()
    racks: Racks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])
    queue: Queued | None = None


class Watch(Protocol):
    """What the loop needs of a monitor."""

    def measure(self) -> Measurement:
        """Look at everything."""
        ...

    def group(self) -> GroupView:
        """Look at the group's members only."""
        ...


class Monitor:
    """Keeps the readings of the sliding window; never raises because a broker is away.

    Racks of replicas are asked for where the heuristic weighs racks, or a member says its own.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._brokers = Brokers(settings.client, settings.group, settings.timeout, clock)
        kind = settings.queue
        self._shares = ShareGroup(settings, clock) if kind is Kind.SHARE else None
        self._markers = Markers.connected(settings, clock) if kind is Kind.KMQ else None
        by_size = settings.source == "log-dirs"
        self._gauge = Gauge(settings)
        self._sampler = None if by_size else Sampler(settings.client)
        self._log_dirs = LogDirs(settings.client, settings.timeout) if by_size else None
        self._read: dict[str, float] = {}  # topic -> when somebody read it
        self._leaders: Mapping[TopicPartition, int] = {}
        self._weighs_racks = get(settings.chosen).racks

    @property
    def brokers(self) -> Brokers:
        """Return the connection, for those who ask something else."""
        return self._brokers

    def group(self) -> GroupView:
        """Look at the group's members only."""
        return self.described()[0]

    def described(self) -> tuple[GroupView, tuple[str, ...]]:
        """Look at the group's members, and tell what was wrong."""
        return self._brokers.group() if self._shares is None else self._shares.group()

    def measure(self) -> Measurement:
        """Look at everything; takes as long as the slowest broker, at most a few timeouts."""
        layout = self._brokers.layout()
        if not layout.leaders:
            return self._nothing(layout)
        group, silent = self.described()
        wanted, missing = self._topics(layout, group)
        asked = layout.leaders if wanted is None else _of(layout, wanted)
        commits = self._commits(asked)
        there = {p.topic for p in commits.offsets} if wanted is None else wanted
        self._leaders = _of(layout, there)
        read = {p for reader in group.readers for p in reader.owned}
        kind = self._settings.queue
        # after the commits and before the ends: nothing is seen in neither
        told = self._told(layout)
        at, readings, more = self._readings(commits, told, hidden=read - layout.leaders.keys())
        found = self._gauge.take(at, readings, group)
        racks, unasked = self._racks(group, self._leaders)
        untold = () if told is None else told.trouble
        return Measurement(
            speeds=found.speeds,
            group=group,
            notes=commits.notes,
            trouble=(*silent, *commits.trouble, *missing, *more, *untold, *unasked),
            consumed=found.consumed,
            stuck=found.stuck,
            racks=racks,
            queue=None if kind is None else queued(kind, found.speeds, readings.work),
        )

    def racks_now(
        self, group: GroupView, partitions: Collection[TopicPartition]
    ) -> tuple[Racks, tuple[str, ...]]:
        """Return the racks of these partitions' replicas, and what was wrong."""
        trouble = self._brokers.layout().trouble
        racks, silent = self._racks(group, partitions)
        return racks, (*trouble, *silent)

    def _racks(
        self, group: GroupView, partitions: Collection[TopicPartition]
    ) -> tuple[Racks, tuple[str, ...]]:
        """Return the racks as of the last layout."""
        if self._weighs_racks or any(reader.rack for reader in group.readers):
            return self._brokers.racks(partitions)
        return {}, ()

    def close(self) -> None:
        """Let the connections go."""
        self._brokers.close()
        for part in (self._shares, self._markers):
            if part is not None:
                part.close()
        if self._sampler is not None:
            self._sampler.close()
        if self._log_dirs is not None:
            self._log_dirs.close()

    def _nothing(self, layout: Layout) -> Measurement:
        """Take note that nobody answers: every speed becomes unknown, and stays so for a while."""
        readings = Readings(tuple(sorted(self._leaders)), {}, {}, None)
        speeds = self._gauge.blank(self._clock.monotonic(), readings)
        return Measurement(speeds, GroupView(), {}, layout.trouble)

    def _commits(self, partitions: Iterable[TopicPartition]) -> Commits:
        return self._brokers.commits(partitions) if self._shares is None else self._shares.commits()

    def _told(self, layout: Layout) -> Told | None:
        """Return what is in work, of a `kmq` queue."""
        if self._markers is None:
            return None
        there = {p.topic for p in layout.leaders}
        return self._markers.look(sorted(self._leaders), there, self._brokers.ends)

    def _readings(
        self, commits: Commits, told: Told | None, hidden: Collection[TopicPartition]
    ) -> tuple[float, Readings, tuple[str, ...]]:
        """Return when speeds were read, the readings, and what was wrong.

        What is `hidden` is read by a member but not shown to us: it is there, and unknown.
        The time is that of the reading itself: what else is asked for takes as long as it likes.
        """
        partitions = tuple(sorted(self._leaders))
        at, ends = self._timed(lambda: self._brokers.ends(partitions))
        begins = self._brokers.begins(partitions)
        trouble = (*ends.trouble, *begins.trouble)
        readings = Readings(
            partitions=tuple(sorted({*partitions, *hidden})),
            ends=ends.values,
            begins=begins.values,
            committed=_reached(commits, ends) if commits.known else None,
            from_start=self._settings.offset_reset == "earliest",
            work=None if told is None else told.work,
        )
        if self._sampler is not None:
            now = self._clock.monotonic()
            self._gauge.learn(self._sampler.sample(ends.values, begins.values, now))
            trouble += tuple(
                f"topic {topic} may not be read, so sizes of records are not known: grant Read on "
                f"topic {topic}, or use source=log-dirs"
                for topic in sorted(self._sampler.denied)
            )
        if self._log_dirs is not None:
            log_dirs = self._log_dirs
            at, grown = self._timed(lambda: log_dirs.sizes(self._leaders))
            readings = replace(readings, sizes=grown.values)
            trouble += grown.trouble
        return at, readings, trouble

    def _timed(self, ask: Callable[[], T]) -> tuple[float, T]:
        """Return the middle of the time that a question took, and its answer."""
        begun = self._clock.monotonic()
        answer = ask()
        return (begun + self._clock.monotonic()) / 2, answer

    def _topics(
        self, layout: Layout, group: GroupView
    ) -> tuple[frozenset[str] | None, tuple[str, ...]]:
        """Return the group's topics, None where only its commits can tell, and complaints."""
        there = {p.topic for p in layout.leaders}
        if self._settings.topics:
            found, missing = matching(self._settings.topics, there)
            return found, tuple(map(self._brokers.absent, missing))
        now = self._clock.monotonic()
        for reader in group.readers:
            self._read.update(dict.fromkeys((p.topic for p in reader.owned), now))
        lately = {t for t, at in self._read.items() if now - at <= REMEMBERED}
        return (frozenset(lately & there) if lately else None), ()


def _reached(commits: Commits, ends: Offsets) -> Mapping[TopicPartition, int]:
    """Return how far the group is: what it committed, or so far before the end as its lag says."""
    lags = commits.lags.items()
    return {**commits.offsets, **{p: ends.values[p] - n for p, n in lags if p in ends.values}}


def _of(layout: Layout, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Return the leaders of these topics' partitions."""
    return {p: broker for p, broker in layout.leaders.items() if p.topic in topics}


def matching(wanted: Sequence[str], there: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the topics meant by names and "^patterns", and the names that are missing.

    A pattern never means Kafka's own topics ("__...").
    """
    there = frozenset(there)
    found: set[str] = set()
    missing: list[str] = []
    for name in wanted:
        if name.startswith("^"):
            found |= {t for t in there if re.match(name, t) and not t.startswith("__")}
        elif name in there:
            found.add(name)
        else:
            missing.append(name)
    return frozenset(found), tuple(missing)
