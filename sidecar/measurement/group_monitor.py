"""One look at the group: members, offsets, sizes; what it measures becomes speeds and backlog."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol, TypeVar

from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.kafka.broker_client import (
    BrokerClient,
    ClusterMetadata,
    GroupCommits,
    PartitionOffsets,
)
from trimtab.sidecar.kafka.kmq_progress import KmqProgress, KmqProgressReader
from trimtab.sidecar.kafka.log_dirs import LogDirsClient
from trimtab.sidecar.kafka.record_sampler import RecordSampler
from trimtab.sidecar.kafka.share_groups.share_group import ShareGroupClient
from trimtab.sidecar.measurement.measurement import LoadEstimator
from trimtab.sidecar.measurement.observation import ObservedGroup, ReplicaRacks
from trimtab.sidecar.measurement.queue_backlog import QueueBacklog, QueueKind, compute_queue_backlog
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.settings.settings import SidecarSettings

T = TypeVar("T")

TOPIC_GRACE_PERIOD_S: Final = 60.0
"""Seconds for which a topic that the group has read belongs to it although nobody reads it now."""


@dataclass(frozen=True, slots=True)
class GroupMeasurement:
    """What one look gave; `commit_metadata` are the commits' metadata, `trouble` says what is not known.

    `consumption_rates` is in bytes/s, of partitions of which it is known; `stuck_partitions` are those of which nothing
    is consumed although it waits and is read. `replica_racks` is empty where nobody asked (`GroupMonitor`);
    `queue` is what there is to do, in messages.
    """

    write_rates: Mapping[TopicPartition, PartitionLoad]
    group: ObservedGroup
    commit_metadata: Mapping[TopicPartition, str]
    trouble: tuple[str, ...]
    consumption_rates: Mapping[TopicPartition, float] = field(
        default_factory=dict[TopicPartition, float]
    )
    stuck_partitions: frozenset[TopicPartition] = frozenset()
    replica_racks: ReplicaRacks = field(
        default_factory=dict[TopicPartition, tuple[str | None, ...]]
    )
    queue: QueueBacklog | None = None


class GroupObserver(Protocol):
    """What the loop needs of a monitor."""

    def measure(self) -> GroupMeasurement:
        """Look at everything."""
        ...

    def describe_group(self) -> ObservedGroup:
        """Look at the group's members only."""
        ...


