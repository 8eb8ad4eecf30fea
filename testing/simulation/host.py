"""What a simulated process reaches: the cluster and the control topics; and its consumer, observed."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.client.membership_events import MembershipEnded, PartitionsLost
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.testing.simulation import green
from trimtab.testing.simulation.fetching import Fetcher
from trimtab.testing.simulation.membership import Client, ClientSettings, Cluster
from trimtab.testing.simulation.network import UnreachableError

CONTROL_READ_INTERVAL_S: Final = 0.5


@dataclass(slots=True)
class Host:
    """Environment of a process; `control` has the records of the control topics."""

    cluster: Cluster
    control: list[Any]
    consumer: "ObservedConsumer | None" = None
    client: Client | None = None
    fetcher: Fetcher | None = None

    def create_fetcher(self) -> Fetcher:
        """Return the stand-in for librdkafka's consumer."""
        fetcher = self.fetcher = Fetcher(self.cluster)
        return fetcher

    def connect_member(self, settings: Any, assignor: Any, listener: Any) -> Client:
        """Return the stand-in for kafka-python's consumer."""
        control = settings.kafka_python_config
        own = ClientSettings(
            control["heartbeat_interval_ms"] / 1000,
            settings.session_timeout,
            settings.max_poll_interval,
            settings.instance,
        )
        client = self.client = Client(self.cluster, own, assignor, listener)
        return client

    def answer_control(self, first: int, respond: Callable[[Any], None]) -> None:
        """Answer with the records of the control topics from a position on."""
        respond(self.control[first:])

    def took(self, partitions: frozenset[TopicPartition]) -> None:
        """Note that the consumer takes partitions over."""

    def handed(self, messages: Sequence[Any]) -> None:
        """Note that the consumer returned records to the application."""


class SimulatedControlReader(ControlTopicReader):
    """ControlTopicReader on simulated control topics; no broker tells a lag."""

    def load_lags(self, partition_index: PartitionIndex) -> dict[TopicPartition, int]:
        """Return no lag."""
        del partition_index
        return {}

    def _read_topics(self) -> None:
        host: Host = green.process().host
        taken = 0
        while not self._closing.is_set():
            try:
                found = host.cluster.network.call(partial(host.answer_control, taken))
            except UnreachableError:
                found = []
            else:
                self._initial_read_done.set()
            for record in found:
                self.apply_record(record)
            taken += len(found)
            self._closing.wait(CONTROL_READ_INTERVAL_S)


class ObservedConsumer(Consumer):
    """Consumer of a simulated process; reports the partitions it takes and the records it returns."""

    def __init__(self, config: Any, *, clock: Any = None) -> None:
        process = green.process()
        super().__init__(config, clock=clock or green.Clock(process.hub))
        self._host: Host = process.host
        self._host.consumer = self

    def __del__(self) -> None:
        """Do nothing: that of a process that was killed does not leave its group."""

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        """Return records, as `Consumer` does."""
        messages = super().consume(num_messages, timeout)
        self._host.handed(messages)
        return messages

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions that this consumer considers owned."""
        return frozenset(self._partitions.owned)

    def reads(self) -> bool:
        """Return whether records would be returned now."""
        member = self._member
        if member is None or any(
            isinstance(event, PartitionsLost | MembershipEnded) for event in member.inbox
        ):
            return False
        return member.holds_lease()

    def _on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self._host.took(partitions - self._partitions.owned)
        super()._on_assigned(partitions)
