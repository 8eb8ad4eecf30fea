"""Measures the group: members, offsets and record sizes become write rates and backlog."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from confluent_kafka.admin import AdminClient

from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.settings.shared_defaults import QueueKind
from trimtab.common.type_vars import ResultT
from trimtab.sidecar.kafka.broker_client import BrokerClient, GroupCommits
from trimtab.sidecar.kafka.cluster_client import ClusterMetadata, PartitionOffsets
from trimtab.sidecar.kafka.consumer_group import EitherGroupClient
from trimtab.sidecar.kafka.kmq_progress import KmqProgress, KmqProgressReader
from trimtab.sidecar.kafka.record_sampler import RecordSampler
from trimtab.sidecar.kafka.share_group import ShareGroupClient
from trimtab.sidecar.measurement.halts import parse_halts
from trimtab.sidecar.measurement.load_estimator import LoadEstimate, LoadEstimator
from trimtab.sidecar.measurement.open_transactions import OpenProducer, OpenTransactionTracker
from trimtab.sidecar.measurement.record_sizes import SampledBatch
from trimtab.sidecar.measurement.write_rate import OffsetReadings
from trimtab.sidecar.model.member_names import name_observed_members
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ReplicaRacks
from trimtab.sidecar.model.queue_backlog import QueueBacklog, compute_queue_backlog
from trimtab.sidecar.readings.prometheus_query import PrometheusQuery
from trimtab.sidecar.readings.promised_partitions import PromiseTracker
from trimtab.sidecar.readings.read_topics import ReadTopics
from trimtab.sidecar.settings.settings import SidecarSettings

UNKNOWN_TOPICS: Final = (
    "no member has owned a partition since the sidecar started, so which topics the group reads is unknown "
    "(its committed offsets may be of topics that it has left): name them in the setting `topics`"
)


@dataclass(frozen=True, slots=True)
class GroupMeasurement:
    """Measurement of one iteration."""

    load: LoadEstimate
    group: ObservedGroup
    commit_metadata: Mapping[TopicPartition, str]
    errors: tuple[str, ...]
    halts: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])  # why not read
    # Empty if neither the heuristic nor a member needs racks.
    replica_racks: ReplicaRacks = field(default_factory=dict[TopicPartition, tuple[str | None, ...]])
    queue: QueueBacklog | None = None
    # Whose transaction, and since when, keeps readers from the end of a partition.
    open_transactions: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])


class GroupObserver(Protocol):
    """Measurements for the control loop."""

    def measure(self) -> GroupMeasurement:
        """Measure load, members and backlog."""
        ...

    def describe_group(self) -> ObservedGroup:
        """Describe the group's members only."""
        ...


