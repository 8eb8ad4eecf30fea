"""Timeouts that the broker sets for groups of the new protocol (KIP-848)."""

import logging
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource  # not exported by name where types are checked

from trimtab.common.kafka_security import client_config
from trimtab.consumer_sdk.client.settings import ConsumerSettings
from trimtab.consumer_sdk.log_rate_limit import LIBRDKAFKA_LOGGER

log = logging.getLogger("trimtab.consumer_sdk")

GROUP_SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"  # of the group, else the broker's
QUERY_TIMEOUT_S: Final = 5.0
SESSION_TIMEOUT_INTERVAL_S: Final = 60.0


def read_session_timeout(settings: ConsumerSettings, known: float | None = None) -> float:
    """Return the group's session timeout in seconds, at most `session.timeout.ms`.

    If it cannot be read, as without DescribeConfigs on the group, return the one `known` so far, else
    `session.timeout.ms`.
    """
    try:
        return min(settings.session_timeout, _ask_session_timeout(settings))
    except (KafkaException, TimeoutError, LookupError, TypeError, ValueError) as error:
        if known is not None:
            return known
        log.warning(
            "group %s: %s is unknown (%s): records are returned for session.timeout.ms=%.0f after the last "
            "heartbeat, which must not exceed it; grant DescribeConfigs on group %s",
            *(settings.group, GROUP_SESSION_TIMEOUT, error, settings.session_timeout * 1000, settings.group),
        )
        return settings.session_timeout


def _ask_session_timeout(settings: ConsumerSettings) -> float:
    connection = client_config.extract_connection_settings(settings.librdkafka_config)
    admin = AdminClient(connection, logger=LIBRDKAFKA_LOGGER)
    resource = ConfigResource(ConfigResource.Type.GROUP, settings.group)
    answers = admin.describe_configs([resource], request_timeout=QUERY_TIMEOUT_S)
    return float(answers[resource].result(QUERY_TIMEOUT_S)[GROUP_SESSION_TIMEOUT].value) / 1000
