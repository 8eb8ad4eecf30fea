"""`kmq`'s batch: messages that were handed out together, and what has been said of each.

Hundreds of thousands of messages a second pass through here, so:

1. A message is built when it is looked at, and may be built again: what has been said of it stands
   on the batch's board, one byte a message. So thousands of them are never alive at once, and
   Python's collector of garbage has nothing to look through.
2. An acknowledgement is its byte and nothing else. `acknowledged` finds them by stretches, and
   turns each into `WRITTEN`; whatever is acknowledged later wakes the settler once more.
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, groupby, repeat
from typing import Final, Protocol, overload

from confluent_kafka import Message as Raw

from trimtab.consumer_sdk.queues.kmq.markers import Ranges, as_ranges
from trimtab.consumer_sdk.queues.message import Received
from trimtab.consumer_sdk.queues.settlement import ACK, ACKNOWLEDGED, Said, Verb

WRITTEN: Final = 3
"""On the board, next to what `said` says: acknowledged, and its end marker is on its way."""

_NEWS: Final = re.compile(b"%c+" % ACKNOWLEDGED)


class Settling(Protocol):
    """What a batch tells of its messages."""

    def now(self) -> float:
        """Return seconds of the clock that deadlines are of."""
        ...

    def wake(self, batch: "Handed") -> None:
        """Hear that something of a batch was acknowledged."""
        ...

    def note(self, message: Received, said: Said, late: bool) -> None:  # noqa: FBT001
        """Hear what was said of a message, unless it was acknowledged in time."""
        ...


class Handed(Sequence[Received]):
    """A batch; `deadline` is that of all its messages. Neighbours are of one partition, mostly."""

    def __init__(
        self, raws: Sequence[Raw], deliveries: Sequence[int], deadline: float, settler: Settling
    ) -> None:
        self.now = settler.now
        self.attentive = True  # nothing has been acknowledged since the settler looked
        self._settler = settler
        self._raws = raws
        self._deliveries = deliveries
        self._deadline = deadline
        self._extended: dict[int, float] = {}
        self._board = bytearray(len(raws))
        self._offsets = [raw.offset() or 0 for raw in raws]
        self._stretches = list(_stretches([raw.partition() or 0 for raw in raws]))

    def __len__(self) -> int:
        return len(self._raws)

    @overload
    def __getitem__(self, index: int) -> Received: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Received]: ...
    def __getitem__(self, index: int | slice) -> Received | Sequence[Received]:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        deadline = self._extended.get(place, self._deadline)
        return Received(
            self._raws[place], self._deliveries[place], deadline, self, self._board, place
        )

    def __iter__(self) -> Iterator[Received]:
        if self._extended:
            return map(self.__getitem__, range(len(self)))
        own = (repeat(self._deadline), repeat(self), repeat(self._board), count())
        return map(Received, self._raws, self._deliveries, *own)

    def settle(self, message: Received, said: Said, late: bool) -> None:  # noqa: FBT001
        """Note what was said of a message; its board says so already."""
        if said is not ACK or late:
            if said.verb is Verb.EXTEND:
                self._extended[message.place] = self.now() + said.seconds
            self._settler.note(message, said, late)
        if self.attentive:
            self.attentive = False
            self._settler.wake(self)

    def opened(self) -> Mapping[tuple[int, int], Ranges]:
        """Return the offsets of all messages, by partition and delivery."""
        found: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        for partition, begin, end in self._stretches:
            at = begin
            for delivery, run in groupby(self._deliveries[begin:end]):
                stop = at + sum(1 for _ in run)
                found[partition, delivery] += self._offsets[at:stop]
                at = stop
        return {which: as_ranges(offsets) for which, offsets in found.items()}

    def acknowledged(self) -> Mapping[int, Ranges]:
        """Return the offsets that were acknowledged since the last time, by partition."""
        self.attentive = True
        found: defaultdict[int, list[int]] = defaultdict(list)
        for partition, begin, end in self._stretches:
            for news in list(_NEWS.finditer(self._board, begin, end)):
                first, last = news.span()
                self._board[first:last] = bytes([WRITTEN]) * (last - first)
                found[partition] += self._offsets[first:last]
        return {partition: as_ranges(offsets) for partition, offsets in found.items()}


def _stretches(partitions: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Return each partition in a row of them, with the places where it begins and ends."""
    begin = 0
    for partition, run in groupby(partitions):
        end = begin + sum(1 for _ in run)
        yield partition, begin, end
        begin = end
