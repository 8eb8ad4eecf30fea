"""Whether a broker has share groups: asked of it, not guessed from a failure."""

from collections.abc import Mapping
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from trimtab.assignor.security import connection
from trimtab.consumer_sdk.errors import BrokerUnreachable, NoShareGroups

FEATURE: Final = "share.version"
_ADMIN: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see


def require_share_groups(config: Mapping[str, Any]) -> None:
    """Raise NoShareGroups where the brokers at `config` have none, BrokerUnreachable."""
    bootstrap = str(config["bootstrap.servers"])
    named = {"bootstrap_servers": bootstrap.split(","), **connection.for_kafka_python(config)}
    try:
        client = _ADMIN(**named)
        try:
            features: Mapping[str, Mapping[str, Any]] = client.describe_features()
        finally:
            client.close()
    except KafkaError as error:
        raise BrokerUnreachable(bootstrap) from error
    require(features, bootstrap)


def require(features: Mapping[str, Mapping[str, Any]], where: str) -> None:
    """Raise NoShareGroups unless these features of a broker have share groups switched on."""
    found = features.get(FEATURE, {})
    if not found.get("supported"):
        raise NoShareGroups(
            f"the brokers at {where} have no share groups: Kafka 4.2 and later have them; upgrade "
            "them, or use a queue of kind 'kmq', which any broker serves"
        )
    if found.get("finalized", (0, 0))[1] < 1:
        raise NoShareGroups(
            f"the brokers at {where} have share groups switched off ({FEATURE}=0): switch them on "
            f"(kafka-features.sh upgrade --feature {FEATURE}=1), or use a queue of kind 'kmq'"
        )
