"""Whether a broker has share groups: asked of it, not guessed from a failure."""

from collections.abc import Mapping
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import (
    AuthorizationError,
    IncompatibleBrokerVersion,
    KafkaError,
    UnsupportedVersionError,
)

from trimtab.common.kafka_security import connection
from trimtab.common.share_group_support import FEATURE, lacking
from trimtab.consumer_sdk.errors import BrokerUnreachable, NoShareGroups, NotAllowed

DEAD_LETTERS: Final = 2
"""The `share.version` from which on the brokers write dead letters of share groups (KIP-1191)."""

_ADMIN: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see


def require_share_groups(config: Mapping[str, Any]) -> int:
    """Return the `share.version` of the brokers at `config`.

    Raises NoShareGroups where they have none, NotAllowed, BrokerUnreachable for what passes by
    itself, and KafkaError for the rest.
    """
    bootstrap = str(config["bootstrap.servers"])
    named = {"bootstrap_servers": bootstrap.split(","), **connection.for_kafka_python(config)}
    try:
        client = _ADMIN(**named)
        try:
            features: Mapping[str, Mapping[str, Any]] = client.describe_features()
        finally:
            client.close()
    except (
        IncompatibleBrokerVersion,
        UnsupportedVersionError,
    ):  # from before there were features to tell of
        features = {}
    except AuthorizationError as error:
        raise NotAllowed(
            f"the brokers at {bootstrap} tell of no features; grant Describe on the cluster"
        ) from error
    except KafkaError as error:
        if not error.retriable:
            raise
        raise BrokerUnreachable(bootstrap, str(error)) from error
    return require(features, bootstrap)


def require(features: Mapping[str, Mapping[str, Any]], where: str) -> int:
    """Return the finalized `share.version`. Raises NoShareGroups where that is none."""
    reason = lacking(features, where)
    if reason is not None:
        raise NoShareGroups(reason)
    return int(features[FEATURE]["finalized"][1])
