"""Implements `auto.offset.reset`: where to resume if the requested offset is out of range.

librdkafka resets silently, and the skipped offsets look like any gap (compaction, transaction
markers). So it is configured to report instead, and these rules apply:

1. The requested offset is compared with the log's watermarks. Below the low watermark it *expired*:
   retention deleted the records up to there. Above the high watermark the log *regressed*: the
   topic was deleted and created again, or the log was truncated. In range, it is requested again.
   A truncation that librdkafka detects by the leader epoch (KIP-320) is a regression whatever the
   watermarks are, since the log may have grown past the cut.
2. `earliest` resumes at the low watermark, `latest` at the high one; `error` passes librdkafka's
   event to the application and stops reading the partition.
3. Skipped offsets are logged in one line and kept as an `OffsetReset` for the application.

Runs on the application's thread, between two fetches.
"""

import logging
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, OFFSET_INVALID, KafkaError, KafkaException, Message
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.topic_partition import TopicPartition
from trimtab.common.units import format_count
from trimtab.consumer_sdk.client.client_adapters import partition_of, to_partition
from trimtab.consumer_sdk.errors import InvalidSettingError

log = logging.getLogger("trimtab.consumer_sdk")

OFFSET_RESET_SETTING: Final = "auto.offset.reset"
# In place of the application's setting: reset events instead of silent resets.
REPORTING_CONFIG: Final = {OFFSET_RESET_SETTING: "error"}
WATERMARK_TIMEOUT_S: Final = 5.0  # between two fetches, so a silent broker delays the other partitions by it
MAX_KEPT_RESETS: Final = 100_000  # bounds the memory of an application that never calls `pop_offset_resets`
# The only sign of a detected truncation: its event has the code of every reset (librdkafka 2.15 and
# 2.16: rd_kafka_offset_reset and rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c).
_TRUNCATION_TEXT: Final = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - its public name
_GET_ERROR: Final = methodcaller("error")
_POLICY_OFFSETS: Final = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
    "error": OFFSET_INVALID,
}


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """Reset of a partition whose log holds offsets from `log_start_offset` to `log_end_offset`."""

    partition: TopicPartition
    requested_offset: int | None  # None: nothing committed, or truncated before the first record was returned
    log_start_offset: int
    log_end_offset: int
    resume_offset: int | None  # None: reading stopped
    truncated: bool = False  # cut below `requested_offset`; it may have grown since

    @property
    def is_regression(self) -> bool:
        """Whether records that were read are no longer in the log."""
        return self.truncated or (self.requested_offset or 0) > self.log_end_offset

    @property
    def skipped_offsets(self) -> int:
        """Number of offsets that will never be read."""
        requested = self.requested_offset
        resume = self.resume_offset or 0
        return 0 if requested is None else max(0, resume - requested)

    def __str__(self) -> str:
        if self.truncated:
            requested = self.requested_offset
            read = "the records read so far" if requested is None else f"offset {requested}"
            return (
                f"{self.partition}: its log was truncated below {read}, and holds "
                f"{self.log_start_offset} to {self.log_end_offset - 1} now: records that were read "
                "are gone, and others may have their offsets"
            )
        if self.requested_offset is None:
            return f"{self.partition}: the group has committed no offset"
        if self.is_regression:
            return (
                f"{self.partition}: offset {self.requested_offset} is gone, the log ends at "
                f"{self.log_end_offset}: the topic was deleted and created again, or its log was "
                "truncated"
            )
        return (
            f"{self.partition}: offsets {self.requested_offset} to {self.log_start_offset - 1} are "
            f"gone: retention deleted up to {self.log_start_offset - self.requested_offset} "
            "records before this group had read them"
        )


