"""`auto.offset.reset`, done here: where reading goes on when the offset asked for is not there.

librdkafka would go on without a word, and what it skips looks like any hole in the offsets (a
compacted log, the marker of a transaction). So it is told to report, and the rules are:

1. The log is asked where it begins and ends. An offset below its beginning has *expired*: retention
   deleted what lies between. One above its end *went back*: the topic was deleted and created anew,
   or its log was truncated. One that is there after all is asked for again.
   Where librdkafka detects a truncation by the leader's epoch (KIP-320), offsets prove nothing: the
   log may have grown beyond the cut since. It *went back* whatever the log holds now.
2. `earliest` goes on at the beginning, `latest` at the end; `error` gives librdkafka's event to the
   application and leaves the partition alone.
3. Whatever is skipped is said in one log line, and kept as a `OffsetReset` for whoever wants to record it
   (`LakeWriter` does).

All of it runs on the application's thread, between two fetches.
"""

import logging
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import methodcaller
from typing import Any, Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    KafkaError,
    KafkaException,
    Message,
)
from confluent_kafka import Consumer as DataConsumer
from confluent_kafka import TopicPartition as RawPartition

from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.consumer.client_adapters import partition_of, to_partition
from trimtab.consumer_sdk.errors import InvalidSettingError

log = logging.getLogger("trimtab.consumer_sdk")

OFFSET_RESET_SETTING: Final = "auto.offset.reset"
REPORTING_CONFIG: Final = {OFFSET_RESET_SETTING: "error"}
"""What librdkafka is given instead of the application's setting."""

WATERMARK_TIMEOUT_S: Final = 5.0
"""Seconds that the question for a log's beginning and end may take."""

MAX_KEPT_RESETS: Final = 100_000
"""Resets that are kept for an application that never asks for them."""

_TRUNCATION_TEXT: Final = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - its public name
"""What librdkafka writes into the event of a detected truncation, with or without an offset.

Its code is that of every reset (librdkafka 2.15 and 2.16: rd_kafka_offset_reset and
rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c).
"""

_GET_ERROR: Final = methodcaller("error")
_POLICY_OFFSETS: Final = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
    "error": OFFSET_INVALID,
}


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """An offset that was not there, and where reading goes on: before `log_start_offset` all is deleted.

    `requested_offset` is None where the group has never committed one; `resume_offset` is None where reading stopped.
    `truncated` says that the log was cut off below `requested_offset`, though it may have grown again (`requested_offset`
    is None there if nothing had been handed out).
    """

    partition: TopicPartition
    requested_offset: int | None
    log_start_offset: int
    log_end_offset: int
    resume_offset: int | None
    truncated: bool = False

    @property
    def is_regression(self) -> bool:
        """Whether the log ends before what was read of it before."""
        return self.truncated or (
            self.requested_offset is not None and self.requested_offset > self.log_end_offset
        )

    @property
    def skipped_offsets(self) -> int:
        """How many offsets will never be read."""
        return (
            max(0, (self.resume_offset or 0) - self.requested_offset)
            if self.requested_offset is not None
            else 0
        )

    def __str__(self) -> str:
        if self.truncated:
            read = (
                "what was read"
                if self.requested_offset is None
                else f"offset {self.requested_offset}"
            )
            return (
                f"{self.partition}: its log was truncated below {read}, and holds {self.log_start_offset} to "
                f"{self.log_end_offset - 1} now: records that were read are gone, and others may have their "
                "offsets"
            )
        if self.requested_offset is None:
            return f"{self.partition}: the group has committed no offset"
        if self.is_regression:
            return (
                f"{self.partition}: offset {self.requested_offset} is gone, the log ends at {self.log_end_offset}: the "
                "topic was deleted and created anew, or its log was truncated"
            )
        return (
            f"{self.partition}: offsets {self.requested_offset} to {self.log_start_offset - 1} are gone: retention deleted "
            f"up to {self.log_start_offset - self.requested_offset} records before this group had read them"
        )


