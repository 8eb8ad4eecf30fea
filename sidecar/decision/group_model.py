"""An observation as a decision needs it: who of ours reads what, how full each is, who is missing.

Members whose instance the replica target does not know (strangers: dying ones, or somebody else's)
are not counted on: what they read counts as read by nobody.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from trimtab.assignor.decisions import place_partitions
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import ConsumerGroup, Load, Member, PlacementPlan, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.units import format_bytes, format_rate
from trimtab.sidecar.decision.hpa_behavior import Direction
from trimtab.sidecar.decision.scaling_policy import AutoscalingPolicy
from trimtab.sidecar.measurement.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.measurement.observation import GroupState, Observation, ObservedMember


@dataclass(frozen=True, slots=True)
class GroupModel:
    """What follows from an observation under a policy, with the plan in force."""

    observation: Observation
    policy: AutoscalingPolicy
    plan: GroupPlan
    running: tuple[str, ...]  # live instances, sorted
    members: Mapping[str, ObservedMember]  # ours, by instance

    @property
    def draining(self) -> tuple[str, ...]:
        """Live instances that the plan in force drains."""
        return tuple(name for name in self.running if name in self.plan.draining)

    @property
    def active(self) -> tuple[str, ...]:
        """Live instances that are to stay."""
        return tuple(name for name in self.running if name not in self.plan.draining)

    @property
    def unknown_partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions whose write speed is not known."""
        return tuple(sorted(p for p, s in self.observation.write_rates.items() if s.weight is None))

    def find_unjoined_replicas(self, now: float) -> tuple[str, ...]:
        """Return instances that were started lately and have not joined yet."""
        horizon = now - self.policy.startup_timeout
        young = {i.name for i in self.observation.replicas or () if i.started_at >= horizon}
        return tuple(n for n in self.active if n in young and n not in self.members)

    def owned_partitions(self, instance: str) -> frozenset[TopicPartition]:
        """Return what the instance reads now."""
        reader = self.members.get(instance)
        return frozenset() if reader is None else reader.owned_partitions

    def explain_instability(self) -> str | None:
        """Tell why the group cannot be trusted to be at rest; None where it is."""
        group = self.observation.group
        if group.is_share_group:
            return None  # nothing is handed over
        if group.state is not GroupState.STABLE:
            return f"the group is {group.state}"
        read = {p for reader in group.members for p in reader.owned_partitions}
        unread = sorted(p for p in self.observation.write_rates if p not in read)
        if unread:
            return f"{len(unread)} partitions have no owner ({unread[0]} first)"
        strangers = sorted(
            r.instance or r.id
            for r in group.members
            if r.owned_partitions and r.instance not in self.members
        )
        return f"{strangers[0]} reads and is not ours" if strangers else None

    def build_load(self, *, unknown_as_zero: bool = False) -> Load:
        """Return what a placement weighs; the assignor guesses what is not known."""
        instead = 0.0 if unknown_as_zero else None
        speeds = {p: s.weight for p, s in self.observation.write_rates.items()}
        lags = {
            p: s.backlog_records
            for p, s in self.observation.write_rates.items()
            if s.backlog_records is not None
        }
        deviations = {p: s.stddev_bytes_per_s for p, s in self.observation.write_rates.items()}
        return Load({p: instead if w is None else w for p, w in speeds.items()}, lags, deviations)

    def build_group(
        self, draining: Iterable[str] = (), *, with_draining: bool = True
    ) -> ConsumerGroup:
        """Return our members, with these and the plan's draining; pending ones count."""
        leaving = {*self.draining, *draining}
        names = self.running if with_draining else self.active
        topics = frozenset(p.topic for p in self.observation.write_rates)
        members = tuple(
            Member(
                id=name,
                topics=topics,
                capacity=self.plan.capacities.get(name),
                instance=name,
                draining=name in leaving,
                rack=self.members[name].rack if name in self.members else None,
            )
            for name in names
        )
        owners = {p: name for name in names for p in self.owned_partitions(name)}
        return ConsumerGroup(
            members,
            tuple(sorted(self.observation.write_rates)),
            owners,
            self.observation.replica_racks,
        )

    def map_ordinals(self) -> dict[str, int]:
        """Return the ordinal of each live instance: the highest is the first that can go."""
        return {i.name: i.ordinal for i in self.observation.replicas or () if i.alive}

    def compute_loads(self) -> dict[str, float]:
        """Return the known needed rate of each live instance, in bytes/s."""
        return {n: sum_rates(self.owned_partitions(n), self.build_load()) for n in self.running}

    def compute_max_fill(self) -> float | None:
        """Return the fullest instance's load / capacity; None where nobody reads anything.

        Where all are given messages of all partitions, they are taken to be equally full.
        """
        if self.observation.group.is_share_group:
            room = sum(map(self.capacity_of, self.active))
            return self.compute_total_rate() / room if room else None
        return max(
            (load / self.capacity_of(n) for n, load in self.compute_loads().items()), default=None
        )

    def compute_total_rate(self) -> float:
        """Return the known needed rate of all partitions, in bytes/s."""
        load = self.build_load()
        return sum_rates(load.write_rates, load)

    def capacity_of(self, instance: str) -> float:
        """Return the bytes/s that an instance sustains: as learned, else as configured."""
        return self.plan.capacities.get(instance, self.policy.placement.capacity)

    def compute_overflow(self) -> float:
        """Return the bytes/s above capacity that the present placement leaves."""
        held = {name: tuple(self.owned_partitions(name)) for name in self.running}
        return compute_overflow(held, self.build_load(), self.capacity_of)

    def explain_pause(self, direction: Direction) -> str | None:
        """Tell who wants nothing scaled in this direction; None where nobody does."""
        if self.observation.external_scaling.paused_direction in (direction, "all"):
            return f"scaling {direction} is paused at the target"
        return (
            f"scaling {direction} is paused by the settings"
            if direction in self.policy.paused_directions
            else None
        )

    def describe_oversized_partitions(self) -> tuple[str, ...]:
        """Name the largest partition of those that write more than a consumer may take, and why."""
        speeds = {p: s.bytes_per_s or 0.0 for p, s in self.observation.write_rates.items()}
        room = self.policy.usable_capacity
        large = sorted((p for p, s in speeds.items() if s > room), key=lambda p: (-speeds[p], p))
        if not large or self.observation.group.is_share_group:
            return ()
        more = f" (and {len(large) - 1} more like it)" if len(large) > 1 else ""
        said = (
            f"{large[0]}{more} writes {format_rate(speeds[large[0]])}, more than a consumer may "
            f"take ({format_rate(room)}): split the key or raise the capacity"
        )
        return (said,)

    def describe_partition_limit(self, recommended: int | None) -> tuple[str, ...]:
        """Say that a queue of a consumer group has no partition left for one worker more."""
        queue, partitions = self.observation.queue, len(self.observation.write_rates)
        if (
            queue is None
            or self.observation.group.is_share_group
            or recommended is None
            or recommended < partitions
        ):
            return ()
        if partitions >= self.policy.max_replicas:
            return ()
        said = (
            f"{queue.kind} has at most one worker a partition, and there are {partitions}: "
            "give the topic more partitions, or the worker more concurrency"
        )
        return (said,)

    def describe_stuck_partitions(self) -> tuple[str, ...]:
        """Name the partition of those that are stuck in which most waits, and what to look for."""
        waits = {
            p: self.observation.write_rates[p].backlog_bytes or 0.0
            for p in self.observation.stuck_partitions
        }
        if not waits:
            return ()
        first = min(waits, key=lambda p: (-waits[p], p))
        reader = next(
            (r.instance for r in self.observation.group.members if first in r.owned_partitions),
            "nobody",
        )
        more = f" (and {len(waits) - 1} more like it)" if len(waits) > 1 else ""
        said = (
            f"{first}{more} is stuck: {reader} has committed nothing of it for "
            f"{self.policy.scale_up_evaluation_window:.0f} s, {format_bytes(waits[first])} wait: more consumers "
            "would not help, look in its log for a record that it cannot handle"
        )
        return (said,)

    def compute_cross_rack_traffic(self) -> CrossRackTraffic | None:
        """Tell what crosses racks as it is; None where nobody says a rack."""
        return compute_cross_rack_traffic(
            self.observation.group.members,
            self.observation.write_rates,
            self.observation.replica_racks,
        )

    def weighs_racks(self) -> bool:
        """Tell whether placements go by racks, too."""
        return get_heuristic(self.policy.placement.heuristic).weighs_racks

    def capture_placement(self) -> frozenset[tuple[TopicPartition, str]]:
        """Return the present placement as one comparable value."""
        return frozenset((p, name) for name in self.running for p in self.owned_partitions(name))

    def plan_without(self, names: Iterable[str]) -> PlacementPlan:
        """Return the placement that the leader would make if these were drained."""
        return place_partitions(self.build_group(names), self.build_load(), self.policy.placement)


def build_group_model(
    observation: Observation, policy: AutoscalingPolicy, plan: GroupPlan
) -> GroupModel:
    """Read an observation whose replicas and group are known."""
    running = tuple(sorted(i.name for i in observation.replicas or () if i.alive))
    readers: dict[str, ObservedMember] = {}
    for reader in observation.group.members:
        if reader.instance in running:
            held = readers.get(reader.instance, reader).owned_partitions
            readers[reader.instance] = replace(
                reader, owned_partitions=held | reader.owned_partitions
            )
    return GroupModel(observation, policy, plan, running, readers)


def sum_rates(partitions: Iterable[TopicPartition], load: Load) -> float:
    """Return the known rate of these partitions, in bytes/s."""
    return sum(load.write_rates.get(p) or 0.0 for p in partitions)


def compute_overflow(
    assignment: Mapping[str, tuple[TopicPartition, ...]],
    load: Load,
    capacity: Callable[[str], float],
) -> float:
    """Return the bytes/s above capacity of consumers that could hand something over.

    A consumer with one partition cannot: no placement cures a partition larger than a consumer.
    """
    over = (
        sum_rates(items, load) - capacity(n) for n, items in assignment.items() if len(items) > 1
    )
    return sum(max(0.0, excess) for excess in over)
