"""Consumer SDK: drop-in consumers, work queues, and a sink for lake tables."""

from typing import TYPE_CHECKING

from trimtab.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from trimtab.consumer_sdk.consumer.asyncio.async_consumer import AsyncConsumer
    from trimtab.consumer_sdk.consumer.consumer import Consumer
    from trimtab.consumer_sdk.errors import (
        BrokerUnreachableError,
        ConsumerClosedError,
        GroupMembershipError,
        InvalidSettingError,
    )
    from trimtab.consumer_sdk.membership.group_view import GroupView

__all__ = [
    "AsyncConsumer",
    "BrokerUnreachableError",
    "Consumer",
    "ConsumerClosedError",
    "GroupMembershipError",
    "GroupView",
    "InvalidSettingError",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "AsyncConsumer": "trimtab.consumer_sdk.consumer.asyncio.async_consumer",
        "Consumer": "trimtab.consumer_sdk.consumer.consumer",
        **dict.fromkeys(
            ("BrokerUnreachableError", "ConsumerClosedError", "GroupMembershipError", "InvalidSettingError"),
            "trimtab.consumer_sdk.errors",
        ),
        "GroupView": "trimtab.consumer_sdk.membership.group_view",
    },
)
