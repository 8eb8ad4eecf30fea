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
3. Whatever is skipped is said in one log line, and kept as a `Reset` for whoever wants to record it
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
from trimtab.consumer_sdk.consumer.client_adapters import key, key_of
from trimtab.consumer_sdk.errors import InvalidSetting

log = logging.getLogger("trimtab.consumer_sdk")

SETTING: Final = "auto.offset.reset"
REPORTED: Final = {SETTING: "error"}
"""What librdkafka is given instead of the application's setting."""

TIMEOUT: Final = 5.0
"""Seconds that the question for a log's beginning and end may take."""

KEPT: Final = 100_000
"""Resets that are kept for an application that never asks for them."""

_TRUNCATED: Final = KafkaError(KafkaError._LOG_TRUNCATION).str()  # noqa: SLF001 - its public name
"""What librdkafka writes into the event of a detected truncation, with or without an offset.

Its code is that of every reset (librdkafka 2.15 and 2.16: rd_kafka_offset_reset and
rd_kafka_toppar_handle_OffsetForLeaderEpoch in rdkafka_offset.c).
"""

_ERROR: Final = methodcaller("error")
_BEGIN: Final = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
    "error": OFFSET_INVALID,
}


@dataclass(frozen=True, slots=True)
class Reset:
    """An offset that was not there, and where reading goes on: before `low` all is deleted.

    `asked` is None where the group has never committed one; `to` is None where reading stopped.
    `truncated` says that the log was cut off below `asked`, though it may have grown again (`asked`
    is None there if nothing had been handed out).
    """

    partition: TopicPartition
    asked: int | None
    low: int
    high: int
    to: int | None
    truncated: bool = False

    @property
    def went_back(self) -> bool:
        """Whether the log ends before what was read of it before."""
        return self.truncated or (self.asked is not None and self.asked > self.high)

    @property
    def skipped(self) -> int:
        """How many offsets will never be read."""
        return max(0, (self.to or 0) - self.asked) if self.asked is not None else 0

    def __str__(self) -> str:
        if self.truncated:
            read = "what was read" if self.asked is None else f"offset {self.asked}"
            return (
                f"{self.partition}: its log was truncated below {read}, and holds {self.low} to "
                f"{self.high - 1} now: records that were read are gone, and others may have their "
                "offsets"
            )
        if self.asked is None:
            return f"{self.partition}: the group has committed no offset"
        if self.went_back:
            return (
                f"{self.partition}: offset {self.asked} is gone, the log ends at {self.high}: the "
                "topic was deleted and created anew, or its log was truncated"
            )
        return (
            f"{self.partition}: offsets {self.asked} to {self.low - 1} are gone: retention deleted "
            f"up to {self.low - self.asked} records before this group had read them"
        )


class Resets:
    """The resets of one consumer, by its settings; `begin` is where it begins without an offset.

    Raises InvalidSetting.
    """

    def __init__(self, data: DataConsumer, settings: Mapping[str, Any]) -> None:
        policy = str(settings.get(SETTING, "latest"))
        if policy not in _BEGIN:
            raise InvalidSetting(f"{SETTING}={policy!r}: write earliest, latest or error")
        self.begin = _BEGIN[policy]
        self._data = data
        self._told: deque[Reset] = deque(maxlen=KEPT)
        self._unsettled: list[Message] = []

    def take(self) -> list[Reset]:
        """Return what was reset since the last call."""
        told = list(self._told)
        self._told.clear()
        return told

    def settle(self, messages: list[Message]) -> list[Message]:
        """Return messages without the reports that are dealt with here."""
        if self._unsettled:
            messages = [*self._still_read(), *messages]
        if not any(map(_ERROR, messages)):  # of thousands, all but always
            return messages
        return [message for message in messages if not self._settled(message)]

    def _settled(self, message: Message) -> bool:
        error = message.error()
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
            return False
        where = key_of(message)
        try:
            reset = self._look(where, message)
        except KafkaException as failed:
            log.warning("%s: where its log begins is not known: %s; asking again", where, failed)
            self._ask_again(where, message)
            return True
        if reset is None:
            self._go_on(where, message.offset())
            return True
        self._told.append(reset)
        if reset.to is None:
            return False
        self._go_on(where, reset.to)
        _tell(reset)
        return True

    def _look(self, where: TopicPartition, event: Message) -> Reset | None:
        """Return the reset that is due; None where the offset is there after all (rule 1)."""
        asked, truncated = event.offset(), _is_truncation(event)
        if truncated and asked is None:
            asked = self._position(where)
        found: Sequence[int] = self._data.get_watermark_offsets(
            RawPartition(*where), timeout=TIMEOUT
        )
        low, high = found
        if not truncated and asked is not None and low <= asked <= high:
            return None
        to = {OFFSET_BEGINNING: low, OFFSET_END: high}.get(self.begin)
        return Reset(where, asked, low, high, to, truncated)

    def _position(self, where: TopicPartition) -> int | None:
        """Return the offset behind the last record handed out; None where there was none."""
        (found,) = self._data.position([RawPartition(*where)])
        return int(found.offset) if found.offset >= 0 else None

    def _ask_again(self, where: TopicPartition, event: Message) -> None:
        """Have the event again: from librdkafka, but not the one that it would not repeat.

        Asked for the offset behind a truncation, a log that has grown since would simply be read.
        """
        if _is_truncation(event):
            self._unsettled.append(event)
        else:
            self._go_on(where, event.offset())

    def _still_read(self) -> list[Message]:
        """Take the truncations that are not settled yet, of partitions that are still read."""
        reading = {key(p) for p in self._data.assignment()}
        events, self._unsettled = self._unsettled, []
        return [event for event in events if key_of(event) in reading]

    def _go_on(self, where: TopicPartition, offset: int | None) -> None:
        """Read on there. Not by `seek`: that needs a partition that is being fetched."""
        if where in {key(p) for p in self._data.assignment()}:
            self._data.incremental_unassign([RawPartition(*where)])
            start = OFFSET_INVALID if offset is None else offset
            self._data.incremental_assign([RawPartition(*where, start)])


def _is_truncation(event: Message) -> bool:
    error = event.error()
    return error is not None and _TRUNCATED in error.str()


def _tell(reset: Reset) -> None:
    if reset.went_back:
        log.warning("%s; going on at offset %d. %s", reset, reset.to, _advice(reset))
    elif reset.asked is not None:
        also = reset.skipped - (reset.low - reset.asked)
        log.warning(
            "%s; going on at offset %d%s. Give the topic a longer retention (retention.ms, "
            "retention.bytes) or read it sooner",
            reset,
            reset.to,
            f", which skips up to {also} more that are still there ({SETTING}=latest)"
            if also > 0
            else "",
        )


def _advice(reset: Reset) -> str:
    """Return what is skipped of a log that went back, and what to do about it."""
    left = (reset.to or 0) - reset.low
    skips = (
        f"That skips up to {left} records that the log holds now ({SETTING}=latest; with earliest "
        "they are read)"
        if left
        else "Nothing of the new log is skipped"
    )
    if not reset.truncated:
        return skips
    return f"{skips}. Let no replica lead that lags behind (unclean.leader.election.enable=false)"