class OffsetResetHandler:
    """The resets of one consumer, by its settings; `default_offset` is where it begins without an offset.

    Raises InvalidSettingError.
    """

    def __init__(self, data_plane: DataConsumer, settings: Mapping[str, Any]) -> None:
        policy = str(settings.get(OFFSET_RESET_SETTING, "latest"))
        if policy not in _POLICY_OFFSETS:
            raise InvalidSettingError(
                f"{OFFSET_RESET_SETTING}={policy!r}: write earliest, latest or error"
            )
        self.default_offset = _POLICY_OFFSETS[policy]
        self._data_plane = data_plane
        self._unreported: deque[OffsetReset] = deque(maxlen=MAX_KEPT_RESETS)
        self._pending_events: list[Message] = []

    def pop_resets(self) -> list[OffsetReset]:
        """Return what was reset since the last call."""
        told = list(self._unreported)
        self._unreported.clear()
        return told

    def handle_reset_events(self, messages: list[Message]) -> list[Message]:
        """Return messages without the reports that are dealt with here."""
        if self._pending_events:
            messages = [*self._pop_pending_events(), *messages]
        if not any(map(_GET_ERROR, messages)):  # of thousands, all but always
            return messages
        return [message for message in messages if not self._handle_event(message)]

    def _handle_event(self, message: Message) -> bool:
        error = message.error()
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
            return False
        where = partition_of(message)
        try:
            reset = self._classify_event(where, message)
        except KafkaException as failed:
            log.warning("%s: where its log begins is not known: %s; asking again", where, failed)
            self._retry_event(where, message)
            return True
        if reset is None:
            self._resume_at(where, message.offset())
            return True
        self._unreported.append(reset)
        if reset.resume_offset is None:
            return False
        self._resume_at(where, reset.resume_offset)
        _log_reset(reset)
        return True

    def _classify_event(self, partition: TopicPartition, event: Message) -> OffsetReset | None:
        """Return the reset that is due; None where the offset is there after all (rule 1)."""
        asked, truncated = event.offset(), _is_truncation(event)
        if truncated and asked is None:
            asked = self._consumed_position(partition)
        found: Sequence[int] = self._data_plane.get_watermark_offsets(
            RawPartition(*partition), timeout=WATERMARK_TIMEOUT_S
        )
        low, high = found
        if not truncated and asked is not None and low <= asked <= high:
            return None
        to = {OFFSET_BEGINNING: low, OFFSET_END: high}.get(self.default_offset)
        return OffsetReset(partition, asked, low, high, to, truncated)

    def _consumed_position(self, partition: TopicPartition) -> int | None:
        """Return the offset behind the last record handed out; None where there was none."""
        (found,) = self._data_plane.position([RawPartition(*partition)])
        return int(found.offset) if found.offset >= 0 else None

    def _retry_event(self, partition: TopicPartition, event: Message) -> None:
        """Have the event again: from librdkafka, but not the one that it would not repeat.

        Asked for the offset behind a truncation, a log that has grown since would simply be read.
        """
        if _is_truncation(event):
            self._pending_events.append(event)
        else:
            self._resume_at(partition, event.offset())

    def _pop_pending_events(self) -> list[Message]:
        """Take the truncations that are not settled yet, of partitions that are still read."""
        reading = {to_partition(p) for p in self._data_plane.assignment()}
        events, self._pending_events = self._pending_events, []
        return [event for event in events if partition_of(event) in reading]

    def _resume_at(self, partition: TopicPartition, offset: int | None) -> None:
        """Read on there. Not by `seek`: that needs a partition that is being fetched."""
        if partition in {to_partition(p) for p in self._data_plane.assignment()}:
            self._data_plane.incremental_unassign([RawPartition(*partition)])
            start = OFFSET_INVALID if offset is None else offset
            self._data_plane.incremental_assign([RawPartition(*partition, start)])


def _is_truncation(event: Message) -> bool:
    error = event.error()
    return error is not None and _TRUNCATION_TEXT in error.str()


def _log_reset(reset: OffsetReset) -> None:
    if reset.is_regression:
        log.warning(
            "%s; going on at offset %d. %s", reset, reset.resume_offset, _describe_skipped(reset)
        )
    elif reset.requested_offset is not None:
        also = reset.skipped_offsets - (reset.log_start_offset - reset.requested_offset)
        log.warning(
            "%s; going on at offset %d%s. Give the topic a longer retention (retention.ms, "
            "retention.bytes) or read it sooner",
            reset,
            reset.resume_offset,
            f", which skips up to {also} more that are still there ({OFFSET_RESET_SETTING}=latest)"
            if also > 0
            else "",
        )


def _describe_skipped(reset: OffsetReset) -> str:
    """Return what is skipped of a log that went back, and what to do about it."""
    left = (reset.resume_offset or 0) - reset.log_start_offset
    skips = (
        f"That skips up to {left} records that the log holds now ({OFFSET_RESET_SETTING}=latest; with earliest "
        "they are read)"
        if left
        else "Nothing of the new log is skipped"
    )
    if not reset.truncated:
        return skips
    return f"{skips}. Let no replica lead that lags behind (unclean.leader.election.enable=false)"
