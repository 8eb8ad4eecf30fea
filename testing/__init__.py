"""Testing kit for applications on the SDK: a real broker, topics, a lake folder, and simulated groups.

The pytest plugin (`pytest_plugin`) has the fixtures; docs/testing.md shows how to test a handler.
"""

from typing import TYPE_CHECKING

from trimtab.common.lazy_names import lazy_names

if TYPE_CHECKING:
    from trimtab.testing.errors import HandlerHistoryError
    from trimtab.testing.kafka_broker import RunningBroker, run_broker
    from trimtab.testing.lake_folder import LakeFolder
    from trimtab.testing.simulated_group import GroupReport, RecordId, RecordOutcome, simulate_group
    from trimtab.testing.topics import KafkaTopics, ProducedRecord

__all__ = [
    "GroupReport",
    "HandlerHistoryError",
    "KafkaTopics",
    "LakeFolder",
    "ProducedRecord",
    "RecordId",
    "RecordOutcome",
    "RunningBroker",
    "run_broker",
    "simulate_group",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "HandlerHistoryError": "trimtab.testing.errors",
        **dict.fromkeys(("RunningBroker", "run_broker"), "trimtab.testing.kafka_broker"),
        "LakeFolder": "trimtab.testing.lake_folder",
        **dict.fromkeys(
            ("GroupReport", "RecordId", "RecordOutcome", "simulate_group"), "trimtab.testing.simulated_group"
        ),
        **dict.fromkeys(("KafkaTopics", "ProducedRecord"), "trimtab.testing.topics"),
    },
)
