"""The sidecar: the product's loop on a simulated group, control topics and replicas."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from trimtab.assignor.model import TopicPartition
from trimtab.assignor.rebalance.consumer_protocol import SubscriptionDecoder
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.topics import PLAN_TOPIC, WRITE_RATE_TOPIC
from trimtab.common.control_topics.write_rates import PartitionLoad, TopicWriteRates
from trimtab.sidecar.errors import BrokerTimeoutError
from trimtab.sidecar.kafka.broker_client import parse_member
from trimtab.sidecar.loop.control_loop import ControlLoop, LoopCollaborators
from trimtab.sidecar.measurement.load_estimator import LoadEstimate
from trimtab.sidecar.model.observation import GroupState, ObservedGroup, ReplicaInstance
from trimtab.sidecar.readings.group_monitor import GroupMeasurement
from trimtab.sidecar.readings.promised_partitions import PromiseTracker
from trimtab.sidecar.records.iteration_report import Reporter
from trimtab.sidecar.settings.settings import SidecarSettings
from trimtab.testing.simulation import broker, green
from trimtab.testing.simulation.membership import Cluster
from trimtab.testing.simulation.network import UnreachableError

STATES: Final = {
    broker.EMPTY: GroupState.EMPTY,
    broker.STABLE: GroupState.STABLE,
    broker.PREPARING: GroupState.REBALANCING,
    broker.COMPLETING: GroupState.REBALANCING,
}


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a control topic, as the product's reader takes it."""

    name: str
    content: bytes

    def topic(self) -> str:
        return self.name

    def value(self) -> bytes:
        return self.content

    def offset(self) -> int:
        return 0


class Board:
    """The control topics; a value published without a response may be there."""

    def __init__(self, cluster: Cluster, control: list[Record]) -> None:
        self._at = cluster
        self._control = control

    def read_plan(self) -> GroupPlan | None:
        plans = _asked(self._at, lambda: [r for r in self._control if r.name == PLAN_TOPIC])
        return GroupPlan.decode(plans[-1].content) if plans else None

    def publish(self, values: Iterable[GroupPlan | TopicWriteRates]) -> None:
        records = [
            Record(PLAN_TOPIC if isinstance(v, GroupPlan) else WRITE_RATE_TOPIC, v.encode()) for v in values
        ]
        _asked(self._at, lambda: self._control.extend(records))


class Watch:
    """The monitor: the group as its coordinator describes it, and the real write rates."""

    def __init__(
        self, cluster: Cluster, write_rates: Callable[[], Mapping[TopicPartition, PartitionLoad]]
    ) -> None:
        self._at = cluster
        self._write_rates = write_rates
        self._promises = PromiseTracker()

    def describe_group(self) -> ObservedGroup:
        return self._view()[0]

    def measure(self) -> GroupMeasurement:
        group, errors = self._view()
        write_rates = dict(self._write_rates())
        if errors:
            write_rates = dict.fromkeys(write_rates, PartitionLoad())
        metadata = {p: text for p, (_, text) in self._at.group.offsets.items()}
        now = self._at.hub.now
        unreleased = self._promises.list_unreleased(group.members, metadata, green.EPOCH + now, now)
        group = replace(group, unreleased=unreleased)
        return GroupMeasurement(LoadEstimate(write_rates), group, {}, errors)

    def _view(self) -> tuple[ObservedGroup, tuple[str, ...]]:
        try:
            view: ObservedGroup = _asked(self._at, lambda: described(self._at.group))
        except BrokerTimeoutError as error:
            return ObservedGroup(), (str(error),)
        return view, ()


def described(group: broker.Group) -> ObservedGroup:
    """Return the group as the admin client would."""
    decoder = SubscriptionDecoder()
    readers = [
        parse_member(name, client, "", None, data, decoder) for name, client, data in group.described()
    ]
    return ObservedGroup(STATES[group.state], tuple(sorted(readers, key=lambda r: r.id)))


def _asked(cluster: Cluster, operation: Callable[[], Any]) -> Any:
    try:
        return cluster.network.call(lambda respond: respond(operation()), twice=False)
    except UnreachableError:
        raise BrokerTimeoutError("simulated: no answer") from None


class Target:
    """The replica target; the history learns of each replica that starts or stops."""

    advisory = False

    def __init__(
        self,
        listed: Callable[[], tuple[ReplicaInstance, ...]],
        begin: Callable[[], str],
        end: Callable[[str], None],
    ) -> None:
        self._listed, self._begin, self._end = listed, begin, end

    def list_replicas(self) -> tuple[ReplicaInstance, ...]:
        return self._listed()

    def add_replicas(self, count: int) -> tuple[str, ...]:
        return tuple(self._begin() for _ in range(count))

    def stop_replica(self, name: str) -> None:
        self._end(name)


def run(
    settings: SidecarSettings, parts: tuple[Watch, Board, Target], reporter: Reporter, clock: green.Clock
) -> None:
    """Run the product's own loop until the process is killed."""
    watch, board, target = parts
    hub = green.process().hub
    loop = ControlLoop(settings, LoopCollaborators(watch, board, target, (reporter,)), clock)

    def wait(seconds: float) -> bool:
        hub.sleep(max(0.01, seconds))
        return False

    loop.run(wait)
