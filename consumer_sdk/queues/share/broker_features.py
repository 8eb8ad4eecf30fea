"""Checks the brokers' support of share groups by their feature versions (KIP-584)."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from trimtab.common.clock import Clock
from trimtab.common.errors import ShareGroupsUnsupportedError
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.errors import ClusterDeniedError, KafkaRequestError, UnsupportedApiError
from trimtab.common.share_group_support import SHARE_VERSION_FEATURE, explain_missing_share_groups
from trimtab.consumer_sdk.errors import BrokerUnreachableError, MissingAclError

DEAD_LETTER_SHARE_VERSION: Final = 2  # brokers with it write dead letters of share groups (KIP-1191)
REQUEST_TIMEOUT_S: Final = 30.0


def require_share_groups(config: Mapping[str, Any], clock: Clock) -> int:
    """Return the finalized `share.version` of the brokers.

    Raises ShareGroupsUnsupportedError without share groups, MissingAclError,
    BrokerUnreachableError for transient failures, and KafkaRequestError for others.
    """
    bootstrap = str(config["bootstrap.servers"])
    brokers = Brokers(config, clock, client_id=str(config.get("client.id", "")), timeout=REQUEST_TIMEOUT_S)
    features: Mapping[str, Mapping[str, Any]]
    try:
        with closing(brokers):
            features = brokers.retry(brokers.fetch_features)
    except UnsupportedApiError:  # brokers older than features
        features = {}
    except ClusterDeniedError as error:
        denied = f"not authorized to read the features of the brokers at {bootstrap}"
        raise MissingAclError(f"{denied}; grant Describe on the cluster") from error
    except KafkaRequestError as error:
        if not error.retryable:
            raise
        raise BrokerUnreachableError(bootstrap, str(error)) from error
    return require_share_version(features, bootstrap)


def require_share_version(features: Mapping[str, Mapping[str, Any]], where: str) -> int:
    """Return the finalized `share.version`. Raises ShareGroupsUnsupportedError without one."""
    reason = explain_missing_share_groups(features, where)
    if reason is not None:
        raise ShareGroupsUnsupportedError(reason)
    return int(features[SHARE_VERSION_FEATURE]["finalized"][1])
