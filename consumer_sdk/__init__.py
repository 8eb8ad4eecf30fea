"""What an application imports: a drop-in consumer, and a sink for its records in a lake."""

from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import (
    BrokerUnreachableError,
    ConsumerClosedError,
    GroupMembershipError,
    InvalidSettingError,
)

__all__ = [
    "BrokerUnreachableError",
    "Consumer",
    "ConsumerClosedError",
    "GroupMembershipError",
    "InvalidSettingError",
]
