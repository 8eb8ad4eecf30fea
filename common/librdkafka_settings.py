"""Settings of librdkafka's clients that several packages need."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

# With several requests in flight, a broker that does not yet know a new partition refuses the first one and
# accepts the second. The first one's retry is then "out of sequence", and librdkafka counts its records as
# written although no log has them (KAFKA-15591, mended in brokers after Kafka 4.2).
IDEMPOTENT_PRODUCER_SETTINGS: Final[Mapping[str, Any]] = MappingProxyType(
    {"enable.idempotence": True, "max.in.flight.requests.per.connection": 1}
)
"""Of a producer: each record that it acknowledges is in the topic."""

# librdkafka takes admin clients for producers, whose request for the metadata of one topic lets a broker with
# `auto.create.topics.enable`, Kafka's default, create it.
NO_TOPIC_CREATION: Final[Mapping[str, bool]] = {"allow.auto.create.topics": False}
"""Of an admin client or a producer: it creates no topic by asking for it."""
