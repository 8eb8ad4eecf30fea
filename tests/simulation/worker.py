"""Worker: the loop of `trimtab ingest`, with its consumer and lake writer, in one process."""

# pyright: reportPrivateUsage=false
# the plan that a member led its last round on is its own
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from simulation.keyed import build_projection
from trimtab.assignor.rebalance.leader import LeaderView
from trimtab.assignor.topic_partition import TopicPartition
from trimtab.consumer_sdk.lake import ingest
from trimtab.consumer_sdk.lake.interfaces import Lake
from trimtab.consumer_sdk.lake.writer.writer import LakeWriter
from trimtab.consumer_sdk.membership.classic.member import GroupMember
from trimtab.testing.simulation import green
from trimtab.testing.simulation.host import Host, ObservedConsumer


class Observer(Protocol):
    """Observer of a worker, for the invariants."""

    def took(self, worker: "Worker", partitions: frozenset[TopicPartition]) -> None: ...
    def handed(self, worker: "Worker", messages: Sequence[Any]) -> None: ...
    def started(
        self, worker: "Worker", partition: TopicPartition, committed: int | None, offset: int | None
    ) -> None: ...


@dataclass(slots=True)
class WorkerHost(Host):
    """Environment of a worker, which it reports to the observer."""

    worker: "Worker" = field(kw_only=True)
    keyed: bool = False  # its tables take changes by key
    attempts: int = 0

    def attempt(self) -> str:
        self.attempts += 1
        return f"{self.worker.name}-{self.attempts}"

    def took(self, partitions: frozenset[TopicPartition]) -> None:
        self.worker.observer.took(self.worker, partitions)

    def handed(self, messages: Sequence[Any]) -> None:
        self.worker.observer.handed(self.worker, messages)
        self.worker.hiccup()


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
    crash_at: str = ""
    stall: float = 0.0

    @property
    def alive(self) -> bool:
        return self.process.alive

    @property
    def consumer(self) -> ObservedConsumer | None:
        host: Host | None = self.process.host
        return None if host is None else host.consumer

    def owned(self) -> frozenset[TopicPartition]:
        """Return the partitions that it considers owned."""
        return frozenset() if self.consumer is None else self.consumer.owned()

    def reads(self) -> bool:
        """Return whether it would return records now."""
        return self.consumer is not None and self.consumer.reads()

    def member_id(self) -> str:
        """Return its member id in the group."""
        member = None if self.consumer is None else self.consumer._member
        return "" if member is None else member.member_id

    def round_view(self) -> LeaderView | None:
        """Return the load and the plan of the last round that it led."""
        member = None if self.consumer is None else self.consumer._member
        return member._round_view if isinstance(member, GroupMember) else None

    def knew_partition(self, partition: TopicPartition) -> bool:
        """Return whether the metadata of the last round that it led has the partition.

        Newer metadata may arrive before its assignments reach the coordinator, and starts another round.
        """
        member = None if self.consumer is None else self.consumer._member
        if not isinstance(member, GroupMember):
            return False
        return partition.partition in member.client.partitions_when_leading(partition.topic)

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
