"""Work queues on Kafka topics: each message is acknowledged, retried or rejected on its own.

    config = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
    with open_queue("kmq", "orders", config) as queue:
        for message in queue.receive(100, wait=1.0):
            handle(message.value)
            message.ack()

The kinds "kmq", "ordered" and "share" implement `MessageQueue`; docs/queues.md compares them.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.queues.async_queue import AsyncQueue
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KmqQueue
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.message_queue import MessageQueue
from trimtab.consumer_sdk.queues.ordered.ordered_queue import OrderedQueue
from trimtab.consumer_sdk.queues.settlement import SettlementResult
from trimtab.consumer_sdk.queues.share.share_queue import ShareQueue
from trimtab.consumer_sdk.queues.worker import QueueWorker, Reject, Retry, queue_worker

__all__ = [
    "QUEUE_KINDS",
    "AsyncQueue",
    "KmqQueue",
    "MessageQueue",
    "OrderedQueue",
    "QueueMessage",
    "QueueWorker",
    "RedeliveryTracker",
    "Reject",
    "Retry",
    "SettlementResult",
    "ShareQueue",
    "open_queue",
    "queue_worker",
]

QUEUE_KINDS: Final[Mapping[str, Callable[[str, Mapping[str, Any]], MessageQueue]]] = MappingProxyType(
    {"kmq": KmqQueue, "ordered": OrderedQueue, "share": ShareQueue}
)


def open_queue(kind: str, topic: str, config: Mapping[str, Any]) -> MessageQueue:
    """Open a queue of kind "kmq", "ordered" or "share" on a topic.

    `config` holds consumer settings and `trimtab.queue.*` (docs/queues.md). Raises SettingError
    and the errors of the kind's class.
    """
    if kind not in QUEUE_KINDS:
        raise SettingError(f"unknown queue kind {kind!r}; use one of {', '.join(QUEUE_KINDS)}")
    return QUEUE_KINDS[kind](topic, config)
