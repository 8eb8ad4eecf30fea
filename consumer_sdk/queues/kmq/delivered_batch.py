"""`kmq`'s batch: messages that were handed out together, and what has been said of each.

Hundreds of thousands of messages a second pass through here, so:

1. A message is built when it is looked at, and may be built again: what has been said of it stands
   on the batch's board, one byte a message. So thousands of them are never alive at once, and
   Python's collector of garbage has nothing to look through.
2. An acknowledgement is its byte and nothing else. `pop_acknowledged` finds them by stretches, and
   turns each into `END_MARKER_PENDING`; whatever is acknowledged later wakes the settler once more.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, groupby, repeat
from typing import Final, Protocol, overload

from confluent_kafka import Message as Raw

from trimtab.consumer_sdk.queues.kmq.markers import OffsetRanges, to_ranges
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settlement import (
    ACK_REQUEST,
    ACKNOWLEDGED,
    SettlementAction,
    SettlementRequest,
)

END_MARKER_PENDING: Final = 3
"""On the board, next to what `request` says: acknowledged, and its end marker is on its way."""

_ACKNOWLEDGED_RUN: Final = re.compile(b"%c+" % ACKNOWLEDGED)


class SettlementListener(Protocol):
    """What a batch tells of its messages."""

    def now(self) -> float:
        """Return seconds of the clock that deadlines are of."""
        ...

    def on_acknowledged(self, batch: "DeliveredBatch") -> None:
        """Hear that something of a batch was acknowledged."""
        ...

    def on_settled(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Hear what was said of a message, unless it was acknowledged in time."""
        ...


class DeliveredBatch(Sequence[QueueMessage]):
    """A batch; `deadline` is that of all its messages. Neighbours are of one partition, mostly."""

    def __init__(
        self,
        raw_messages: Sequence[Raw],
        deliveries: Sequence[int],
        deadline: float,
        listener: SettlementListener,
    ) -> None:
        self.now = listener.now
        self.notify_on_ack = True  # nothing has been acknowledged since the settler looked
        self._listener = listener
        self._raw_messages = raw_messages
        self._deliveries = deliveries
        self._deadline = deadline
        self._extended_deadlines: dict[int, float] = {}
        self._states = bytearray(len(raw_messages))
        self._offsets = [raw.offset() or 0 for raw in raw_messages]
        self._partition_runs = list(
            _split_by_partition([raw.partition() or 0 for raw in raw_messages])
        )

    def __len__(self) -> int:
        return len(self._raw_messages)

    @overload
    def __getitem__(self, index: int) -> QueueMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[QueueMessage]: ...
    def __getitem__(self, index: int | slice) -> QueueMessage | Sequence[QueueMessage]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        deadline = self._extended_deadlines.get(place, self._deadline)
        return QueueMessage(
            self._raw_messages[place], self._deliveries[place], deadline, self, self._states, place
        )

    def __iter__(self) -> Iterator[QueueMessage]:
        if self._extended_deadlines:
            return map(self.__getitem__, range(len(self)))
        own = (repeat(self._deadline), repeat(self), repeat(self._states), count())
        return map(QueueMessage, self._raw_messages, self._deliveries, *own)

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Note what was said of a message; its board says so already."""
        if request is not ACK_REQUEST or late:
            if request.action is SettlementAction.EXTEND:
                self._extended_deadlines[message.batch_index] = self.now() + request.seconds
            self._listener.on_settled(message, request, late)
        if self.notify_on_ack:
            self.notify_on_ack = False
            self._listener.on_acknowledged(self)

    def group_offsets(self) -> Mapping[tuple[int, int], OffsetRanges]:
        """Return the offsets of all messages, by partition and delivery."""
        found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for partition, begin, end in self._partition_runs:
            at = begin
            for delivery, run in groupby(self._deliveries[begin:end]):
                stop = at + sum(1 for _ in run)
                found[partition, delivery] += self._offsets[at:stop]
                at = stop
        return {which: to_ranges(offsets) for which, offsets in found.items()}

    def pop_acknowledged(self) -> Mapping[int, OffsetRanges]:
        """Return the offsets that were acknowledged since the last time, by partition."""
        self.notify_on_ack = True
        found: defaultdict[int, list[int]] = defaultdict(list)
        for partition, begin, end in self._partition_runs:
            for news in list(_ACKNOWLEDGED_RUN.finditer(self._states, begin, end)):
                first, last = news.span()
                self._states[first:last] = bytes([END_MARKER_PENDING]) * (last - first)
                found[partition] += self._offsets[first:last]
        return {partition: to_ranges(offsets) for partition, offsets in found.items()}


def _split_by_partition(partitions: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Return each partition in a row of them, with the places where it begins and ends."""
    begin = 0
    for partition, run in groupby(partitions):
        end = begin + sum(1 for _ in run)
        yield partition, begin, end
        begin = end
