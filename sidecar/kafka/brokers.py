"""The sidecar's requests that confluent-kafka does not offer, and its connections for them."""

from typing import Any, Final

from trimtab.common.clock import Clock
from trimtab.common.kafka_protocol.apis import Api
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.errors import GroupNotFoundError, MalformedMessageError, raise_for_code
from trimtab.sidecar.settings.settings import SidecarSettings

SIDECAR_CLIENT_ID: Final = "trimtab-sidecar"


def connect_brokers(settings: SidecarSettings, clock: Clock, client_id: str = SIDECAR_CLIENT_ID) -> Brokers:
    """Return connections that open when they are used."""
    return Brokers(settings.client_config, clock, client_id=client_id, timeout=settings.timeout)


def describe_group(brokers: Brokers, group: str, api: Api) -> Any:
    """Return the description of a group by CONSUMER_GROUP_DESCRIBE or SHARE_GROUP_DESCRIBE.

    None if no group of that type exists. Raises KafkaRequestError.
    """
    rows = brokers.ask_coordinator(group, api, {"group_ids": [group]}).groups
    described = next((row for row in rows if row.group_id == group), None)
    if described is None:
        raise MalformedMessageError(f"{api.name} answers without the group")
    if described.error_code == GroupNotFoundError.code:
        return None
    raise_for_code(described.error_code, described.error_message)
    return described


def fetch_group_type(brokers: Brokers, group: str) -> str | None:
    """Return "classic", "consumer" or "share"; None if the group does not exist. Raises KafkaRequestError."""
    return {listed.group_id: listed.group_type for listed in brokers.list_groups()}.get(group)
