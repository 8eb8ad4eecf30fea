"""The interface of all queue kinds.

A message is settled once: `ack`, `retry` or `reject`. These and `extend` never wait, and any
thread or coroutine may call them: settlements are written in the background, and `flush` and
`close` wait for them. Only one thread may call `receive`, `flush` and `close`. A message that is
never settled is redelivered: by `kmq` and `share` after its timeout, by `ordered` after its
consumer has left the group.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol, Self

from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settlement import SettlementRequest
from trimtab.consumer_sdk.telemetry.consumer_spans import NOTHING


class MessageSettler(Protocol):
    """Receives settlements: the queue that delivered the message, or its batch."""

    @property
    def notify_on_ack(self) -> bool:
        """Whether `settle` is called for acknowledgements before the deadline, too."""
        ...

    def now(self) -> float:
        """Return the seconds of the clock that deadlines refer to."""
        ...

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Record a settlement without waiting. Raises UnsupportedQueueOperationError."""


class QueuedSettlement(NamedTuple):
    """A settlement that waits for the receiving thread."""

    message: QueueMessage
    request: SettlementRequest


class MessageQueue(Protocol):
    """A queue of one group on one topic."""

    def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[QueueMessage]:  # noqa: A002
        """Return up to `max` messages once any is available, none after `wait` seconds.

        Also keeps the group membership alive: call it often, with `max=0` to take no message.
        """
        ...

    def trace_processing(self, message: QueueMessage) -> AbstractContextManager[None]:
        """Return a block whose span processes a message, for a loop of your own; `@queue_worker` has it."""
        del message
        return NOTHING

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until the broker has stored all settlements; return False if it has not."""
        ...

    def close(self) -> None:
        """Flush and leave the group; messages in flight can be settled until then."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
