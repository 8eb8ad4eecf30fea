"""Work queues on Kafka topics: each message is acknowledged, retried or rejected on its own.

    config = {"bootstrap.servers": "localhost:9092", "group.id": "billing"}
    with open_queue("kmq", "orders", config) as queue:
        for message in queue.receive(100, wait=1.0):
            handle(message.value)
            message.ack()

The kinds "kmq", "ordered" and "share" implement `MessageQueue`; docs/queues.md compares them.
"""

from typing import TYPE_CHECKING

from trimtab.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from trimtab.consumer_sdk.queues.async_queue import AsyncQueue
    from trimtab.consumer_sdk.queues.kinds.registry import QUEUE_KINDS, open_queue
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

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AsyncQueue": "trimtab.consumer_sdk.queues.async_queue",
        **dict.fromkeys(("QUEUE_KINDS", "open_queue"), "trimtab.consumer_sdk.queues.kinds.registry"),
        "KmqQueue": "trimtab.consumer_sdk.queues.kmq.kmq_queue",
        "RedeliveryTracker": "trimtab.consumer_sdk.queues.kmq.redelivery_tracker",
        "QueueMessage": "trimtab.consumer_sdk.queues.message",
        "MessageQueue": "trimtab.consumer_sdk.queues.message_queue",
        "OrderedQueue": "trimtab.consumer_sdk.queues.ordered.ordered_queue",
        "SettlementResult": "trimtab.consumer_sdk.queues.settlement",
        "ShareQueue": "trimtab.consumer_sdk.queues.share.share_queue",
        **dict.fromkeys(
            ("QueueWorker", "Reject", "Retry", "queue_worker"), "trimtab.consumer_sdk.queues.worker"
        ),
    },
)
