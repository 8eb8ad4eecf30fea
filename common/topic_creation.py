"""Clients that create no topic by asking for it.

librdkafka takes admin clients for producers, whose request for the metadata of one topic lets a broker
with `auto.create.topics.enable`, Kafka's default, create it.
"""

from collections.abc import Mapping
from typing import Final

NO_TOPIC_CREATION: Final[Mapping[str, bool]] = {"allow.auto.create.topics": False}
"""Settings of an admin client or a producer."""