class OffsetResetHandler:
    """Handles the resets of one consumer. Raises InvalidSettingError for an unknown policy."""

    def __init__(self, data_plane: DataConsumer, settings: Mapping[str, Any]) -> None:
        policy = str(settings.get(OFFSET_RESET_SETTING, "latest"))
        if policy not in _POLICY_OFFSETS:
            raise InvalidSettingError(f"{OFFSET_RESET_SETTING}={policy!r}: write earliest, latest or error")
        self.default_offset = _POLICY_OFFSETS[policy]  # of a partition without a committed offset
        self._data_plane = data_plane
        self._unreported: deque[OffsetReset] = deque(maxlen=MAX_KEPT_RESETS)
        self._pending_events: list[Message] = []

    def pop_resets(self) -> list[OffsetReset]:
        """Return the resets since the last call."""
        return [self._unreported.popleft() for _ in range(len(self._unreported))]

    def handle_again(self, events: Iterable[Message]) -> None:
        """Return or handle these error events at the next call."""
        self._pending_events += events

    def handle_reset_events(self, messages: list[Message]) -> list[Message]:
        """Remove the reset events that are handled here; return the list.

        One by one, so that after an exception it has those that are still to be handled.
        """
        if self._pending_events:
            messages[:0] = self._pop_pending_events()
        # Python's `any`, since the usual case are thousands of messages without an event.
        for event in list(filter(_GET_ERROR, messages)) if any(map(_GET_ERROR, messages)) else ():
            if self._handle_event(event):
                messages.remove(event)
        return messages

    def _handle_event(self, message: Message) -> bool:  # False: pass it to the application
        error = message.error()
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
            return False
        partition = partition_of(message)
        try:
            reset = self._classify_event(partition, message)
        except KafkaException as failure:
            log.warning("%s: no watermarks of its log: %s; retrying", partition, failure)
            self._retry_event(partition, message)
            return True
        if reset is None:
            self._resume_at(partition, message.offset())
            return True
        self._unreported.append(reset)
        if reset.resume_offset is None:
            return False
        self._resume_at(partition, reset.resume_offset)
        _log_reset(reset)
        return True

    def _classify_event(self, partition: TopicPartition, event: Message) -> OffsetReset | None:
        requested = event.offset()
        truncated = _is_truncation(event)
        raw = RawPartition(*partition)
        if truncated and requested is None:  # the offset after the last returned record
            (position,) = self._data_plane.position([raw])
            requested = int(position.offset) if position.offset >= 0 else None
        low, high = self._data_plane.get_watermark_offsets(raw, timeout=WATERMARK_TIMEOUT_S)
        if not truncated and requested is not None and low <= requested <= high:
            return None  # in range after all (rule 1)
        resume = {OFFSET_BEGINNING: low, OFFSET_END: high}.get(self.default_offset)
        return OffsetReset(partition, requested, low, high, resume, truncated)

    def _retry_event(self, partition: TopicPartition, event: Message) -> None:
        # librdkafka repeats an event if the offset is requested again, except a truncation: a log
        # that has grown past the cut would be read as if nothing had happened.
        if _is_truncation(event):
            self._pending_events.append(event)
        else:
            self._resume_at(partition, event.offset())

    def _pop_pending_events(self) -> list[Message]:
        # A partition revoked meanwhile belongs to another member now.
        assigned = self._assigned_partitions()
        events, self._pending_events = self._pending_events, []
        return [event for event in events if partition_of(event) in assigned]

    def _assigned_partitions(self) -> set[TopicPartition]:
        return {to_partition(p) for p in self._data_plane.assignment()}

    def _resume_at(self, partition: TopicPartition, offset: int | None) -> None:
        # Not by seek(), which fails on a partition that librdkafka has stopped fetching.
        if partition in self._assigned_partitions():
            self._data_plane.incremental_unassign([RawPartition(*partition)])
            start = OFFSET_INVALID if offset is None else offset
            self._data_plane.incremental_assign([RawPartition(*partition, start)])


def _is_truncation(event: Message) -> bool:
    error = event.error()
    return error is not None and _TRUNCATION_TEXT in error.str()


def _log_reset(reset: OffsetReset) -> None:
    if reset.is_regression:
        log.warning("%s; going on at offset %d. %s", reset, reset.resume_offset, _describe_skipped(reset))
    elif reset.requested_offset is not None:
        skipped = reset.skipped_offsets - (reset.log_start_offset - reset.requested_offset)
        more = f", which skips up to {skipped} more that still exist ({OFFSET_RESET_SETTING}=latest)"
        advice = "Give the topic a longer retention (retention.ms, retention.bytes) or read it sooner"
        where = f"{reset.resume_offset}{more if skipped > 0 else ''}"
        log.warning("%s; going on at offset %s. %s", reset, where, advice)


def _describe_skipped(reset: OffsetReset) -> str:
    available = (reset.resume_offset or 0) - reset.log_start_offset
    skips = (
        f"That skips up to {format_count(available, 'record')} that the log holds now "
        f"({OFFSET_RESET_SETTING}=latest; with earliest they are read)"
        if available
        else "Nothing of the new log is skipped"
    )
    advice = ". Keep replicas that lag from leading (unclean.leader.election.enable=false)"
    return skips + (advice if reset.truncated else "")
