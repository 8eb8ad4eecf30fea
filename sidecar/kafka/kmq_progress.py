"""In-flight messages of a `kmq` queue, read from the trackers' committed offsets.

An active tracker reads each marker at once and commits within a second. If markers stay unread for
`TRACKER_SILENCE_TIMEOUT_S` seconds, no tracker runs and dropped messages are not redelivered.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trimtab.assignor.model import TopicPartition
from trimtab.common.clock import Clock
from trimtab.common.kmq_offset_metadata import tracker_group
from trimtab.sidecar.kafka.broker_client import BrokerClient, PartitionOffsets
from trimtab.sidecar.measurement.queue_backlog import (
    NO_IN_FLIGHT_MESSAGES,
    InFlightMessages,
    decode_in_flight,
)
from trimtab.sidecar.settings.settings import SidecarSettings

TRACKER_SILENCE_TIMEOUT_S: Final = 15.0
"""Seconds without a tracker commit while markers are unread."""


@dataclass(frozen=True, slots=True)
class KmqProgress:
    """In-flight messages by message partition, and problems."""

    in_flight: Mapping[TopicPartition, InFlightMessages]
    trouble: tuple[str, ...] = ()


@dataclass(slots=True)
class _TrackerCommit:
    """Last commit metadata of a partition, and the time of its last change (seconds)."""

    metadata: str | None
    unchanged_since: float


@dataclass(slots=True)
class KmqProgressReader:
    """Reads the trackers' group; an unreachable broker raises no error."""

    marker_topic: str
    tracker_client: BrokerClient
    clock: Clock
    _last_commits: dict[TopicPartition, _TrackerCommit] = field(
        default_factory=dict[TopicPartition, _TrackerCommit]
    )

    @classmethod
    def connect(cls, settings: SidecarSettings, clock: Clock) -> "KmqProgressReader":
        """Connect. Raises SaslAuthenticationError, TlsHandshakeError."""
        group = tracker_group(settings.group)
        brokers = BrokerClient(settings.client_config, group, settings.timeout, clock)
        return cls(settings.markers_topic, brokers, clock)

    def read_progress(
        self,
        partitions: Sequence[TopicPartition],
        known_topics: Collection[str],
        fetch_end_offsets: Callable[[Iterable[TopicPartition]], PartitionOffsets],
    ) -> KmqProgress:
        """Return what is open of these partitions of the messages.

        `known_topics` are the known topics.

        Trackers are asked first, and then where their markers end: what is written in between makes
        the answer unsure, never too small.
        """
        if self.marker_topic not in known_topics:
            return self._read_without_markers(partitions)
        ours = {p: TopicPartition(self.marker_topic, p.partition) for p in partitions}
        commits = self.tracker_client.fetch_group_commits(ours.values())
        ended = fetch_end_offsets(ours.values())
        found = {
            p: decode_in_flight(commits.metadata.get(marker), ended.values.get(marker))
            for p, marker in ours.items()
        }
        silent = self._find_silent_partitions(found, {p: commits.metadata.get(m) for p, m in ours.items()})
        trouble = (*commits.trouble, *ended.trouble)
        return KmqProgress(found, trouble or self._format_silence_warning(silent))

    def close(self) -> None:
        """Close the connection."""
        self.tracker_client.close()

    def _read_without_markers(self, partitions: Sequence[TopicPartition]) -> KmqProgress:
        """Return what is open where there are no markers: nothing, if nobody made them yet."""
        hidden = self.tracker_client.explain_hidden_topic(self.marker_topic)
        if hidden is None:
            return KmqProgress(dict.fromkeys(partitions, NO_IN_FLIGHT_MESSAGES))
        return KmqProgress(dict.fromkeys(partitions, InFlightMessages()), (hidden,))

    def _find_silent_partitions(
        self,
        in_flight: Mapping[TopicPartition, InFlightMessages],
        commit_metadata: Mapping[TopicPartition, str | None],
    ) -> list[TopicPartition]:
        """Return the partitions of unknown state without a tracker commit for too long."""
        now = self.clock.monotonic()
        for partition, note in commit_metadata.items():
            heard = self._last_commits.setdefault(partition, _TrackerCommit(note, now))
            if heard.metadata != note or in_flight[partition].is_exact:
                heard.metadata, heard.unchanged_since = note, now
        return sorted(
            p for p in in_flight if now - self._last_commits[p].unchanged_since >= TRACKER_SILENCE_TIMEOUT_S
        )

    def _format_silence_warning(self, silent: list[TopicPartition]) -> tuple[str, ...]:
        if not silent:
            return ()
        more = f" (and {len(silent) - 1} more)" if len(silent) > 1 else ""
        said = (
            f"nobody reads the markers of {silent[0]}{more} in {self.marker_topic!r}, so what "
            "is in work "
            "is not known, and nothing that a worker drops comes back: run `trimtab redeliver`"
        )
        return (said,)
