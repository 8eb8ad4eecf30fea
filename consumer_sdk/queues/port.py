"""What every kind of queue offers, and the message that it hands out.

A message is settled once: `ack`, `retry` or `reject`. None of them waits: what was said is written
in the background, and `flush` or `close` waits for it. A message that is never settled comes back
(by `kmq` and `share` when its time is over, by `ordered` when its consumer is gone). So all of it
may be used from any thread and from coroutines; `receive`, `flush` and `close` by one thread only.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, Protocol, Self

from confluent_kafka import Message as Raw

from trimtab.assignor.errors import TrimtabError
from trimtab.assignor.model import TopicPartition
from trimtab.consumer_sdk.errors import BadDelay


class Settlement(StrEnum):
    """What became of an `ack`, `retry`, `reject` or `extend`."""

    DONE = "done"
    LATE = "late"
    """After the deadline: the message may have been delivered again; harmless, and logged."""
    REPEATED = "repeated"
    """The message was settled before; nothing happened."""


_DONE: Final = Settlement.DONE
_LATE: Final = Settlement.LATE
_REPEATED: Final = Settlement.REPEATED
"""Looking a member of an enumeration up takes as long as the rest of `ack`."""


class Verb(Enum):
    """What is said of a message."""

    ACK = "ack"
    RETRY = "retry"
    REJECT = "reject"
    EXTEND = "extend"


@dataclass(frozen=True, slots=True)
class Said:
    """A verb with what belongs to it: seconds of a delay or an extension, the reason given."""

    verb: Verb
    seconds: float = 0.0
    reason: str = ""


ACK = Said(Verb.ACK)


def checked(seconds: float) -> float:
    """Return seconds to wait, which a marker can tell in milliseconds. Raises BadDelay."""
    if not 0 <= seconds * 1000 < math.inf:  # NaN is neither
        raise BadDelay(seconds)
    return float(seconds)


def _text(reason: object) -> str:
    """Return a reason as text that can be written: a broken path in it must not stop a tracker."""
    return str(reason).encode(errors="replace").decode()


OPEN: Final = 0
ACKNOWLEDGED: Final = 1
TOLD: Final = 2
"""What a board says of a message: in work, acknowledged, settled in another way."""


class Desk(Protocol):
    """Where messages are settled: the queue that handed them out, or their batch."""

    @property
    def attentive(self) -> bool:
        """Whether it is to be told of an acknowledgement in time, too."""
        ...

    def now(self) -> float:
        """Return seconds of the clock that deadlines are of."""
        ...

    def settle(self, message: "Received", said: Said, late: bool) -> None:  # noqa: FBT001
        """Take note; must not wait. Raises NotOffered for what this kind of queue cannot do."""
        ...


class Received:
    """A message in work; `raw` is confluent-kafka's. A redelivered one has a new offset.

    `delivery` counts deliveries, this one included. `deadline` is when it comes back by itself, in
    seconds of the monotonic clock; None: never. Whether it is settled stands on a board, in its
    `place`: messages of a batch may share one.
    """

    __slots__ = ("_board", "_desk", "deadline", "delivery", "place", "raw")

    def __init__(
        self,
        raw: Raw,
        delivery: int,
        deadline: float | None,
        desk: Desk,
        board: bytearray | None = None,
        place: int = 0,
    ) -> None:
        self.raw = raw
        self.delivery = delivery
        self.deadline = deadline
        self.place = place
        self._desk = desk
        self._board = bytearray(1) if board is None else board

    def ack(self) -> Settlement:
        """Say that the message is done with."""
        board, place, desk = self._board, self.place, self._desk  # as `_settle`, but short
        if board[place]:
            return _REPEATED
        late = self.deadline is not None and desk.now() > self.deadline
        board[place] = ACKNOWLEDGED  # first: who looks at the board becomes attentive before
        if late or desk.attentive:
            desk.settle(self, ACK, late)
        return _LATE if late else _DONE

    def retry(self, delay: float = 0.0) -> Settlement:
        """Give the message back, to be delivered again in so many seconds. Raises BadDelay."""
        return self._settle(Said(Verb.RETRY, checked(delay)))

    def reject(self, reason: object = "") -> Settlement:
        """Give the message up: it goes to the dead-letter topic where there is one.

        An exception may be the reason too: what is kept is its text.
        """
        return self._settle(Said(Verb.REJECT, reason=_text(reason)))

    def extend(self, seconds: float) -> Settlement:
        """Have so many seconds from now on; after the deadline it is too late for that.

        Raises BadDelay.
        """
        said = Said(Verb.EXTEND, checked(seconds))
        if self._board[self.place]:
            return _REPEATED
        now = self._desk.now()
        if self.deadline is not None and now > self.deadline:
            return _LATE
        self._desk.settle(self, said, False)  # noqa: FBT003
        if self.deadline is not None:
            self.deadline = now + said.seconds
        return _DONE

    @property
    def settled(self) -> bool:
        """Whether it has been acknowledged, given back or given up."""
        return self._board[self.place] != OPEN

    @property
    def partition(self) -> int:
        """Number of the partition."""
        return self.raw.partition() or 0

    @property
    def offset(self) -> int:
        """Offset in the partition."""
        return self.raw.offset() or 0

    @property
    def where(self) -> TopicPartition:
        """Topic and partition."""
        return TopicPartition(str(self.raw.topic()), self.partition)

    @property
    def key(self) -> bytes | None:
        """Key."""
        found: bytes | None = self.raw.key()
        return found

    @property
    def value(self) -> bytes | None:
        """Value."""
        found: bytes | None = self.raw.value()
        return found

    def __repr__(self) -> str:
        return f"Received({self.where}@{self.offset}, delivery {self.delivery})"

    def _settle(self, said: Said) -> Settlement:
        if self._board[self.place]:
            return _REPEATED
        late = self.deadline is not None and self._desk.now() > self.deadline
        self._board[self.place] = TOLD
        try:
            self._desk.settle(self, said, late)
        except TrimtabError:
            self._board[self.place] = OPEN
            raise
        return _LATE if late else _DONE


class Queue(Protocol):
    """One kind of queue, on one topic."""

    def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[Received]:  # noqa: A002
        """Return up to `max` messages as soon as there are any, none after `wait` seconds.

        It also serves the group: call it often, with `max=0` to take nothing.
        """
        ...

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until what was said of messages is kept by the broker; False if it is not yet."""
        ...

    def close(self) -> None:
        """Flush and leave the group; messages in work may still be settled until then."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...
