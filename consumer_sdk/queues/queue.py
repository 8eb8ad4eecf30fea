"""What every kind of queue offers.

A message is settled once: `ack`, `retry` or `reject`. None of them waits: what was said is written
in the background, and `flush` or `close` waits for it. A message that is never settled comes back
(by `kmq` and `share` when its time is over, by `ordered` when its consumer is gone). So all of it
may be used from any thread and from coroutines; `receive`, `flush` and `close` by one thread only.
"""

from collections.abc import Sequence
from typing import Protocol, Self

from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.settlement import SettlementRequest


class MessageSettler(Protocol):
    """Where messages are settled: the queue that handed them out, or their batch."""

    @property
    def notify_on_ack(self) -> bool:
        """Whether it is to be told of an acknowledgement in time, too."""
        ...

    def now(self) -> float:
        """Return seconds of the clock that deadlines are of."""
        ...

    def settle(self, message: QueueMessage, request: SettlementRequest, late: bool) -> None:  # noqa: FBT001
        """Take note; must not wait. Raises UnsupportedQueueOperationError for what this kind of queue cannot do."""
        ...


class MessageQueue(Protocol):
    """One kind of queue, on one topic."""

    def receive(self, max: int = 100, wait: float = 1.0) -> Sequence[QueueMessage]:  # noqa: A002
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
