"""Connection settings of an ingest, for the producer of a replay and the reader of a verification."""

from collections.abc import Mapping
from typing import Any

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import client_config


def extract_connection_settings(config: Mapping[str, Any], alternative: str) -> dict[str, Any]:
    """Return the connection settings in librdkafka's names. Raises SettingError with the `alternative`."""
    settings = client_config.extract_connection_settings(config)  # without those of groups and fetching
    if not settings.get("bootstrap.servers") and not settings.get("metadata.broker.list"):
        raise SettingError(f"'bootstrap.servers' is missing; write it, or {alternative}")
    client_config.check_settings(settings)
    return client_config.to_librdkafka_config(settings)
