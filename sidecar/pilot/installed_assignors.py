"""The assignors that the coordinator of a group offers, and under which names the plugin is one of them.

franz-go's consumers ask for Kafka's `uniform` assignor in every group, so the plugin may take that name.
"""

from typing import Final

from trimtab.common.kafka_protocol.apis import DESCRIBE_CONFIGS
from trimtab.common.kafka_protocol.brokers import Brokers
from trimtab.common.kafka_protocol.connection import Request
from trimtab.sidecar.pilot.membership import ASSIGNOR_NAME

BROKER_RESOURCE: Final = 4
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


def read_installed_assignors(brokers: Brokers, group: str) -> str | None:
    """Return group.consumer.assignors of the group's coordinator.

    None without the right DescribeConfigs on the cluster. Raises KafkaRequestError.
    """
    broker = brokers.find_coordinator(group)
    resource = {"resource_type": BROKER_RESOURCE, "resource_name": str(broker)}
    wanted = {"resources": [{**resource, "configuration_keys": [ASSIGNORS_CONFIG]}]}
    (answer,) = brokers.ask_broker(broker, [Request(DESCRIBE_CONFIGS, wanted)])
    configs = {config.name: config.value for config in answer.results[0].configs} if answer.results else {}
    return configs.get(ASSIGNORS_CONFIG)
