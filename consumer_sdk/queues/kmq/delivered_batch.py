"""Messages that `kmq` delivered together, and their settlement states.

Hundreds of thousands of messages per second pass through here, so:

1. A message object is built on access, and may be built again: its state is one byte in the
   batch's array. So thousands of objects never live at once, and cost no garbage collection.
2. An acknowledgement sets its byte and does nothing else. `pop_acknowledged` collects runs of
   acknowledged messages and sets them to `END_MARKER_PENDING`; the next acknowledgement notifies
   the marker writer again.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, groupby, repeat
from typing import Final, Protocol, overload

from confluent_kafka import Message

from trimtab.consumer_sdk.queues.kmq.markers import OffsetRanges, to_ranges
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settlement import (
    ACK_REQUEST,
    ACKNOWLEDGED,
    SettlementAction,
    SettlementRequest,
)

END_MARKER_PENDING: Final = 3  # beside the states of `settlement`: collected for an end marker
_ACKNOWLEDGED_RUN: Final = re.compile(b"%c+" % ACKNOWLEDGED)


class SettlementListener(Protocol):
    """Receives the settlements of a batch."""

    def now(self) -> float:
        """Return the seconds of the clock that deadlines refer to."""
        ...

    def on_acknowledged(self, batch: "DeliveredBatch") -> None:
        """Note that messages of a batch were settled."""

    def on_settled(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Note any settlement but an acknowledgement before the deadline."""


class DeliveredBatch(Sequence[QueueMessage]):
    """A batch of messages with one `deadline`, in the order of the fetch."""

    def __init__(
        self,
        raw_messages: Sequence[Message],
        deliveries: Sequence[int],
        deadline: float,
        listener: SettlementListener,
    ) -> None:
        self.now = listener.now
        self.notify_on_ack = True  # false from the first acknowledgement until it is collected
        self._listener = listener
        self._raw_messages = raw_messages
        self._deliveries = deliveries
        self._deadline = deadline
        self._extended_deadlines: dict[int, float] = {}
        self._states = bytearray(len(raw_messages))
        self._offsets = [raw.offset() or 0 for raw in raw_messages]
        self._partition_runs = list(_split_runs([raw.partition() or 0 for raw in raw_messages]))

    def __len__(self) -> int:
        return len(self._raw_messages)

    @overload
    def __getitem__(self, index: int) -> QueueMessage: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[QueueMessage]: ...
    def __getitem__(self, index: int | slice) -> QueueMessage | Sequence[QueueMessage]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        i = range(len(self))[index]
        deadline = self._extended_deadlines.get(i, self._deadline)
        return QueueMessage(self._raw_messages[i], self._deliveries[i], deadline, self, self._states, i)

    def __iter__(self) -> Iterator[QueueMessage]:
        if self._extended_deadlines:
            return map(self.__getitem__, range(len(self)))
        # `map` over iterators builds a message without running any Python code.
        shared = (repeat(self._deadline), repeat(self), repeat(self._states), count())
        return map(QueueMessage, self._raw_messages, self._deliveries, *shared)

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Record a settlement, whose state the message has set already."""
        if request is not ACK_REQUEST or late:
            if request.action is SettlementAction.EXTEND:
                self._extended_deadlines[message.batch_index] = self.now() + request.seconds
            self._listener.on_settled(message, request, late)
        if self.notify_on_ack:
            self.notify_on_ack = False
            self._listener.on_acknowledged(self)

    def group_offsets(self) -> Mapping[tuple[int, int], OffsetRanges]:
        """Return the offsets of all messages, by partition and delivery number."""
        groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for partition, begin, end in self._partition_runs:
            for delivery, start, stop in _split_runs(self._deliveries[begin:end]):
                groups[partition, delivery] += self._offsets[begin + start : begin + stop]
        return {group: to_ranges(offsets) for group, offsets in groups.items()}

    def pop_acknowledged(self) -> Mapping[int, OffsetRanges]:
        """Return the offsets acknowledged since the last call, by partition."""
        # Before the states are read: an acknowledgement from here on notifies again.
        self.notify_on_ack = True
        acknowledged: defaultdict[int, list[int]] = defaultdict(list)
        for partition, begin, end in self._partition_runs:
            # A list, since a bytearray cannot be written while a match object refers to it.
            for match in list(_ACKNOWLEDGED_RUN.finditer(self._states, begin, end)):
                first, last = match.span()
                self._states[first:last] = bytes([END_MARKER_PENDING]) * (last - first)
                acknowledged[partition] += self._offsets[first:last]
        return {partition: to_ranges(offsets) for partition, offsets in acknowledged.items()}


def _split_runs(values: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield runs of equal values as (value, begin index, end index)."""
    begin = 0
    for value, run in groupby(values):
        end = begin + sum(1 for _ in run)
        yield value, begin, end
        begin = end
