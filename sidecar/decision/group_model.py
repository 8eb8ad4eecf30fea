"""An observation as a decision needs it: who of ours reads what, how full each is, who is missing.

Members whose instance the replica target does not know (strangers: dying ones, or somebody else's)
are not counted on: what they read counts as read by nobody.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from trimtab.assignor.decisions import place
from trimtab.assignor.heuristics.registry import get
from trimtab.assignor.model import Group, Load, Member, Plan, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import Crossing
from trimtab.common.control_topics.values import GroupPlan
from trimtab.common.units import format_bytes, format_rate
from trimtab.sidecar.decision.hpa_behavior import Way
from trimtab.sidecar.decision.scaling_policy import ScalePolicy
from trimtab.sidecar.measurement.cross_rack import across
from trimtab.sidecar.measurement.observation import GroupState, Observation, Reader


@dataclass(frozen=True, slots=True)
class Situation:
    """What follows from an observation under a policy, with the plan in force."""

    seen: Observation
    policy: ScalePolicy
    plan: GroupPlan
    running: tuple[str, ...]  # live instances, sorted
    readers: Mapping[str, Reader]  # ours, by instance

    @property
    def draining(self) -> tuple[str, ...]:
        """Live instances that the plan in force drains."""
        return tuple(name for name in self.running if name in self.plan.draining)

    @property
    def active(self) -> tuple[str, ...]:
        """Live instances that are to stay."""
        return tuple(name for name in self.running if name not in self.plan.draining)

    @property
    def unknown(self) -> tuple[TopicPartition, ...]:
        """Partitions whose write speed is not known."""
        return tuple(sorted(p for p, s in self.seen.speeds.items() if s.weight is None))

    def pending(self, now: float) -> tuple[str, ...]:
        """Return instances that were started lately and have not joined yet."""
        horizon = now - self.policy.start_grace
        young = {i.name for i in self.seen.replicas or () if i.started >= horizon}
        return tuple(n for n in self.active if n in young and n not in self.readers)

    def owned(self, instance: str) -> frozenset[TopicPartition]:
        """Return what the instance reads now."""
        reader = self.readers.get(instance)
        return frozenset() if reader is None else reader.owned

    def unsettled(self) -> str | None:
        """Tell why the group cannot be trusted to be at rest; None where it is."""
        group = self.seen.group
        if group.shared:
            return None  # nothing is handed over
        if group.state is not GroupState.STABLE:
            return f"the group is {group.state}"
        read = {p for reader in group.readers for p in reader.owned}
        unread = sorted(p for p in self.seen.speeds if p not in read)
        if unread:
            return f"{len(unread)} partitions have no owner ({unread[0]} first)"
        strangers = sorted(
            r.instance or r.id for r in group.readers if r.owned and r.instance not in self.readers
        )
        return f"{strangers[0]} reads and is not ours" if strangers else None

    def load(self, *, unknown_is_nothing: bool = False) -> Load:
        """Return what a placement weighs; the assignor guesses what is not known."""
        instead = 0.0 if unknown_is_nothing else None
        speeds = {p: s.weight for p, s in self.seen.speeds.items()}
        lags = {
            p: s.backlog_records
            for p, s in self.seen.speeds.items()
            if s.backlog_records is not None
        }
        deviations = {p: s.deviation_bytes_per_s for p, s in self.seen.speeds.items()}
        return Load({p: instead if w is None else w for p, w in speeds.items()}, lags, deviations)

    def group(self, draining: Iterable[str] = (), *, with_draining: bool = True) -> Group:
        """Return our members, with these and the plan's draining; pending ones count."""
        leaving = {*self.draining, *draining}
        names = self.running if with_draining else self.active
        topics = frozenset(p.topic for p in self.seen.speeds)
        members = tuple(
            Member(
                id=name,
                topics=topics,
                capacity=self.plan.capacities.get(name),
                instance=name,
                draining=name in leaving,
                rack=self.readers[name].rack if name in self.readers else None,
            )
            for name in names
        )
        owners = {p: name for name in names for p in self.owned(name)}
        return Group(members, tuple(sorted(self.seen.speeds)), owners, self.seen.racks)

    def ordinals(self) -> dict[str, int]:
        """Return the ordinal of each live instance: the highest is the first that can go."""
        return {i.name: i.ordinal for i in self.seen.replicas or () if i.alive}

    def loads(self) -> dict[str, float]:
        """Return the known needed rate of each live instance, in bytes/s."""
        return {n: weigh(self.owned(n), self.load()) for n in self.running}

    def fill(self) -> float | None:
        """Return the fullest instance's load / capacity; None where nobody reads anything.

        Where all are given messages of all partitions, they are taken to be equally full.
        """
        if self.seen.group.shared:
            room = sum(map(self.capacity, self.active))
            return self.total() / room if room else None
        return max((load / self.capacity(n) for n, load in self.loads().items()), default=None)

    def total(self) -> float:
        """Return the known needed rate of all partitions, in bytes/s."""
        load = self.load()
        return weigh(load.speeds, load)

    def capacity(self, instance: str) -> float:
        """Return the bytes/s that an instance sustains: as learned, else as configured."""
        return self.plan.capacities.get(instance, self.policy.placement.capacity)

    def overflow(self) -> float:
        """Return the bytes/s above capacity that the present placement leaves."""
        held = {name: tuple(self.owned(name)) for name in self.running}
        return overflow(held, self.load(), self.capacity)

    def paused(self, way: Way) -> str | None:
        """Tell who wants nothing scaled in this direction; None where nobody does."""
        if self.seen.outside.pause in (way, "all"):
            return f"scaling {way} is paused at the target"
        return f"scaling {way} is paused by the settings" if way in self.policy.pause else None

    def oversize(self) -> tuple[str, ...]:
        """Name the largest partition of those that write more than a consumer may take, and why."""
        speeds = {p: s.bytes_per_s or 0.0 for p, s in self.seen.speeds.items()}
        room = self.policy.room
        large = sorted((p for p, s in speeds.items() if s > room), key=lambda p: (-speeds[p], p))
        if not large or self.seen.group.shared:
            return ()
        more = f" (and {len(large) - 1} more like it)" if len(large) > 1 else ""
        said = (
            f"{large[0]}{more} writes {format_rate(speeds[large[0]])}, more than a consumer may "
            f"take ({format_rate(room)}): split the key or raise the capacity"
        )
        return (said,)

    def narrow(self, wished: int | None) -> tuple[str, ...]:
        """Say that a queue of a consumer group has no partition left for one worker more."""
        queue, partitions = self.seen.queue, len(self.seen.speeds)
        if queue is None or self.seen.group.shared or wished is None or wished < partitions:
            return ()
        if partitions >= self.policy.most:
            return ()
        said = (
            f"{queue.kind} has at most one worker a partition, and there are {partitions}: "
            "give the topic more partitions, or the worker more concurrency"
        )
        return (said,)

    def stuck(self) -> tuple[str, ...]:
        """Name the partition of those that are stuck in which most waits, and what to look for."""
        waits = {p: self.seen.speeds[p].backlog_bytes or 0.0 for p in self.seen.stuck}
        if not waits:
            return ()
        first = min(waits, key=lambda p: (-waits[p], p))
        reader = next((r.instance for r in self.seen.group.readers if first in r.owned), "nobody")
        more = f" (and {len(waits) - 1} more like it)" if len(waits) > 1 else ""
        said = (
            f"{first}{more} is stuck: {reader} has committed nothing of it for "
            f"{self.policy.effect_window:.0f} s, {format_bytes(waits[first])} wait: more consumers "
            "would not help, look in its log for a record that it cannot handle"
        )
        return (said,)

    def across(self) -> Crossing | None:
        """Tell what crosses racks as it is; None where nobody says a rack."""
        return across(self.seen.group.readers, self.seen.speeds, self.seen.racks)

    def weighs_racks(self) -> bool:
        """Tell whether placements go by racks, too."""
        return get(self.policy.placement.heuristic).racks

    def placed(self) -> frozenset[tuple[TopicPartition, str]]:
        """Return the present placement as one comparable value."""
        return frozenset((p, name) for name in self.running for p in self.owned(name))

    def without(self, names: Iterable[str]) -> Plan:
        """Return the placement that the leader would make if these were drained."""
        return place(self.group(names), self.load(), self.policy.placement)


def situation(seen: Observation, policy: ScalePolicy, plan: GroupPlan) -> Situation:
    """Read an observation whose replicas and group are known."""
    running = tuple(sorted(i.name for i in seen.replicas or () if i.alive))
    readers: dict[str, Reader] = {}
    for reader in seen.group.readers:
        if reader.instance in running:
            held = readers.get(reader.instance, reader).owned
            readers[reader.instance] = replace(reader, owned=held | reader.owned)
    return Situation(seen, policy, plan, running, readers)


def weigh(partitions: Iterable[TopicPartition], load: Load) -> float:
    """Return the known rate of these partitions, in bytes/s."""
    return sum(load.speeds.get(p) or 0.0 for p in partitions)


def overflow(
    held: Mapping[str, tuple[TopicPartition, ...]], load: Load, capacity: Callable[[str], float]
) -> float:
    """Return the bytes/s above capacity of consumers that could hand something over.

    A consumer with one partition cannot: no placement cures a partition larger than a consumer.
    """
    over = (weigh(items, load) - capacity(n) for n, items in held.items() if len(items) > 1)
    return sum(max(0.0, excess) for excess in over)
