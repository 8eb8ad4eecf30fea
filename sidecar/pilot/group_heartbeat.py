"""The heartbeat interval of a group of the new protocol: its members learn of a plan by a heartbeat.

The brokers' default is 5 s, and so is the least that they allow (group.consumer.min.heartbeat.interval.ms).
An interval that somebody has set for the group stays.
"""

from typing import Final

from trimtab.common.kafka_protocol.apis import DESCRIBE_CONFIGS, INCREMENTAL_ALTER_CONFIGS
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.errors import (
    ClusterDeniedError,
    GroupDeniedError,
    KafkaRequestError,
    raise_for_code,
)
from trimtab.common.settings.settings_model import format_duration

INTERVAL_CONFIG: Final = "consumer.heartbeat.interval.ms"
SHORT_INTERVAL_MS: Final = 500
GROUP_SOURCE: Final = 8  # DYNAMIC_GROUP_CONFIG
GROUP_RESOURCE: Final = 32
_SET: Final = 0


def shorten_group_heartbeat(brokers: Brokers, group: str) -> str:
    """Set the group's interval to `SHORT_INTERVAL_MS`; return why it is longer, empty if it is not."""
    try:
        interval_ms, source = _read_interval(brokers, group)
        if interval_ms <= SHORT_INTERVAL_MS:
            return ""
        reason = "set for the group" if source == GROUP_SOURCE else _set_interval(brokers, group)
    except (KafkaRequestError, ValueError) as error:  # ValueError: the broker knows no such setting
        return f"members follow at their heartbeats; {INTERVAL_CONFIG} is unknown: {error}"
    return reason and f"members follow at heartbeats {format_duration(interval_ms / 1000)} apart: {reason}"


def _read_interval(brokers: Brokers, group: str) -> tuple[int, int]:
    """Return the interval and where it comes from."""
    resource = {
        "resource_type": GROUP_RESOURCE,
        "resource_name": group,
        "configuration_keys": [INTERVAL_CONFIG],
    }
    (described,) = brokers.ask(DESCRIBE_CONFIGS, {"resources": [resource]}).results
    for config in described.configs:
        return int(config.value), config.config_source
    raise ValueError(f"grant AlterConfigs on group {group}")  # implies DescribeConfigs


def _set_interval(brokers: Brokers, group: str) -> str:
    """Return the broker's reason for a refusal; empty once the interval is set."""
    config = {"name": INTERVAL_CONFIG, "config_operation": _SET, "value": str(SHORT_INTERVAL_MS)}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": group, "configs": [config]}
    (result,) = brokers.ask(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource]}).responses
    try:
        raise_for_code(result.error_code, result.error_message)
    except (GroupDeniedError, ClusterDeniedError):
        return f"grant AlterConfigs on group {group}"
    except KafkaRequestError as error:
        return str(error)
    return ""
