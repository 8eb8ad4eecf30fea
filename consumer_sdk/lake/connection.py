"""Connection settings (addresses, TLS, SASL, sockets) of an ingest, for its other clients.

The producer of a replay and the reader of a verification connect as the ingest does; settings of
groups and fetching do not apply to them.
"""

from collections.abc import Mapping
from typing import Any

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection


def extract_connection_settings(config: Mapping[str, Any], alternative: str) -> dict[str, Any]:
    """Return the connection settings of a flat configuration, in librdkafka's names.

    Raises SettingError if bootstrap servers are missing (`alternative` completes the advice), or if
    TLS or SASL settings are invalid.
    """
    found = connection.extract_connection_settings(config)
    if not found.get("bootstrap.servers") and not found.get("metadata.broker.list"):
        raise SettingError(f"'bootstrap.servers' is missing; write it, or {alternative}")
    connection.check_settings(found)
    return connection.to_librdkafka_config(found)