class GroupMonitor:
    """Keeps the readings of the sliding window; never raises because a broker is away.

    Racks of replicas are asked for where the heuristic weighs racks, or a member says its own.
    """

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._brokers = BrokerClient(
            settings.client_config, settings.group, settings.timeout, clock
        )
        kind = settings.queue
        self._share_group = ShareGroupClient(settings, clock) if kind is QueueKind.SHARE else None
        self._kmq_progress = (
            KmqProgressReader.connect(settings, clock) if kind is QueueKind.KMQ else None
        )
        by_size = settings.source == "log-dirs"
        self._load_estimator = LoadEstimator(settings)
        self._sampler = None if by_size else RecordSampler(settings.client_config)
        self._log_dirs = (
            LogDirsClient(settings.client_config, settings.timeout) if by_size else None
        )
        self._last_read: dict[str, float] = {}  # topic -> when somebody read it
        self._leaders: Mapping[TopicPartition, int] = {}
        self._weighs_racks = get_heuristic(settings.effective_heuristic).weighs_racks

    @property
    def brokers(self) -> BrokerClient:
        """Return the connection, for those who ask something else."""
        return self._brokers

    def describe_group(self) -> ObservedGroup:
        """Look at the group's members only."""
        return self.describe_group_with_trouble()[0]

    def describe_group_with_trouble(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Look at the group's members, and tell what was wrong."""
        return (
            self._brokers.describe_group()
            if self._share_group is None
            else self._share_group.describe_group()
        )

    def measure(self) -> GroupMeasurement:
        """Look at everything; takes as long as the slowest broker, at most a few timeouts."""
        layout = self._brokers.fetch_cluster_metadata()
        if not layout.leaders:
            return self._record_outage(layout)
        group, silent = self.describe_group_with_trouble()
        wanted, missing = self._resolve_topics(layout, group)
        asked = layout.leaders if wanted is None else _select_leaders(layout, wanted)
        commits = self._fetch_commits(asked)
        there = {p.topic for p in commits.offsets} if wanted is None else wanted
        self._leaders = _select_leaders(layout, there)
        read = {p for reader in group.members for p in reader.owned_partitions}
        kind = self._settings.queue
        # after the commits and before the ends: nothing is seen in neither
        told = self._fetch_in_flight(layout)
        at, readings, more = self._collect_readings(
            commits, told, hidden=read - layout.leaders.keys()
        )
        found = self._load_estimator.estimate_load(at, readings, group)
        racks, unasked = self._lookup_replica_racks(group, self._leaders)
        untold = () if told is None else told.trouble
        return GroupMeasurement(
            write_rates=found.write_rates,
            group=group,
            commit_metadata=commits.metadata,
            trouble=(*silent, *commits.trouble, *missing, *more, *untold, *unasked),
            consumption_rates=found.consumption_rates,
            stuck_partitions=found.stuck_partitions,
            replica_racks=racks,
            queue=None
            if kind is None
            else compute_queue_backlog(kind, found.write_rates, readings.in_flight),
        )

    def fetch_replica_racks(
        self, group: ObservedGroup, partitions: Collection[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        """Return the racks of these partitions' replicas, and what was wrong."""
        trouble = self._brokers.fetch_cluster_metadata().trouble
        racks, silent = self._lookup_replica_racks(group, partitions)
        return racks, (*trouble, *silent)

    def _lookup_replica_racks(
        self, group: ObservedGroup, partitions: Collection[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        """Return the racks as of the last layout."""
        if self._weighs_racks or any(reader.rack for reader in group.members):
            return self._brokers.fetch_replica_racks(partitions)
        return {}, ()

    def close(self) -> None:
        """Let the connections go."""
        self._brokers.close()
        for part in (self._share_group, self._kmq_progress):
            if part is not None:
                part.close()
        if self._sampler is not None:
            self._sampler.close()
        if self._log_dirs is not None:
            self._log_dirs.close()

    def _record_outage(self, layout: ClusterMetadata) -> GroupMeasurement:
        """Take note that nobody answers: every speed becomes unknown, and stays so for a while."""
        readings = OffsetReadings(tuple(sorted(self._leaders)), {}, {}, None)
        speeds = self._load_estimator.record_outage(self._clock.monotonic(), readings)
        return GroupMeasurement(speeds, ObservedGroup(), {}, layout.trouble)

    def _fetch_commits(self, partitions: Iterable[TopicPartition]) -> GroupCommits:
        return (
            self._brokers.fetch_group_commits(partitions)
            if self._share_group is None
            else self._share_group.fetch_group_commits()
        )

    def _fetch_in_flight(self, layout: ClusterMetadata) -> KmqProgress | None:
        """Return what is in work, of a `kmq` queue."""
        if self._kmq_progress is None:
            return None
        there = {p.topic for p in layout.leaders}
        return self._kmq_progress.read_progress(
            sorted(self._leaders), there, self._brokers.fetch_end_offsets
        )

    def _collect_readings(
        self,
        commits: GroupCommits,
        kmq_progress: KmqProgress | None,
        hidden: Collection[TopicPartition],
    ) -> tuple[float, OffsetReadings, tuple[str, ...]]:
        """Return when speeds were read, the readings, and what was wrong.

        What is `hidden` is read by a member but not shown to us: it is there, and unknown.
        The time is that of the reading itself: what else is asked for takes as long as it likes.
        """
        partitions = tuple(sorted(self._leaders))
        at, ends = self._time_request(lambda: self._brokers.fetch_end_offsets(partitions))
        begins = self._brokers.fetch_beginning_offsets(partitions)
        trouble = (*ends.trouble, *begins.trouble)
        readings = OffsetReadings(
            partitions=tuple(sorted({*partitions, *hidden})),
            end_offsets=ends.values,
            beginning_offsets=begins.values,
            committed_offsets=_derive_committed_offsets(commits, ends)
            if commits.is_known
            else None,
            reset_to_earliest=self._settings.offset_reset == "earliest",
            in_flight=None if kmq_progress is None else kmq_progress.in_flight,
        )
        if self._sampler is not None:
            now = self._clock.monotonic()
            self._load_estimator.learn_record_sizes(
                self._sampler.sample_record_sizes(ends.values, begins.values, now)
            )
            trouble += tuple(
                f"topic {topic} may not be read, so sizes of records are not known: grant Read on "
                f"topic {topic}, or use source=log-dirs"
                for topic in sorted(self._sampler.denied_topics)
            )
        if self._log_dirs is not None:
            log_dirs = self._log_dirs
            at, grown = self._time_request(lambda: log_dirs.fetch_replica_sizes(self._leaders))
            readings = replace(readings, log_sizes=grown.values)
            trouble += grown.trouble
        return at, readings, trouble

    def _time_request(self, request: Callable[[], T]) -> tuple[float, T]:
        """Return the middle of the time that a question took, and its answer."""
        begun = self._clock.monotonic()
        answer = request()
        return (begun + self._clock.monotonic()) / 2, answer

    def _resolve_topics(
        self, layout: ClusterMetadata, group: ObservedGroup
    ) -> tuple[frozenset[str] | None, tuple[str, ...]]:
        """Return the group's topics, None where only its commits can tell, and complaints."""
        there = {p.topic for p in layout.leaders}
        if self._settings.topics:
            found, missing = match_topics(self._settings.topics, there)
            return found, tuple(map(self._brokers.explain_missing_topic, missing))
        now = self._clock.monotonic()
        for reader in group.members:
            self._last_read.update(dict.fromkeys((p.topic for p in reader.owned_partitions), now))
        lately = {t for t, at in self._last_read.items() if now - at <= TOPIC_GRACE_PERIOD_S}
        return (frozenset(lately & there) if lately else None), ()


def _derive_committed_offsets(
    commits: GroupCommits, ends: PartitionOffsets
) -> Mapping[TopicPartition, int]:
    """Return how far the group is: what it committed, or so far before the end as its lag says."""
    lags = commits.lags.items()
    return {**commits.offsets, **{p: ends.values[p] - n for p, n in lags if p in ends.values}}


def _select_leaders(layout: ClusterMetadata, topics: Collection[str]) -> dict[TopicPartition, int]:
    """Return the leaders of these topics' partitions."""
    return {p: broker for p, broker in layout.leaders.items() if p.topic in topics}


def match_topics(
    patterns: Sequence[str], existing: Iterable[str]
) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the topics meant by names and "^patterns", and the names that are missing.

    A pattern never means Kafka's own topics ("__...").
    """
    existing = frozenset(existing)
    found: set[str] = set()
    missing: list[str] = []
    for name in patterns:
        if name.startswith("^"):
            found |= {t for t in existing if re.match(name, t) and not t.startswith("__")}
        elif name in existing:
            found.add(name)
        else:
            missing.append(name)
    return frozenset(found), tuple(missing)
