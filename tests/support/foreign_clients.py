"""Consumers that know no plans, for the workers of the tests."""

from collections.abc import Callable, Iterable
from typing import Any

from confluent_kafka import Consumer as ConfluentConsumer
from kafka import ConsumerRebalanceListener, KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

Callback = Callable[[Any, list[Any]], None]


def create_librdkafka_client(strategy: str = "cooperative-sticky", **more: Any) -> Callable[..., Any]:
    """Return a factory of unmodified confluent-kafka consumers, named by `client.id`."""

    def create(config: dict[str, Any]) -> Any:
        own = {key: value for key, value in config.items() if not key.startswith("trimtab.")}
        named = {"client.id": config["trimtab.instance"], "partition.assignment.strategy": strategy}
        return ConfluentConsumer({**own, **named, **more})

    return create


class KafkaPythonClient:
    """kafka-python's consumer behind the methods of confluent-kafka's that the workers use."""

    assignor_type: Callable[[], Any] = CooperativeStickyAssignor
    assignor_name = "cooperative-sticky"

    def __init__(self, config: dict[str, Any]) -> None:
        assignor = self.assignor_type()
        assignor.name = self.assignor_name
        self._consumer = KafkaConsumer(
            bootstrap_servers=config["bootstrap.servers"],
            group_id=config["group.id"],
            client_id=config["trimtab.instance"],
            auto_offset_reset="earliest",
            session_timeout_ms=config["session.timeout.ms"],
            heartbeat_interval_ms=config["heartbeat.interval.ms"],
            partition_assignment_strategy=[assignor],
        )

    def subscribe(self, topics: list[str], assigned: Callback, revoked: Callback, _lost: Callback) -> None:
        self._consumer.subscribe(topics, listener=_Listener(assigned, revoked))

    def consume(self, count: int, timeout: float) -> list[Any]:
        polled = self._consumer.poll(timeout_ms=int(timeout * 1000), max_records=count)
        return [_Message(record) for records in polled.values() for record in records]

    def close(self) -> None:
        self._consumer.close()


class StickyClient(KafkaPythonClient):
    """A member with the eager assignor of KIP-54."""

    assignor_type = StickyPartitionAssignor
    assignor_name = "sticky"


class KafkaJsClient(KafkaPythonClient):
    """A member with the protocol name of kafkajs."""

    assignor_type = RoundRobinPartitionAssignor
    assignor_name = "RoundRobinAssigner"


class StreamsClient(KafkaPythonClient):
    """A member with the protocol name of Kafka Streams."""

    assignor_name = "stream"


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc] # kafka-python has no types
    def __init__(self, assigned: Callback, revoked: Callback) -> None:
        self._assigned = assigned
        self._revoked = revoked

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._assigned(None, list(assigned))

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._revoked(None, list(revoked))


class _Message:
    def __init__(self, record: Any) -> None:
        self._record = record

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return str(self._record.topic)

    def partition(self) -> int:
        return int(self._record.partition)

    def offset(self) -> int:
        return int(self._record.offset)
