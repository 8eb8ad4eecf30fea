"""How `trimtab doctor` judges a `kmq` queue: its markers, and the trackers that read them. Pure."""

from collections.abc import Mapping
from typing import Final

from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel

TIMESTAMP_TYPE_CONFIG: Final = "message.timestamp.type"
TRACKERS_CHECK: Final = "trackers"


def check_markers_topic(
    topic: str, partitions: int | None, messages: int | None, config: Mapping[str, str | None]
) -> Finding:
    """Judge the markers topic by its partitions and the messages'; None where a topic is away."""
    part = f"markers topic {topic}"
    if partitions is None:
        return Finding(part, FindingLevel.NOTE, "not there; the first worker makes it")
    if messages is not None and partitions != messages:
        return Finding(
            part,
            FindingLevel.WRONG,
            f"it has {partitions} partitions, the messages have {messages}: no worker starts",
            f"kafka-topics --alter --topic {topic} --partitions {messages}, or add some to the messages",
        )
    time = config.get(TIMESTAMP_TYPE_CONFIG)
    if time not in {None, "LogAppendTime"}:
        return Finding(
            part,
            FindingLevel.WRONG,
            f"{TIMESTAMP_TYPE_CONFIG} is {time}: no worker starts, since clocks would decide",
            f"kafka-configs --alter --topic {topic} --add-config {TIMESTAMP_TYPE_CONFIG}=LogAppendTime",
        )
    return Finding(part, FindingLevel.OK, f"{partitions} partitions")


def check_trackers(running: int, topic: str, group: str) -> Finding:
    """Judge how many trackers run."""
    if not running:
        return Finding(
            TRACKERS_CHECK,
            FindingLevel.WRONG,
            "none runs: what nobody settles does not come back, and the last worker stays",
            f"start trimtab redeliver --topic {topic} --group {group}, with the workers' settings",
        )
    return Finding(TRACKERS_CHECK, FindingLevel.OK, f"{running} run")
