"""Checks of a `kmq` queue's markers topic and redelivery trackers. Pure."""

from collections.abc import Mapping
from typing import Final

from trimtab.common.units import format_count
from trimtab.sidecar.diagnostics.doctor.checks import Finding, failed, noted, passed

# With CreateTime the workers' clocks would decide when a message is redelivered; compaction would delete
# markers of messages in flight.
REQUIRED_CONFIGS: Final = {"message.timestamp.type": "LogAppendTime", "cleanup.policy": "delete"}
TRACKERS_CHECK: Final = "trackers"


def check_markers_topic(
    topic: str, partitions: int | None, messages: int | None, config: Mapping[str, str | None]
) -> Finding:
    """Check the partition counts of markers and messages (None if a topic is missing), and the config."""
    check = f"markers topic {topic}"
    if partitions is None:
        return noted(check, "missing; the first worker creates it")
    # a message's markers are in the partition of the same number
    if messages is not None and partitions < messages:
        return failed(
            check,
            f"{format_count(partitions, 'partition')}, the messages have {messages}: those of the rest wait",
            f"grant the workers Alter on it, or kafka-topics --alter --topic {topic} --partitions {messages}",
        )
    for name, needed in REQUIRED_CONFIGS.items():
        if config.get(name) not in {None, needed}:
            return failed(
                check,
                f"{name} is {config[name]}: workers refuse to start",
                f"kafka-configs --alter --topic {topic} --add-config {name}={needed}",
            )
    return passed(check, format_count(partitions, "partition"))


def check_trackers(running: int, topic: str, group: str) -> Finding:
    """Check the number of running trackers."""
    if running:
        return passed(TRACKERS_CHECK, f"{running} running")
    return failed(
        TRACKERS_CHECK,
        "none is running: unsettled messages are not redelivered, and the last worker is never stopped",
        f"start trimtab redeliver --topic {topic} --group {group}, with the workers' settings",
    )
