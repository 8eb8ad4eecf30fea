"""Opens a queue by the name of its kind."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

from trimtab.common.errors import SettingError
from trimtab.consumer_sdk.queues.kmq.kmq_queue import KmqQueue
from trimtab.consumer_sdk.queues.message_queue import MessageQueue
from trimtab.consumer_sdk.queues.ordered.ordered_queue import OrderedQueue
from trimtab.consumer_sdk.queues.share.share_queue import ShareQueue

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
