"""The connections of a process to its brokers, and what each group uses of them.

1. A round reads all groups from these connections: members and commits by a few requests to each
   coordinator, offsets once for each topic.
2. A group is ready when its coordinator has answered, or has not answered in time. A round waits
   `LATE_AFTER_S` for coordinators; one that answers later, or did in the last round, delays only its groups.
3. Slow leaders delay only the groups that read from them: each group waits for its own partitions.
4. While the metadata cannot be read, the last known one is used.
5. The logs of the last round's topics are measured at the beginning of a round; no group waits longer than
   `SIZES_LATE_AFTER_S` for it. Records are sampled between rounds, some partitions of each topic in turn.
"""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from threading import Condition, Lock
from typing import Final

from confluent_kafka.admin import AdminClient

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.sidecar.groups.round_readings import ReadyCallback, RoundReadings
from trimtab.sidecar.kafka.broker_client import GroupCommits
from trimtab.sidecar.kafka.cluster_client import ClusterClient, ClusterMetadata, PartitionOffsets
from trimtab.sidecar.kafka.group_batches import GroupBatchClient, GroupReading, report_failure
from trimtab.sidecar.kafka.record_sampler import MAX_SAMPLED_PARTITIONS, RecordSampler
from trimtab.sidecar.measurement.open_transactions import OpenProducer
from trimtab.sidecar.measurement.record_sizes import SampledBatch
from trimtab.sidecar.model.observation import ObservedGroup, ReplicaRacks
from trimtab.sidecar.settings.settings import SidecarSettings

log = logging.getLogger("trimtab.sidecar")

LATE_AFTER_S: Final = 1.0
MAX_READS_UNDER_WAY: Final = 8  # each ends by its timeouts; of several rounds if brokers are slow
SIZES_LATE_AFTER_S: Final = 0.2
SAMPLED_PER_TOPIC: Final = 2  # partitions in one pass over all topics


class SharedBrokers:
    """Connections of a process. Raises SidecarSettingError, SaslAuthenticationError, TlsHandshakeError."""

    def __init__(self, settings: SidecarSettings, clock: Clock) -> None:
        self._clock = clock
        self._timeout = settings.timeout
        self.cluster = ClusterClient(settings.client_config, settings.timeout, clock)
        self.batches = GroupBatchClient(settings, clock, self.cluster.intern)
        self.sampler = SharedSampler(RecordSampler(settings, clock), clock)
        self._last_round: RoundReadings | None = None
        self._metadata = ClusterMetadata({})
        self._metadata_thread = ThreadPoolExecutor(1, thread_name_prefix="trimtab-metadata")
        self._fetching: Future[ClusterMetadata] | None = None
        self._readers = ThreadPoolExecutor(MAX_READS_UNDER_WAY, thread_name_prefix="trimtab-read")
        self._late: frozenset[str] = frozenset()  # groups whose coordinators were late

    def read_round(self, topics_of: Mapping[str, Collection[str]], on_ready: ReadyCallback) -> RoundReadings:
        """Read these groups; `on_ready` is called for each once, possibly after the return.

        `topics_of` are the topics that each group's settings name; empty: those that it reads.
        """
        readings = RoundReadings(self.cluster, self._refresh_metadata())
        if not readings.metadata.leaders:
            on_ready(readings, tuple(topics_of))
            return readings
        if self._last_round is not None:
            topics = self._last_round.list_requested_topics()
            self.sampler.request_log_sizes(readings.metadata.select_leaders(topics))
        self._last_round = readings
        arrival = _Arrival(readings, topics_of, on_ready)
        self._readers.submit(self._read_groups, tuple(topics_of), arrival)
        self._late = arrival.wait(self._late, LATE_AFTER_S)
        return readings

    def read_group(self, group: str) -> GroupReading:
        """Read one group now, outside of rounds."""
        found: dict[str, GroupReading] = {}
        self.batches.read_groups([group], found.update)
        return found.get(group, GroupReading())

    def close(self) -> None:
        """Close the connections."""
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._metadata_thread.shutdown(wait=False, cancel_futures=True)
        self.batches.close()
        self.sampler.close()

    def _refresh_metadata(self) -> ClusterMetadata:
        if self._fetching is None:
            self._fetching = self._metadata_thread.submit(self.cluster.fetch_cluster_metadata)
        try:
            # one of several brokers may be slow: then the last known metadata is used (rule 4)
            fetched = self._fetching.result(LATE_AFTER_S if self._metadata.leaders else None)
        except FutureTimeout:
            return self._metadata
        self._fetching = None
        if fetched.leaders or not self._metadata.leaders:
            self._metadata = fetched
        return self._metadata

    def _read_groups(self, groups: Sequence[str], arrival: "_Arrival") -> None:
        try:
            self.batches.read_groups(groups, arrival.add)
        except Exception as error:  # noqa: BLE001 - the groups' error, and the round goes on
            arrival.add_missing(error)
        arrival.add_missing(TimeoutError("no answer"))


