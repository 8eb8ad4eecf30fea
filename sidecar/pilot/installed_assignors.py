"""The assignors that the coordinator of a group offers, and under which names the plugin is one of them.

franz-go's consumers ask for Kafka's `uniform` assignor in every group, so the plugin may take that name.
"""

from typing import Any, Final

from kafka.admin import ConfigResource, ConfigResourceType

from trimtab.sidecar.kafka.coordinator_client import find_coordinator
from trimtab.sidecar.pilot.membership import ASSIGNOR_NAME

_RESOURCE_TYPES: Any = ConfigResourceType  # its stubs are of version 2
ASSIGNORS_CONFIG: Final = "group.consumer.assignors"
PLUGIN_CLASS: Final = "io.trimtab.PlannedAssignor"
UNIFORM_NAME: Final = "uniform"
UNIFORM_PLUGIN_CLASS: Final = "io.trimtab.PlannedUniformAssignor"  # the plugin under the name uniform


def is_plugin(assignor: str | None, installed: str | None) -> bool:
    """Return whether an assignor's name is the plugin's.

    `installed` is the broker's group.consumer.assignors, None if it is not readable.
    """
    return assignor == ASSIGNOR_NAME or (
        assignor == UNIFORM_NAME and UNIFORM_PLUGIN_CLASS in list_assignors(installed)
    )


def list_assignors(installed: str | None) -> list[str]:
    """Return the classes and names in group.consumer.assignors, in the broker's order."""
    return [one.strip() for one in (installed or "").split(",")]


def read_installed_assignors(admin: Any, group: str) -> str | None:
    """Return group.consumer.assignors of the group's coordinator.

    None without the right DescribeConfigs on the cluster. `admin` is a KafkaAdminClient. Raises KafkaError.
    """
    broker = str(find_coordinator(admin, group))
    resource = ConfigResource(_RESOURCE_TYPES.BROKER, broker, {ASSIGNORS_CONFIG: ""})  # the keys select
    described = admin.describe_configs([resource], config_filter="all")
    config = described.get("broker", {}).get(broker, {}).get(ASSIGNORS_CONFIG)
    return None if config is None else str(config["value"])
