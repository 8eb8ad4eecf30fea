"""How a client reaches the brokers: those settings of an ingest that hold for any other client.

A replay's producer and verify's reader connect as the ingest does, so whatever it needs for that
(addresses, TLS, SASL, sockets) is theirs too; what it says of groups and fetching is not.
"""

from collections.abc import Mapping
from typing import Any

from trimtab.common.errors import SettingError
from trimtab.common.kafka_security import connection


def extract_connection_settings(config: Mapping[str, Any], alternative: str) -> dict[str, Any]:
    """Return what a flat configuration says of the connection.

    Raises SettingError where it names no broker (`alternative` is what else can be done then), or
    what is wrong with TLS or SASL.
    """
    found = connection.extract_connection_settings(config)
    if not found.get("bootstrap.servers") and not found.get("metadata.broker.list"):
        raise SettingError(f"'bootstrap.servers' is missing; write it, or {alternative}")
    connection.check_settings(found)
    return connection.to_librdkafka_config(found)