class _Arrival:
    """Collects the readings of a round, and hands groups on: together, or later as they come."""

    def __init__(
        self, readings: RoundReadings, topics_of: Mapping[str, Collection[str]], on_ready: ReadyCallback
    ) -> None:
        self._readings = readings
        self._topics_of = topics_of
        self._on_ready = on_ready
        self._changed = Condition()
        self._arrived: dict[str, GroupReading] = {}
        self._missing = set(topics_of)
        self._is_open = True  # until the round goes on without those that are missing

    def add(self, readings: Mapping[str, GroupReading]) -> None:
        """Add the readings of a coordinator's groups."""
        with self._changed:
            self._missing -= readings.keys()
            if self._is_open:
                self._arrived.update(readings)
                self._changed.notify_all()
                return
        self._hand_on(readings)

    def add_missing(self, error: Exception) -> None:
        """Report this error for the groups of which nothing arrived."""
        with self._changed:
            missing = tuple(self._missing)
        if missing:
            self.add({group: report_failure(group, error) for group in missing})

    def wait(self, late: Collection[str], seconds: float) -> frozenset[str]:
        """Wait for all but the late groups, hand on what arrived, and return the groups that are late."""
        with self._changed:
            self._changed.wait_for(lambda: not self._missing.difference(late), seconds)
            self._is_open = False
            arrived, missing = self._arrived, frozenset(self._missing)
        self._hand_on(arrived)
        # one that answered quickly is waited for again in the next round
        return missing

    def _hand_on(self, readings: Mapping[str, GroupReading]) -> None:
        if readings:
            self._readings.add_readings(readings, self._topics_of)
            self._on_ready(self._readings, tuple(readings))


class SharedSampler:
    """Samples records for all groups; each takes the batches that are new to it, under a lock."""

    def __init__(self, sampler: RecordSampler, clock: Clock) -> None:
        self._sampler = sampler
        self._clock = clock
        self._measuring = ThreadPoolExecutor(1, thread_name_prefix="trimtab-log-sizes")
        self._log_sizes: Future[PartitionOffsets] | None = None  # of this round
        # By topic and partition, numbered.
        self._batches: dict[str, dict[TopicPartition, tuple[int, Sequence[SampledBatch]]]] = {}
        self._number = 0
        self._lock = Lock()  # of both
        self._pass = 0

    @property
    def errors(self) -> Mapping[str, str]:
        """Why the sizes of topics are unknown, by topic."""
        return self._sampler.errors

    @property
    def transactional(self) -> Collection[TopicPartition]:
        """Partitions in which a transaction was seen."""
        return self._sampler.transactional

    def request_log_sizes(self, leaders: Mapping[TopicPartition, int]) -> None:
        """Ask for the sizes of these logs, unless the last request is still under way."""
        if self._log_sizes is None or self._log_sizes.done():
            now = self._clock.monotonic()
            self._log_sizes = self._measuring.submit(self._sampler.fetch_log_sizes, leaders, now)

    def collect_log_sizes(self, leaders: Mapping[TopicPartition, int]) -> PartitionOffsets:
        """Return the sizes of these logs that have arrived."""
        if self._log_sizes is None:
            return PartitionOffsets({})
        try:
            found = self._log_sizes.result(SIZES_LATE_AFTER_S)
        except FutureTimeout:
            return PartitionOffsets({})
        return PartitionOffsets({p: found.values[p] for p in leaders if p in found.values}, found.errors)

    def find_producer(self, partition: TopicPartition, offset: int) -> OpenProducer | None:
        """Return the producer whose open transaction begins at this offset; None if no broker tells it."""
        return self._sampler.find_producer(partition, offset)

    def sample_topics(self, readings: RoundReadings, until: float) -> None:
        """Sample partitions of the round's topics that are due, until this monotonic time."""
        self._pass += 1
        with self._lock:  # deleted topics are forgotten
            asked = readings.list_requested_topics()
            self._batches = {topic: self._batches[topic] for topic in asked if topic in self._batches}
        chosen = [
            partition
            for topic in asked
            for partition in _take_in_turn(
                sorted(readings.metadata.leaders_by_topic.get(topic, ())), self._pass * SAMPLED_PER_TOPIC
            )
        ]
        ends, begins = readings.peek_offsets(chosen)
        leaders = readings.metadata.select_leaders(asked)
        for _ in range(0, len(ends), MAX_SAMPLED_PARTITIONS):
            if self._clock.monotonic() >= until:
                return
            batches = self._sampler.sample_batches(ends, begins, leaders, self._clock.monotonic())
            if not batches:
                return
            with self._lock:
                self._number += 1
                for partition, found in batches.items():
                    self._batches.setdefault(partition.topic, {})[partition] = (self._number, found)

    def take_batches(
        self, topics: Iterable[str], after: int
    ) -> tuple[int, Mapping[TopicPartition, Sequence[SampledBatch]]]:
        """Return the number of the newest sample, and the topics' batches sampled after that number."""
        with self._lock:
            numbered = [item for topic in topics for item in self._batches.get(topic, {}).items()]
            return self._number, {p: batches for p, (number, batches) in numbered if number > after}

    def close(self) -> None:
        """Close the connections."""
        self._measuring.shutdown(wait=False, cancel_futures=True)
        self._sampler.close()