class GroupBrokers(Protocol):
    """Requests to the brokers about one group, as `BrokerClient` sends them."""

    @property
    def admin(self) -> AdminClient:
        """The admin client."""
        ...

    def fetch_cluster_metadata(self) -> ClusterMetadata:
        """Return all partitions; none without a response."""
        ...

    def fetch_replica_racks(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        """Return the racks of the replicas, and errors."""
        ...

    def fetch_end_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset after the last record of each partition."""
        ...

    def fetch_beginning_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset of the first retained record of each partition."""
        ...

    def fetch_stable_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the last stable offset of each partition."""
        ...

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group and errors."""
        ...

    def fetch_group_commits(self, partitions: Iterable[TopicPartition] | None = None) -> GroupCommits:
        """Return the group's commits of these partitions; of all if None."""
        ...

    def explain_missing_topic(self, topic: str) -> str:
        """Return why a topic is not in the cluster metadata."""
        ...

    def close(self) -> None:
        """Close the connections of this group alone."""
        ...


class LogSampler(Protocol):
    """What is measured of the logs themselves, as by `RecordSampler`."""

    @property
    def errors(self) -> Mapping[str, str]:
        """Why the sizes of topics are unknown, by topic."""
        ...

    @property
    def transactional(self) -> Collection[TopicPartition]:
        """Partitions in which a transaction was seen."""
        ...

    def fetch_log_sizes(self, leaders: Mapping[TopicPartition, int], now: float) -> PartitionOffsets:
        """Return the bytes of each leader's replica, and errors."""
        ...

    def sample_batches(
        self,
        ends: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
        now: float,
    ) -> Mapping[TopicPartition, Sequence[SampledBatch]]:
        """Return new batches."""
        ...

    def find_producer(self, partition: TopicPartition, offset: int) -> OpenProducer | None:
        """Return the producer whose open transaction begins at this offset; None if no broker tells it."""
        ...

    def close(self) -> None:
        """Close the connections of this group alone."""
        ...


@dataclass(frozen=True, slots=True)
class SharedConnections:
    """What a group uses of connections that it shares with others."""

    brokers: GroupBrokers  # describes groups of both protocols
    sampler: LogSampler


class GroupMonitor:
    """Keeps the sliding window of readings; an unavailable broker never raises."""

    def __init__(
        self, settings: SidecarSettings, clock: Clock, shared: SharedConnections | None = None
    ) -> None:
        """Open connections of its own, unless there are shared ones."""
        self._settings = settings
        self._clock = clock
        self._brokers: GroupBrokers
        self._described: GroupBrokers | EitherGroupClient | ShareGroupClient
        if shared is None:
            brokers = BrokerClient(settings.client_config, settings.group, settings.timeout, clock)
            self._brokers, self._described = brokers, EitherGroupClient(brokers, settings, clock)
        else:
            self._brokers = self._described = shared.brokers
        kind = settings.queue
        self._share_group = ShareGroupClient(settings, clock) if kind is QueueKind.SHARE else None
        if self._share_group is not None:
            self._described = self._share_group
        self._assignor: str | None = None
        self._promises = PromiseTracker()
        self._kmq_progress = KmqProgressReader.connect(settings, clock) if kind is QueueKind.KMQ else None
        self._load_estimator = LoadEstimator(settings)
        self._sampler: LogSampler = RecordSampler(settings, clock) if shared is None else shared.sampler
        self._is_by_log = settings.source == "log-dirs"
        self._weight_query = PrometheusQuery.of_settings(settings, clock)
        self._read_topics = ReadTopics()
        self._transactions = OpenTransactionTracker()
        self._leaders: Mapping[TopicPartition, int] = {}
        self._weighs_racks = get_heuristic(settings.effective_heuristic).weighs_racks

    @property
    def brokers(self) -> GroupBrokers:
        """Broker connection, shared for other requests."""
        return self._brokers

    def get_assignor(self) -> str | None:
        """Return the broker's assignor of the group as last described; None for a classic group."""
        return self._assignor

    def describe_group(self) -> ObservedGroup:
        """Describe the group's members only."""
        return self.describe_group_with_errors()[0]

    def describe_group_with_errors(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Describe the group's members; also return errors."""
        group, errors = self._described.describe_group()
        if group.state is not GroupState.UNKNOWN:
            self._assignor = group.assignor
        if self._settings.lead:
            group = name_observed_members(group, {}, self._settings.consumers_per_replica)
        return group, errors

    def measure(self) -> GroupMeasurement:
        """Measure load, members and backlog; takes at most a few timeouts."""
        layout = self._brokers.fetch_cluster_metadata()
        if not layout.leaders:
            return self._record_outage(layout)
        group, group_errors = self.describe_group_with_errors()
        topics, missing = self._resolve_topics(layout, group)
        candidates = layout.leaders if topics is None else layout.select_leaders(topics)
        # Before the end offsets: a commit read later could exceed them.
        commits = self._fetch_commits(candidates)
        group = self._mark_unreleased(group, commits, candidates)
        # the broker lists the topics that a share group reads
        is_guessed = topics is None and self._share_group is None
        topics = frozenset(p.topic for p in commits.offsets) if topics is None else topics
        self._leaders = layout.select_leaders(topics)
        owned = {p for member in group.members for p in member.owned_partitions}
        hidden = owned - layout.leaders.keys()
        # Between commits and end offsets: every message is seen in one of the two.
        kmq_progress = self._fetch_in_flight(layout)
        at, readings, errors = self._collect_readings(commits, kmq_progress, hidden)
        weights, weight_errors = self._fetch_weights(readings.partitions)
        load = self._load_estimator.estimate_load(at, readings, group, weights)
        if is_guessed:
            load = replace(load, write_rates=dict.fromkeys(load.write_rates, PartitionLoad()))
        racks, rack_errors = self._lookup_replica_racks(group, self._leaders)
        kmq_errors = () if kmq_progress is None else kmq_progress.errors
        kind = self._settings.queue
        return GroupMeasurement(
            load=load,
            group=group,
            commit_metadata=commits.metadata,
            errors=(
                *(*group_errors, *commits.errors, *missing, *errors),
                *((UNKNOWN_TOPICS,) if is_guessed and load.write_rates else ()),
                *(*kmq_errors, *rack_errors, *weight_errors),
            ),
            halts=parse_halts({p: text for p, text in commits.metadata.items() if p in owned}),
            replica_racks=racks,
            open_transactions=self._transactions.find_open(at, readings, self._sampler.find_producer),
            queue=None if kind is None else compute_queue_backlog(kind, load.write_rates, readings.in_flight),
        )

    def _mark_unreleased(
        self, group: ObservedGroup, commits: GroupCommits, candidates: Collection[TopicPartition]
    ) -> ObservedGroup:
        wall_time, now = self._clock.wall(), self._clock.monotonic()
        unreleased = self._promises.list_unreleased(group.members, commits.metadata, wall_time, now)
        return replace(group, unreleased=unreleased.intersection(candidates))

    def fetch_replica_racks(
        self, group: ObservedGroup, partitions: Collection[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        """Return the racks of these partitions' replicas, and errors."""
        errors = self._brokers.fetch_cluster_metadata().errors
        racks, rack_errors = self._lookup_replica_racks(group, partitions)
        return racks, (*errors, *rack_errors)

    def _lookup_replica_racks(
        self, group: ObservedGroup, partitions: Collection[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        if self._weighs_racks or any(member.rack for member in group.members):
            return self._brokers.fetch_replica_racks(partitions)
        return {}, ()

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()
        for client in (self._described, self._kmq_progress, self._sampler):
            if client is not None:
                client.close()

    def _record_outage(self, layout: ClusterMetadata) -> GroupMeasurement:
        readings = OffsetReadings(tuple(sorted(self._leaders)), {}, {}, None)
        load = self._load_estimator.record_outage(self._clock.monotonic(), readings)
        return GroupMeasurement(load, ObservedGroup(), {}, layout.errors)

    def _fetch_commits(self, partitions: Iterable[TopicPartition]) -> GroupCommits:
        if self._share_group is not None:
            return self._share_group.fetch_group_commits()
        return self._brokers.fetch_group_commits(partitions)

    def _fetch_in_flight(self, layout: ClusterMetadata) -> KmqProgress | None:
        if self._kmq_progress is None:
            return None
        partitions = sorted(self._leaders)
        return self._kmq_progress.read_progress(partitions, layout.leaders, self._brokers.fetch_end_offsets)

    def _collect_readings(
        self, commits: GroupCommits, kmq_progress: KmqProgress | None, hidden: Collection[TopicPartition]
    ) -> tuple[float, OffsetReadings, tuple[str, ...]]:
        """Return the time of the readings, the readings, and errors."""
        partitions = tuple(sorted(self._leaders))
        # a rate divides by the time between offsets, and the other requests may take seconds
        at, ends = self._time_request(lambda: self._brokers.fetch_end_offsets(partitions))
        at = at if ends.read_at is None else ends.read_at
        log_sizes = self._sampler.fetch_log_sizes(self._leaders, at)
        begins = self._brokers.fetch_beginning_offsets(partitions)
        transactional = self._leaders.keys() & self._sampler.transactional
        stable = self._brokers.fetch_stable_offsets(transactional) if transactional else PartitionOffsets({})
        errors = (*ends.errors, *begins.errors, *stable.errors)
        readings = OffsetReadings(
            # Hidden partitions have an owner, but no metadata for us: they count as unknown.
            partitions=tuple(sorted({*partitions, *hidden})),
            end_offsets=ends.values,
            beginning_offsets=begins.values,
            committed_offsets=_derive_committed_offsets(commits, ends) if commits.is_known else None,
            reset_to_earliest=self._settings.offset_reset == "earliest",
            in_flight=None if kmq_progress is None else kmq_progress.in_flight,
            commit_metadata=commits.metadata,
            stable_offsets=stable.values,
            log_sizes=log_sizes.values,
            leaders=self._leaders,
        )
        if self._is_by_log:
            return at, readings, (*errors, *log_sizes.errors)
        return at, readings, (*errors, *self._sample_records(readings))

    def _sample_records(self, readings: OffsetReadings) -> tuple[str, ...]:
        ends, begins, now = readings.end_offsets, readings.beginning_offsets, self._clock.monotonic()
        self._load_estimator.learn_record_sizes(
            self._sampler.sample_batches(ends, begins, self._leaders, now)
        )
        return tuple(text for _, text in sorted(self._sampler.errors.items()))

    def _fetch_weights(
        self, partitions: Sequence[TopicPartition]
    ) -> tuple[Mapping[TopicPartition, float] | None, tuple[str, ...]]:
        """Return the weights from outside (None: there are none), and errors."""
        if self._weight_query is None:
            return None, ()
        return self._weight_query.fetch_weights(partitions)

    def _time_request(self, request: Callable[[], ResultT]) -> tuple[float, ResultT]:
        begun = self._clock.monotonic()
        answer = request()
        return (begun + self._clock.monotonic()) / 2, answer  # midpoint

    def _resolve_topics(
        self, layout: ClusterMetadata, group: ObservedGroup
    ) -> tuple[frozenset[str] | None, tuple[str, ...]]:
        """Return the group's topics (None: those with commits), and errors."""
        existing = layout.leaders_by_topic.keys()
        if self._settings.topics:
            topics, missing = match_topics(self._settings.topics, existing)
            return topics, tuple(map(self._brokers.explain_missing_topic, missing))
        owned = {p.topic for member in group.members for p in member.owned_partitions}
        self._read_topics = self._read_topics.add_owned(owned, self._clock.monotonic())
        read = self._read_topics.owned_at.keys()
        return (frozenset(read & existing) if read else None), ()


def _derive_committed_offsets(commits: GroupCommits, ends: PartitionOffsets) -> Mapping[TopicPartition, int]:
    lags = commits.lags.items()  # of a share group: the broker tells its lag, but no offset
    return {**commits.offsets, **{p: ends.values[p] - n for p, n in lags if p in ends.values}}


def match_topics(patterns: Sequence[str], existing: Iterable[str]) -> tuple[frozenset[str], tuple[str, ...]]:
    """Return the topics matching names and "^patterns", and the missing names."""
    existing = frozenset(existing)
    matched: set[str] = set()
    missing: list[str] = []
    for name in patterns:
        if name.startswith("^"):  # librdkafka's mark of a pattern; "__" begins Kafka's internal topics
            matched |= {t for t in existing if re.match(name, t) and not t.startswith("__")}
        elif name in existing:
            matched.add(name)
        else:
            missing.append(name)
    return frozenset(matched), tuple(missing)
