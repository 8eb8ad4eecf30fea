"""`auto.offset.reset`, done here: where reading goes on when the offset asked for is not there.

librdkafka would go on without a word, and what it skips looks like any hole in the offsets (a
compacted log, the marker of a transaction). So it is told to report, and the rules are:

1. The log is asked where it begins and ends. An offset below its beginning has *expired*: retention
   deleted what lies between. One above its end *went back*: the topic was deleted and created anew,
   or its log was truncated. One that is there after all is asked for again.
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
from trimtab.consumer_sdk.errors import InvalidSetting
from trimtab.consumer_sdk.translate import key, key_of

log = logging.getLogger("trimtab.consumer_sdk")

SETTING: Final = "auto.offset.reset"
REPORTED: Final = {SETTING: "error"}
"""What librdkafka is given instead of the application's setting."""

TIMEOUT: Final = 5.0
"""Seconds that the question for a log's beginning and end may take."""

KEPT: Final = 100_000
"""Resets that are kept for an application that never asks for them."""

_BEGIN: Final = {
    **dict.fromkeys(("smallest", "earliest", "beginning"), OFFSET_BEGINNING),
    **dict.fromkeys(("largest", "latest", "end"), OFFSET_END),
    "error": OFFSET_INVALID,
}


@dataclass(frozen=True, slots=True)
class Reset:
    """An offset that was not there, and where reading goes on: before `low` all is deleted.

    `asked` is None where the group has never committed one; `to` is None where reading stopped.
    """

    partition: TopicPartition
    asked: int | None
    low: int
    high: int
    to: int | None

    @property
    def went_back(self) -> bool:
        """Whether the log ends before what was read of it before."""
        return self.asked is not None and self.asked > self.high

    @property
    def skipped(self) -> int:
        """How many offsets will never be read."""
        return max(0, (self.to or 0) - self.asked) if self.asked is not None else 0

    def __str__(self) -> str:
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

    def take(self) -> list[Reset]:
        """Return what was reset since the last call."""
        told = list(self._told)
        self._told.clear()
        return told

    def settle(self, messages: list[Message]) -> list[Message]:
        """Return messages without the reports that are dealt with here."""
        if all(message.error() is None for message in messages):
            return messages
        return [message for message in messages if not self._settled(message)]

    def _settled(self, message: Message) -> bool:
        error = message.error()
        if error is None or error.code() != KafkaError._AUTO_OFFSET_RESET:  # noqa: SLF001 - its public name
            return False
        where = key_of(message)
        try:
            reset = self._look(where, message.offset())
        except KafkaException as failed:
            log.warning("%s: where its log begins is not known: %s; asking again", where, failed)
            self._go_on(where, message.offset())
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

    def _look(self, where: TopicPartition, asked: int | None) -> Reset | None:
        """Return the reset that is due; None where the offset is there after all (rule 1)."""
        found: Sequence[int] = self._data.get_watermark_offsets(
            RawPartition(*where), timeout=TIMEOUT
        )
        low, high = found
        if asked is not None and low <= asked <= high:
            return None
        to = {OFFSET_BEGINNING: low, OFFSET_END: high}.get(self.begin)
        return Reset(where, asked, low, high, to)

    def _go_on(self, where: TopicPartition, offset: int | None) -> None:
        """Read on there. Not by `seek`: that needs a partition that is being fetched."""
        if where in {key(p) for p in self._data.assignment()}:
            self._data.incremental_unassign([RawPartition(*where)])
            start = OFFSET_INVALID if offset is None else offset
            self._data.incremental_assign([RawPartition(*where, start)])


def _tell(reset: Reset) -> None:
    if reset.asked is None:
        return
    also = reset.skipped - max(0, reset.low - reset.asked)
    log.warning(
        "%s; going on at offset %d%s. %s",
        reset,
        reset.to,
        f", which skips up to {also} more that are still there ({SETTING}=latest)"
        if also > 0
        else "",
        "Nothing of the new log is skipped"
        if reset.went_back and reset.to == reset.low
        else "Give the topic a longer retention (retention.ms, retention.bytes) or read it sooner",
    )
