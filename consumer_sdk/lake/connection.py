"""Connection settings of an ingest, for the producer of a replay and the reader of a verification."""

from collections.abc import Mapping
from typing import Any

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection


def extract_connection_settings(config: Mapping[str, Any], alternative: str) -> dict[str, Any]:
    """Return the connection settings in librdkafka's names. Raises SettingError with the `alternative`."""
    settings = connection.extract_connection_settings(config)  # without those of groups and fetching
    if not settings.get("bootstrap.servers") and not settings.get("metadata.broker.list"):
        raise SettingError(f"'bootstrap.servers' is missing; write it, or {alternative}")
    connection.check_settings(settings)
    return connection.to_librdkafka_config(settings)
