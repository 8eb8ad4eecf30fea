"""Checks the brokers' support of share groups by their feature versions (KIP-584)."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from kafka import KafkaAdminClient
from kafka.errors import AuthorizationError, IncompatibleBrokerVersion, KafkaError, UnsupportedVersionError

from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.common.kafka_security import client_config
from trimtab.common.share_group_support import SHARE_VERSION_FEATURE, explain_missing_share_groups
from trimtab.consumer_sdk.errors import BrokerUnreachableError, MissingAclError

DEAD_LETTER_SHARE_VERSION: Final = 2  # brokers with it write dead letters of share groups (KIP-1191)
_ADMIN_CLIENT: Any = KafkaAdminClient  # its methods come from mix-ins that checkers do not see


def require_share_groups(config: Mapping[str, Any]) -> int:
    """Return the finalized `share.version` of the brokers.

    Raises ShareGroupsUnsupportedError without share groups, MissingAclError,
    BrokerUnreachableError for transient failures, and KafkaError for others.
    """
    bootstrap = str(config["bootstrap.servers"])
    options = {"bootstrap_servers": bootstrap.split(","), **client_config.to_kafka_python_config(config)}
    features: Mapping[str, Mapping[str, Any]]
    try:
        with closing(_ADMIN_CLIENT(**options)) as client:
            features = client.describe_features()
    except (IncompatibleBrokerVersion, UnsupportedVersionError):  # brokers older than features
        features = {}
    except AuthorizationError as error:
        denied = f"not authorized to read the features of the brokers at {bootstrap}"
        raise MissingAclError(f"{denied}; grant Describe on the cluster") from error
    except KafkaError as error:
        if not error.retriable:
            raise
        raise BrokerUnreachableError(bootstrap, str(error)) from error
    return require_share_version(features, bootstrap)


def require_share_version(features: Mapping[str, Mapping[str, Any]], where: str) -> int:
    """Return the finalized `share.version`. Raises ShareGroupsUnsupportedError without one."""
    reason = explain_missing_share_groups(features, where)
    if reason is not None:
        raise ShareGroupsUnsupportedError(reason)
    return int(features[SHARE_VERSION_FEATURE]["finalized"][1])
