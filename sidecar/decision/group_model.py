"""Derives the facts a decision needs from an observation: owners, loads, missing replicas.

Members unknown to the replica target (dying pods, or others' clients) are foreign: their partitions
count as unowned.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from trimtab.assignor.decisions import place_partitions
from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import ConsumerGroup, Load, Member, PlacementPlan, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.units import format_bytes, format_rate
from trimtab.sidecar.decision.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.decision.hpa_behavior import Direction
from trimtab.sidecar.measurement.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.measurement.observation import GroupState, Observation, ObservedMember


@dataclass(frozen=True, slots=True)
class GroupModel:
    """An observation under a policy and the plan in force."""

    observation: Observation
    policy: AutoscalingPolicy
    plan: GroupPlan
    running: tuple[str, ...]  # live instances, sorted
    members: Mapping[str, ObservedMember]  # ours, by instance

    @property
    def write_rates(self) -> Mapping[TopicPartition, PartitionLoad]:
        """Measured load of each partition."""
        return self.observation.write_rates

    @property
    def is_share_group(self) -> bool:
        """Whether each member gets every partition, and none is owned."""
        return self.observation.group.is_share_group

    @property
    def draining(self) -> tuple[str, ...]:
        """Live instances that the plan in force drains."""
        return tuple(name for name in self.running if name in self.plan.draining)

    @property
    def active(self) -> tuple[str, ...]:
        """Live instances that the plan in force keeps."""
        return tuple(name for name in self.running if name not in self.plan.draining)

    @property
    def unknown_partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions with an unknown write rate."""
        return tuple(sorted(p for p, s in self.write_rates.items() if s.weight is None))

    def find_unjoined_replicas(self, now: float) -> tuple[str, ...]:
        """Return instances started within the startup timeout that have not joined."""
        since = now - self.policy.startup_timeout  # an older one may never join: do not wait for it
        young = {i.name for i in self.observation.replicas or () if i.started_at >= since}
        return tuple(n for n in self.active if n in young and n not in self.members)

    def owned_partitions(self, instance: str) -> frozenset[TopicPartition]:
        """Return the partitions the instance owns now."""
        member = self.members.get(instance)
        return frozenset() if member is None else member.owned_partitions

    def explain_instability(self) -> str | None:
        """Return why the group is not stable; None if it is."""
        group = self.observation.group
        if group.is_share_group:
            return None  # no handovers
        # Draining or stopping during a handover would leave its partitions unread for longer.
        if group.state is not GroupState.STABLE:
            return f"the group is {group.state}"
        owned = {p for member in group.members for p in member.owned_partitions}
        unowned = sorted(p for p in self.write_rates if p not in owned)
        if unowned:
            return f"{len(unowned)} partitions have no owner ({unowned[0]} first)"
        foreign = sorted(
            r.instance or r.id for r in group.members if r.owned_partitions and r.instance not in self.members
        )
        return f"{foreign[0]} owns partitions and is not ours" if foreign else None

    def build_load(self, *, unknown_as_zero: bool = False) -> Load:
        """Return the load of a placement; the assignor estimates unknown rates."""
        default = 0.0 if unknown_as_zero else None
        loads = self.write_rates.items()
        rates = {p: default if s.weight is None else s.weight for p, s in loads}
        lags = {p: s.backlog_records for p, s in loads if s.backlog_records is not None}
        return Load(rates, lags, {p: s.stddev_bytes_per_s for p, s in loads})

    def build_group(self, draining: Iterable[str] = (), *, with_draining: bool = True) -> ConsumerGroup:
        """Return our members, joined or not; `draining` adds to the plan's draining ones."""
        leaving = {*self.draining, *draining}
        names = self.running if with_draining else self.active
        topics = frozenset(p.topic for p in self.write_rates)
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
        partitions = tuple(sorted(self.write_rates))
        return ConsumerGroup(members, partitions, owners, self.observation.replica_racks)

    def map_ordinals(self) -> dict[str, int]:
        """Return the ordinal of each live instance; the target removes the highest first."""
        return {i.name: i.ordinal for i in self.observation.replicas or () if i.alive}

    def compute_loads(self) -> dict[str, float]:
        """Return the known required rate of each live instance, in bytes/s."""
        return {n: sum_rates(self.owned_partitions(n), self.build_load()) for n in self.running}

    def compute_max_fill(self) -> float | None:
        """Return the highest load / capacity of an instance; None without instances."""
        if self.is_share_group:
            room = sum(map(self.capacity_of, self.active))  # the broker keeps all equally full
            return self.compute_total_rate() / room if room else None
        return max((load / self.capacity_of(n) for n, load in self.compute_loads().items()), default=None)

    def compute_total_rate(self) -> float:
        """Return the known required rate of all partitions, in bytes/s."""
        load = self.build_load()
        return sum_rates(load.write_rates, load)

    def capacity_of(self, instance: str) -> float:
        """Return the learned capacity of an instance in bytes/s, else the configured one."""
        return self.plan.capacities.get(instance, self.policy.placement.capacity)

    def compute_overflow(self) -> float:
        """Return the bytes/s above capacity in the current placement."""
        assignment = {name: tuple(self.owned_partitions(name)) for name in self.running}
        return compute_overflow(assignment, self.build_load(), self.capacity_of)

    def explain_pause(self, direction: Direction) -> str | None:
        """Return why this direction is paused; None if it is not."""
        if self.observation.target_status.paused_direction in (direction, "all"):
            return f"{direction} is paused at the target"
        paused = direction in self.policy.paused_directions
        return f"{direction} is paused by the settings" if paused else None

    def describe_oversized_partitions(self) -> str | None:
        """Return the largest partition above a consumer's usable capacity; None without one."""
        rates = {p: s.bytes_per_s or 0.0 for p, s in self.write_rates.items()}
        room = self.policy.usable_capacity
        large = sorted((p for p, r in rates.items() if r > room), key=lambda p: (-rates[p], p))
        if not large or self.is_share_group:
            return None
        more = f" (and {len(large) - 1} more)" if len(large) > 1 else ""
        return (
            f"{large[0]}{more} receives {format_rate(rates[large[0]])}, above the usable "
            f"capacity of a consumer ({format_rate(room)}): split the key or raise the capacity"
        )

    def describe_partition_limit(self, recommended: int | None) -> str | None:
        """Return why a queue on a consumer group cannot use another worker; None if it can."""
        queue = self.observation.queue
        partitions = len(self.write_rates)
        if queue is None or self.is_share_group or recommended is None:
            return None
        if recommended < partitions or partitions >= self.policy.max_replicas:
            return None
        return (
            f"{queue.kind} allows one worker per partition, and the topic has {partitions}: "
            "add partitions, or concurrency per worker"
        )

    def describe_stuck_partitions(self) -> str | None:
        """Return the stuck partition with the largest backlog, and what to check; None without one."""
        stuck = self.observation.stuck_partitions
        if not stuck:
            return None
        backlogs = {p: self.write_rates[p].backlog_bytes or 0.0 for p in stuck}
        first = min(backlogs, key=lambda p: (-backlogs[p], p))
        owners = (m.instance for m in self.observation.group.members if first in m.owned_partitions)
        owner = next(owners, "no consumer")
        window = self.policy.scale_up_evaluation_window
        more = f" (and {len(backlogs) - 1} more)" if len(backlogs) > 1 else ""
        return (
            f"{first}{more} is stuck: {owner} has committed nothing of it for {window:.0f} s, "
            f"{format_bytes(backlogs[first])} waiting: more consumers would not help, check "
            "its log for a record that fails"
        )

    def compute_cross_rack_traffic(self) -> CrossRackTraffic | None:
        """Return the cross-rack traffic of the current placement; None if no member has a rack."""
        members = self.observation.group.members
        racks = self.observation.replica_racks
        return compute_cross_rack_traffic(members, self.write_rates, racks)

    def weighs_racks(self) -> bool:
        """Return whether the heuristic considers racks."""
        return get_heuristic(self.policy.placement.heuristic).weighs_racks

    def capture_placement(self) -> frozenset[tuple[TopicPartition, str]]:
        """Return the current placement as a comparable value."""
        return frozenset((p, name) for name in self.running for p in self.owned_partitions(name))

    def plan_without(self, names: Iterable[str]) -> PlacementPlan:
        """Return the placement the leader would make without `names`."""
        return place_partitions(self.build_group(names), self.build_load(), self.policy.placement)


def build_group_model(observation: Observation, policy: AutoscalingPolicy, plan: GroupPlan) -> GroupModel:
    """Build the model of an observation with known replicas and group."""
    running = tuple(sorted(i.name for i in observation.replicas or () if i.alive))
    members: dict[str, ObservedMember] = {}
    for member in observation.group.members:
        if member.instance in running:  # one instance may have two member ids while it rejoins
            owned = members.get(member.instance, member).owned_partitions
            members[member.instance] = replace(member, owned_partitions=owned | member.owned_partitions)
    return GroupModel(observation, policy, plan, running, members)


def sum_rates(partitions: Iterable[TopicPartition], load: Load) -> float:
    """Return the known rate of these partitions, in bytes/s."""
    return sum(load.write_rates.get(p) or 0.0 for p in partitions)


def compute_overflow(
    assignment: Mapping[str, tuple[TopicPartition, ...]], load: Load, capacity: Callable[[str], float]
) -> float:
    """Return the bytes/s above capacity of consumers with more than one partition."""
    # A partition larger than a consumer overflows in every placement, so it does not count.
    excess = (sum_rates(items, load) - capacity(n) for n, items in assignment.items() if len(items) > 1)
    return sum(max(0.0, rate) for rate in excess)
