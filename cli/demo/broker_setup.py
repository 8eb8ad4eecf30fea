"""The demo's broker: an embedded one or the user's, its connection settings and topics."""

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from trimtab.cli.broker.embedded_broker import EmbeddedBroker
from trimtab.cli.errors import DemoFailedError
from trimtab.common.kafka_security import client_config
from trimtab.common.kafka_security.preflight import check_connection
from trimtab.common.kafka_security.secrets import resolve_secrets
from trimtab.consumer_sdk.errors import BrokerUnreachableError
from trimtab.consumer_sdk.log_rate_limit import QUIET_LOG_LEVEL

MAX_TOPIC_REPLICAS: Final = 3
UNREACHABLE_CODES: Final = (-195, -185)  # librdkafka's own: transport, timed out


def connect_broker(settings: Mapping[str, Any], stack: ExitStack) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """Return the settings with secret references, and librdkafka's with the secrets resolved.

    Without settings an embedded broker runs until `stack` unwinds.
    """
    written = settings or {"bootstrap.servers": stack.enter_context(EmbeddedBroker()).bootstrap}
    resolved = resolve_secrets(written, os.environ)
    client_config.check_settings(resolved)
    client = client_config.to_librdkafka_config(resolved)
    check_connection(client)  # librdkafka retries a refused login for ever
    return written, client


def create_topics(client: Mapping[str, Any], topics: Sequence[str], partitions: int) -> AdminClient:
    """Create the topics; return the admin client. Raises DemoFailedError, BrokerUnreachableError."""
    admin = AdminClient({**client, "log_level": QUIET_LOG_LEVEL})
    try:
        replicas = min(MAX_TOPIC_REPLICAS, len(admin.list_topics(timeout=10).brokers))
        new = [NewTopic(topic, partitions, replicas) for topic in topics]
        for made in admin.create_topics(new, operation_timeout=30).values():
            made.result(40)
    except KafkaException as error:
        if error.args[0].code() in UNREACHABLE_CODES:
            raise BrokerUnreachableError(str(client["bootstrap.servers"])) from error
        raise DemoFailedError(f"the topics cannot be created: {error.args[0].str()}") from error
    return admin
