"""Queues on Kafka: each message acknowledged, delivered again or given up by itself.

    config = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
    with open_queue("kmq", "orders", config) as queue:
        for message in queue.receive(100, wait=1.0):
            handle(message.value)
            message.ack()

Three kinds behind one interface (`MessageQueue`), compared in docs/queues.md.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.queues.async_queue import AsyncQueue
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KmqQueue
from trimtab.consumer_sdk.queues.kmq.redelivery_tracker import RedeliveryTracker
from trimtab.consumer_sdk.queues.message import QueueMessage
from trimtab.consumer_sdk.queues.ordered.ordered_queue import OrderedQueue
from trimtab.consumer_sdk.queues.queue import MessageQueue
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

QUEUE_KINDS: Final[Mapping[str, Callable[[str, Mapping[str, Any]], MessageQueue]]] = (
    MappingProxyType({"kmq": KmqQueue, "ordered": OrderedQueue, "share": ShareQueue})
)


def open_queue(kind: str, topic: str, config: Mapping[str, Any]) -> MessageQueue:
    """Open a queue of a kind ("kmq", "ordered", "share") on a topic.

    `config` is a consumer's, with `trimtab.queue.*` (docs/queues.md). Raises SettingError and what
    the kind raises.
    """
    made = QUEUE_KINDS.get(kind)
    if made is None:
        raise SettingError(f"{kind!r} is no kind of queue; there are {', '.join(QUEUE_KINDS)}")
    return made(topic, config)
