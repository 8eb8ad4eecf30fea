"""In-flight messages of a `kmq` queue, from the committed offsets of its redelivery trackers."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.kmq_offset_metadata import tracker_group
from trimtab.sidecar.kafka.broker_client import BrokerClient
from trimtab.sidecar.kafka.cluster_client import PartitionOffsets
from trimtab.sidecar.model.queue_backlog import NO_IN_FLIGHT_MESSAGES, InFlightMessages, decode_in_flight
from trimtab.sidecar.settings.settings import SidecarSettings

TRACKER_SILENCE_TIMEOUT_S: Final = 15.0  # a running tracker reads markers at once and commits in 1 s


@dataclass(frozen=True, slots=True)
class KmqProgress:
    """In-flight messages by message partition, and errors."""

    in_flight: Mapping[TopicPartition, InFlightMessages]
    errors: tuple[str, ...] = ()


@dataclass(slots=True)
class _TrackerCommit:
    """Last commit metadata of a partition, and the time of its last change (seconds)."""

    metadata: str | None
    unchanged_since: float


@dataclass(slots=True)
class KmqProgressReader:
    """Reads the commits of the trackers' group; an unreachable broker is reported as an error."""

    marker_topic: str
    tracker_client: BrokerClient
    clock: Clock
    _commits: dict[TopicPartition, _TrackerCommit] = field(
        default_factory=dict[TopicPartition, _TrackerCommit]
    )

    @classmethod
    def connect(cls, settings: SidecarSettings, clock: Clock) -> "KmqProgressReader":
        """Connect. Raises SaslAuthenticationError, TlsHandshakeError."""
        group = tracker_group(settings.group)
        client = BrokerClient(settings.client_config, group, settings.timeout, clock)
        return cls(settings.markers_topic, client, clock)

    def read_progress(
        self,
        partitions: Sequence[TopicPartition],
        known_partitions: Collection[TopicPartition],
        fetch_end_offsets: Callable[[Iterable[TopicPartition]], PartitionOffsets],
    ) -> KmqProgress:
        """Return the in-flight messages of these message partitions."""
        markers = {p: TopicPartition(self.marker_topic, p.partition) for p in partitions}
        markers = {p: marker for p, marker in markers.items() if marker in known_partitions}
        if partitions and not markers:
            return self._read_without_markers(partitions)
        # Commits before ends: markers written in between make the result inexact, never too small.
        commits = self.tracker_client.fetch_group_commits(markers.values())
        ends = fetch_end_offsets(markers.values())
        metadata = {p: commits.metadata.get(marker) for p, marker in markers.items()}
        in_flight = {p: decode_in_flight(metadata[p], ends.values.get(m)) for p, m in markers.items()}
        silent = self._find_silent_partitions(in_flight, metadata)
        errors = (*commits.errors, *ends.errors)  # an outage explains the silence
        # No worker has delivered a message of a new partition that has no markers yet.
        in_flight = {**dict.fromkeys(partitions, NO_IN_FLIGHT_MESSAGES), **in_flight}
        return KmqProgress(in_flight, errors or self._format_silence_warning(silent))

    def close(self) -> None:
        """Close the connection."""
        self.tracker_client.close()

    def _read_without_markers(self, partitions: Sequence[TopicPartition]) -> KmqProgress:
        hidden = self.tracker_client.explain_hidden_topic(self.marker_topic)
        if hidden is None:  # no worker has created it yet, so nothing is in flight
            return KmqProgress(dict.fromkeys(partitions, NO_IN_FLIGHT_MESSAGES))
        return KmqProgress(dict.fromkeys(partitions, InFlightMessages()), (hidden,))

    def _find_silent_partitions(
        self,
        in_flight: Mapping[TopicPartition, InFlightMessages],
        metadata: Mapping[TopicPartition, str | None],
    ) -> list[TopicPartition]:
        now = self.clock.monotonic()
        for partition, current in metadata.items():
            last = self._commits.setdefault(partition, _TrackerCommit(current, now))
            # an exact count means that no marker is unread: then silence is idleness
            if last.metadata != current or in_flight[partition].is_exact:
                last.metadata, last.unchanged_since = current, now
        unchanged = ((p, now - self._commits[p].unchanged_since) for p in in_flight)
        return sorted(p for p, seconds in unchanged if seconds >= TRACKER_SILENCE_TIMEOUT_S)

    def _format_silence_warning(self, silent: list[TopicPartition]) -> tuple[str, ...]:
        if not silent:
            return ()
        more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        text = (
            f"no tracker reads the markers of {silent[0]}{more} in {self.marker_topic!r}: the number of "
            "in-flight messages is unknown, dropped messages are not redelivered; run `trimtab redeliver`"
        )
        return (text,)
