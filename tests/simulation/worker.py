"""Worker: the loop of `trimtab ingest`, with its consumer and lake writer, in one process."""

# pyright: reportPrivateUsage=false
# the plan that a member led its last round on is its own
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulation import green
from simulation.fetching import Fetcher
from simulation.keyed import build_projection
from simulation.membership import Client, ClientSettings, Cluster
from simulation.network import UnreachableError
from trimtab.assignor.model import TopicPartition
from trimtab.assignor.partition_index import PartitionIndex
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.consumer_sdk.consumer.consumer import Consumer
from trimtab.consumer_sdk.lake import ingest
from trimtab.consumer_sdk.lake.interfaces import Lake
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter
from trimtab.consumer_sdk.membership.control_topic_reader import ControlTopicReader
from trimtab.consumer_sdk.membership.events import MembershipEnded, PartitionsLost
from trimtab.consumer_sdk.membership.member import GroupMember

FOLLOW = 0.5
"""Seconds between reads of the control topics."""


class Observer(Protocol):
    """Observer of a worker, for the invariants."""

    def took(self, worker: "Worker", partitions: frozenset[TopicPartition]) -> None: ...
    def handed(self, worker: "Worker", messages: Sequence[Any]) -> None: ...
    def started(
        self, worker: "Worker", partition: TopicPartition, committed: int | None, offset: int | None
    ) -> None: ...


@dataclass(slots=True)
class Host:
    """Environment of a process; `control` has the records of the control topics."""

    cluster: Cluster
    control: list[Any]
    worker: "Worker"
    keyed: bool = False  # its tables take changes by key
    attempts: int = 0

    def fetcher(self) -> Fetcher:
        return Fetcher(self.cluster)

    def client(self, settings: Any, assignor: Any, listener: Any) -> Client:
        control = settings.kafka_python_config
        own = ClientSettings(
            control["heartbeat_interval_ms"] / 1000,
            settings.session_timeout,
            settings.max_poll_interval,
            settings.instance,
        )
        client = self.worker.client = Client(self.cluster, own, assignor, listener)
        return client

    def attempt(self) -> str:
        self.attempts += 1
        return f"{self.worker.name}-{self.attempts}"


class Following(ControlTopicReader):
    """ControlTopicReader on simulated control topics; no broker tells a lag."""

    def load_lags(self, partition_index: PartitionIndex) -> dict[TopicPartition, int]:
        del partition_index
        return {}

    def _read_topics(self) -> None:
        host: Host = green.process().host
        taken = 0
        while not self._closing.is_set():
            try:
                found = host.cluster.network.call(lambda respond, taken=taken: respond(host.control[taken:]))
            except UnreachableError:
                found = []
            else:
                self._initial_read_done.set()
            for record in found:
                self.apply_record(record)
            taken += len(found)
            self._closing.wait(FOLLOW)


class Watched(Consumer):
    """Consumer that reports the partitions it takes and the records it returns."""

    def __init__(self, config: Any, *, clock: Any = None) -> None:
        super().__init__(config, clock=clock)
        self._worker: Worker = green.process().host.worker
        self._worker.consumer = self

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Any]:
        messages = super().consume(num_messages, timeout)
        self._worker.observer.handed(self._worker, messages)
        self._worker.hiccup()
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
        self._worker.observer.took(self._worker, partitions - self._partitions.owned)
        super()._on_assigned(partitions)


class Stepped(LakeWriter):
    """The lake writer, which may die at each of its steps, and says where it begins to read."""

    def on_assign(self, _consumer: Any, partitions: Sequence[Any]) -> None:
        super().on_assign(_consumer, partitions)
        for raw in partitions:
            self._started(TopicPartition(raw.topic, raw.partition), None)

    def _restart_partition(self, partition: TopicPartition, offset: int) -> None:
        super()._restart_partition(partition, offset)
        self._started(partition, offset)

    def _create_projection(self, table: str) -> Any:
        return build_projection(table) if green.process().host.keyed else super()._create_projection(table)

    def _started(self, partition: TopicPartition, offset: int | None) -> None:
        worker = green.process().host.worker
        worker.observer.started(
            worker, partition, self._positions.committed_offsets([partition]).get(partition), offset
        )

    def _reach_step(self, step: str) -> None:
        green.process().host.worker.crash(step)


@dataclass(slots=True)
class Worker:
    """Process that crashes at step `crash_at` and does not poll for `stall` seconds."""

    name: str
    process: green.Process
    observer: Observer
    stop: green.Event = field(default_factory=green.Event)
    consumer: Watched | None = None
    client: Client | None = None
    crash_at: str = ""
    stall: float = 0.0

    @property
    def alive(self) -> bool:
        return self.process.alive

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions that it considers owned."""
        return frozenset() if self.consumer is None else self.consumer.owned()

    def reads(self) -> bool:
        """Return whether it would return records now."""
        return self.consumer is not None and self.consumer.reads()

    def round_view(self) -> LeaderView | None:
        """Return the load and the plan of the last round that it led."""
        member = None if self.consumer is None else self.consumer._member
        return member._round_view if isinstance(member, GroupMember) else None

    def hiccup(self) -> None:
        """Keep the application from polling for `stall` seconds, once."""
        seconds, self.stall = self.stall, 0.0
        if seconds:
            self.process.hub.sleep(seconds)

    def crash(self, step: str) -> None:
        """End here if this is the step."""
        if not self.process.alive:
            raise green.Killed
        if step == self.crash_at:
            self.process.end()
            raise green.Killed

    def run(self, config: ingest.IngestSettings, lake: Lake) -> None:
        """Run the product's loop."""
        ingest.run_ingest(
            config,
            lake,
            self.stop,  # type: ignore[arg-type] # it is looked at only
            clock=green.Clock(self.process.hub),
        )
