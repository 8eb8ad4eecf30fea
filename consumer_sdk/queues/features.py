"""Whether a broker has share groups: asked of it, not guessed from a failure."""

from collections.abc import Mapping
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

from trimtab.assignor.security import connection
from trimtab.assignor.share_groups import lacking
from trimtab.consumer_sdk.errors import BrokerUnreachable, NoShareGroups

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
    reason = lacking(features, where)
    if reason is not None:
        raise NoShareGroups(reason)