def _take_in_turn(partitions: Sequence[TopicPartition], start: int) -> list[TopicPartition]:
    count = min(SAMPLED_PER_TOPIC, len(partitions))
    return [partitions[(start + n) % len(partitions)] for n in range(count)]


class GroupBrokersView:
    """The shared connections as those of one group (`GroupBrokers`)."""

    def __init__(self, shared: SharedBrokers, group: str) -> None:
        self._shared = shared
        self._group = group
        self._round: RoundReadings | None = None
        self._is_described = False  # in this round

    @property
    def admin(self) -> AdminClient:
        """The shared admin client."""
        return self._shared.cluster.admin

    def enter_round(self, readings: RoundReadings) -> None:
        """Answer from this round's readings from now on."""
        self._round, self._is_described = readings, False

    def fetch_cluster_metadata(self) -> ClusterMetadata:
        """Return all partitions, as of this round."""
        return ClusterMetadata({}) if self._round is None else self._round.metadata

    def fetch_replica_racks(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[ReplicaRacks, tuple[str, ...]]:
        """Return the racks of the replicas, and errors."""
        return self._shared.cluster.fetch_replica_racks(partitions)

    def fetch_end_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset after the last record of each partition, as of this round."""
        return PartitionOffsets({}) if self._round is None else self._round.collect_ends(partitions)

    def fetch_beginning_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the offset of the first retained record of each partition, as of this round."""
        return PartitionOffsets({}) if self._round is None else self._round.collect_beginnings(partitions)

    def fetch_stable_offsets(self, partitions: Iterable[TopicPartition]) -> PartitionOffsets:
        """Return the last stable offset of each partition."""
        return self._shared.cluster.fetch_stable_offsets(partitions)

    def describe_group(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        """Return the group and errors: as of this round at the first call in it, then as of now."""
        if self._is_described:
            return self._shared.read_group(self._group).describe()
        self._is_described = True
        return self._get_reading().describe()

    def fetch_group_commits(self, partitions: Iterable[TopicPartition] | None = None) -> GroupCommits:
        """Return the group's commits of these partitions, as of this round; of all if None."""
        commits = self._get_reading().commits
        if partitions is None:
            return commits
        wanted = frozenset(partitions)
        offsets = {p: offset for p, offset in commits.offsets.items() if p in wanted}
        metadata = {p: text for p, text in commits.metadata.items() if p in wanted}
        return GroupCommits(offsets, metadata, commits.is_known, commits.errors)

    def explain_missing_topic(self, topic: str) -> str:
        """Return why a topic is not in the cluster metadata."""
        return self._shared.cluster.explain_missing_topic(topic)

    def close(self) -> None:
        """Close nothing: the connections are the process's."""

    def _get_reading(self) -> GroupReading:
        found = None if self._round is None else self._round.readings.get(self._group)
        return found or report_failure(self._group, TimeoutError("no answer"))


class GroupSamplerView:
    """The shared sampler as that of one group (`LogSampler`)."""

    def __init__(self, shared: SharedSampler) -> None:
        self._shared = shared
        self._taken = 0  # number of the last sample taken
        self.errors: Mapping[str, str] = {}

    @property
    def transactional(self) -> Collection[TopicPartition]:
        """Partitions in which a transaction was seen."""
        return self._shared.transactional

    def fetch_log_sizes(self, leaders: Mapping[TopicPartition, int], now: float) -> PartitionOffsets:
        """Return the bytes of these logs, as of this round, and errors."""
        del now
        return self._shared.collect_log_sizes(leaders)

    def sample_batches(
        self,
        ends: Mapping[TopicPartition, int],
        begins: Mapping[TopicPartition, int],
        leaders: Mapping[TopicPartition, int],
        now: float,
    ) -> Mapping[TopicPartition, Sequence[SampledBatch]]:
        """Return the batches of these partitions' topics that are new to this group."""
        del begins, leaders, now
        topics = {p.topic for p in ends}
        self.errors = {topic: text for topic, text in self._shared.errors.items() if topic in topics}
        self._taken, batches = self._shared.take_batches(topics, self._taken)
        return batches

    def find_producer(self, partition: TopicPartition, offset: int) -> OpenProducer | None:
        """Return the producer whose open transaction begins at this offset; None if no broker tells it."""
        return self._shared.find_producer(partition, offset)

    def close(self) -> None:
        """Close nothing: the connection is the process's."""
