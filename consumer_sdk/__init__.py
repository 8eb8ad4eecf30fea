"""Consumer SDK: drop-in consumers, work queues, and a sink for lake tables."""

from trimtab.consumer_sdk.consumer.async_consumer import AsyncConsumer
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import (
    BrokerUnreachableError,
    ConsumerClosedError,
    GroupMembershipError,
    InvalidSettingError,
)
from trimtab.consumer_sdk.group_view import GroupView

__all__ = [
    "AsyncConsumer",
    "BrokerUnreachableError",
    "Consumer",
    "ConsumerClosedError",
    "GroupMembershipError",
    "GroupView",
    "InvalidSettingError",
]
