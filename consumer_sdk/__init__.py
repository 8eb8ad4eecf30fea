"""What an application imports: a drop-in consumer, and a sink for its records in a lake."""

from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.errors import (
    BrokerUnreachable,
    ConsumerClosed,
    InvalidSetting,
    MembershipFailed,
)

__all__ = ["BrokerUnreachable", "Consumer", "ConsumerClosed", "InvalidSetting", "MembershipFailed"]
