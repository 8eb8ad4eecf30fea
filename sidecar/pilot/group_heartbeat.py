"""The heartbeat interval of a group of the new protocol: its members learn of a plan by a heartbeat.

The brokers' default is 5 s, and so is the least that they allow (group.consumer.min.heartbeat.interval.ms).
An interval that somebody has set for the group stays.
"""

from typing import Any, Final

from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError

from trimtab.common.settings.settings_model import format_duration

_RESOURCE_TYPES: Any = ConfigResourceType  # its stubs are of version 2
INTERVAL_CONFIG: Final = "consumer.heartbeat.interval.ms"
SHORT_INTERVAL_MS: Final = 500
GROUP_SOURCE: Final = "DYNAMIC_GROUP_CONFIG"


def shorten_group_heartbeat(admin: Any, group: str) -> str:
    """Set the group's interval to `SHORT_INTERVAL_MS`; return why it is longer, empty if it is not.

    `admin` is a KafkaAdminClient.
    """
    try:
        interval_ms, source = _read_interval(admin, group)
        if interval_ms <= SHORT_INTERVAL_MS:
            return ""
        reason = "set for the group" if source == GROUP_SOURCE else _set_interval(admin, group)
    except (KafkaError, ValueError) as error:  # ValueError: the broker knows no such setting
        return f"members follow at their heartbeats; {INTERVAL_CONFIG} is unknown: {error}"
    return reason and f"members follow at heartbeats {format_duration(interval_ms / 1000)} apart: {reason}"


def _read_interval(admin: Any, group: str) -> tuple[int, str]:
    resource = ConfigResource(_RESOURCE_TYPES.GROUP, group)
    described = admin.describe_configs([resource], config_filter="all")
    config = described.get("group", {}).get(group, {}).get(INTERVAL_CONFIG)
    if config is None:
        raise ValueError(f"grant AlterConfigs on group {group}")  # implies DescribeConfigs
    return int(config["value"]), config["config_source"]


def _set_interval(admin: Any, group: str) -> str:
    """Return the broker's reason for a refusal; empty once the interval is set."""
    configs = {INTERVAL_CONFIG: str(SHORT_INTERVAL_MS)}
    resource = ConfigResource(_RESOURCE_TYPES.GROUP, group, configs)
    (result,) = admin.alter_configs([resource], raise_on_unknown=False, incremental=True)["group"].values()
    if "AuthorizationFailed" in result:  # the admin client returns the error's text
        return f"grant AlterConfigs on group {group}"
    return "" if result == "OK" else str(result)
