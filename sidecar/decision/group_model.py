"""Derives the facts a decision needs from an observation: owners, loads, missing replicas.

1. Members unknown to the replica target (dying pods, or others' clients) are foreign: their partitions
   count as unowned.
2. A member has the capacity that it states, else the learned one, else that of the settings. A replica
   that has yet to join reads every topic.
3. A partition without an owner, as in a rebalance, counts for its last owner.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from trimtab.assignor.heuristics.registry import get_heuristic
from trimtab.assignor.model import ConsumerGroup, Load, Member, PlacementPlan, TopicPartition
from trimtab.assignor.model.partition_index import PartitionIndex
from trimtab.assignor.modes.decisions import place_partitions, size_group
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.control_topics.plan import GroupPlan
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.common.replica_names import get_replica
from trimtab.common.units import format_count, format_first, format_rate
from trimtab.sidecar.decision.running_replicas import RunningReplicas, describe_crowded_replica, map_members
from trimtab.sidecar.model.autoscaling_policy import AutoscalingPolicy
from trimtab.sidecar.model.cross_rack import compute_cross_rack_traffic
from trimtab.sidecar.model.hpa_behavior import Direction
from trimtab.sidecar.model.observation import GroupState, Observation

# Every new placement interrupts reading: above the headroom it must empty the fullest consumer by this.
MIN_FILL_GAIN: Final = 0.05  # of its capacity
OVERLOAD_SLACK: Final = 1e-6  # relative overload that counts as none: float sums are inexact


@dataclass(frozen=True)  # without slots, which hold no cached property
class GroupModel(RunningReplicas):
    """An observation under a policy and the plan in force."""

    observation: Observation
    policy: AutoscalingPolicy
    plan: GroupPlan
    last_owners: Mapping[TopicPartition, str] = field(default_factory=dict[TopicPartition, str])

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

    def list_stopped_replicas(self) -> tuple[str, ...]:
        """Return the drained replicas that are gone."""
        # One that died stays a member, and an owner, until its session times out.
        members = {r.instance for r in self.observation.group.members}
        known = {*self.running, *members, *map(get_replica, members)}
        return tuple(name for name in self.plan.draining if name not in known)

    def has_room_for_rise(self, tolerance: float) -> bool:
        """Return whether a forecast tells that a count recommended with this tolerance will suffice."""
        rise = self.observation.forecast_rise
        return rise is not None and (1 + rise) * (1 - tolerance) <= 1

    @cached_property
    def unknown_partitions(self) -> tuple[TopicPartition, ...]:
        """Partitions with an unknown write rate."""
        return tuple(sorted(p for p, s in self.write_rates.items() if s.weight is None))

    @property
    def packs_by_capacity(self) -> bool:
        """Whether the heuristic fills consumers up to the headroom, instead of placing by count or lag."""
        return get_heuristic(self.policy.placement.heuristic).packs_by_capacity

    @property
    def fill_limit(self) -> float:
        """Load / capacity to which a placement should fill a consumer."""
        return self.policy.placement.headroom if self.packs_by_capacity else 1.0

    @cached_property
    def sized(self) -> PlacementPlan | None:
        """Placement on as many consumers as the load needs; None if it is unknown, or nothing is owned."""
        if self.is_share_group or len(self.unknown_partitions) == len(self.write_rates):
            return None
        return self.size_active()

    @property
    def unjoined(self) -> tuple[str, ...]:
        """Active instances that have not joined the group."""
        return tuple(name for name in self.active if not self.has_joined(name))

    @property
    def expected_members(self) -> tuple[str, ...]:
        """Consumers that are members or have yet to join; a drained one may have left for good."""
        active = self.list_consumers(self.active)
        return (*active, *(name for name in self.list_consumers(self.draining) if name in self.members))

    def find_unjoined_replicas(self, now: float) -> tuple[str, ...]:
        """Return instances started within the startup timeout that have not joined."""
        # an older one may never join: do not wait for it
        young = self.list_started_since(now - self.policy.startup_timeout)
        return tuple(name for name in self.unjoined if name in young)

    def list_started_since(self, since: float) -> frozenset[str]:
        """Return the replicas started since a time, and their consumers."""
        young = {i.name for i in self.observation.replicas or () if i.started_at >= since}
        return frozenset((*young, *self.list_consumers(young & set(self.running))))

    def lacks_readers(self, now: float) -> bool:
        """Return whether the backlog grows because replicas have started and not joined.

        After the startup timeout it does so while fewer than half have joined: a fault of all.
        """
        # by number: clients of names that the target does not know read, too
        expected = len(self.expected_members)
        enough = expected if self.find_unjoined_replicas(now) else expected / 2
        return len(self.observation.group.members) < enough

    def without_backlog(self) -> "GroupModel":
        """Return the model in which partitions require their write rates alone."""
        rates = {p: replace(s, required_bytes_per_s=None) for p, s in self.write_rates.items()}
        return replace(self, observation=replace(self.observation, write_rates=rates))

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
            what = format_count(len(unowned), "partition has", "partitions have")
            return f"{what} no owner ({unowned[0]} first)"
        if group.unreleased:
            what = format_count(len(group.unreleased), "partition is", "partitions are")
            return f"{what} being handed over ({min(group.unreleased)} first)"
        foreign = sorted(
            r.instance or r.id for r in group.members if r.owned_partitions and r.instance not in self.members
        )
        if not foreign:
            return None
        status = self.observation.target_status
        hint = describe_crowded_replica(group.members, status, self.consumers_per_replica)
        return "; ".join(filter(None, (f"{foreign[0]} owns partitions and is not ours", hint)))

    def build_load(self, *, unknown_as_zero: bool = False) -> Load:
        """Return the load of a placement; the assignor estimates unknown rates."""
        load = self._load
        if not unknown_as_zero or not self.unknown_partitions:
            return load
        return replace(load, write_rates={p: rate or 0.0 for p, rate in load.write_rates.items()})

    @cached_property
    def _load(self) -> Load:
        loads = self.write_rates.items()
        lags = {p: s.backlog_records for p, s in loads if s.backlog_records is not None}
        return Load({p: s.weight for p, s in loads}, lags, {p: s.stddev_bytes_per_s for p, s in loads})

    def build_group(self, draining: Iterable[str] = (), *, with_draining: bool = True) -> ConsumerGroup:
        """Return our members, joined or not; `draining` adds to the plan's draining ones."""
        leaving = set(self.list_consumers({*self.draining, *draining}))
        names = self.list_consumers(self.running if with_draining else self.active)
        members = tuple(
            Member(
                id=name,
                topics=self.topics_of(name),
                capacity=self.capacity_of(name),
                instance=name,
                draining=name in leaving,
                rack=self.members[name].rack if name in self.members else None,
            )
            for name in names
        )
        partitions = tuple(sorted(self.write_rates))
        return ConsumerGroup(members, partitions, self._list_owners(names), self.observation.replica_racks)

    def map_ordinals(self) -> dict[str, int]:
        """Return the ordinal of each live instance; the target removes the highest first."""
        return {i.name: i.ordinal for i in self.observation.replicas or () if i.alive}

    @cached_property
    def loads(self) -> dict[str, float]:
        """Known required rate of each live replica, in bytes/s."""
        return {n: sum_rates(self.owned_partitions(n), self.build_load()) for n in self.running}

    def compute_max_fill(self) -> float | None:
        """Return the highest load / capacity of a consumer now; None if none has joined."""
        if self.is_share_group:
            # the broker keeps all equally full
            room = sum(map(self.capacity_of, self.list_consumers(self.active)))
            return self.compute_total_rate() / room if room else None
        return max(map(self.compute_fill, self.members), default=None)

    def compute_fill(self, consumer: str) -> float:
        """Return load / capacity of a member now."""
        return sum_rates(self.partitions_of(consumer), self._load) / self.capacity_of(consumer)

    def compute_total_rate(self) -> float:
        """Return the known required rate of all partitions, in bytes/s."""
        load = self.build_load()
        return sum_rates(load.write_rates, load)

    def capacity_of(self, instance: str) -> float:
        """Return the capacity of an instance in bytes/s."""
        member = self.members.get(instance)
        if member is not None and member.capacity is not None:
            return member.capacity
        return self.plan.capacities.get(instance, self.policy.placement.capacity)

    def is_limited(self, instance: str) -> bool:
        """Return whether an instance has less capacity, or reads fewer topics, than an added one."""
        smaller = self.capacity_of(instance) < self.policy.placement.capacity
        return smaller or self.topics_of(instance) < self._topics

    def topics_of(self, instance: str) -> frozenset[str]:
        """Return the group's topics that an instance reads."""
        member = self.members.get(instance)
        if member is None or member.topics is None:
            return self._topics
        return (member.topics & self._topics) | self._unread_topics

    @cached_property
    def _topics(self) -> frozenset[str]:
        return frozenset(p.topic for p in self.write_rates)

    @cached_property
    def _unread_topics(self) -> frozenset[str]:
        # A topic that was read once would add a consumer after the other if it took one to read it.
        known = [m.topics for m in self.members.values() if m.topics is not None]
        return self._topics.difference(*known)

    @cached_property
    def fullest(self) -> float:
        """`compute_fullest` of the current placement, which several rules ask for."""
        names = self.list_consumers(self.running)
        return self.compute_fullest({name: self.partitions_of(name) for name in names})

    def compute_fullest(self, assignment: Mapping[str, Collection[TopicPartition]]) -> float:
        """Return the highest load / capacity of a placement.

        A consumer of a single partition that no consumer can hold does not count.
        """
        load = self.build_load()
        room = dict.fromkeys(self._topics, 0.0)  # of the largest reader
        for name in assignment:
            capacity = self.capacity_of(name)
            room |= {topic: capacity for topic in self.topics_of(name) if capacity > room[topic]}
        fullest = 0.0
        for name, owned in assignment.items():
            rate = sum_rates(owned, load)
            if len(owned) > 1 or any(rate <= self.fill_limit * room.get(p.topic, 0.0) for p in owned):
                fullest = max(fullest, rate / self.capacity_of(name))
        return fullest

    def explain_pause(self, direction: Direction) -> str | None:
        """Return why this direction is paused; None if it is not."""
        if self.observation.target_status.paused_direction in (direction, "all"):
            return f"{direction} is paused at the target"
        paused = direction in self.policy.paused_directions
        return f"{direction} is paused by the settings" if paused else None

    def describe_oversized_partitions(self) -> str | None:
        """Return the largest partition certainly above a consumer's usable capacity; None without one."""
        room = self.policy.usable_capacity
        rates = {p: s.bytes_per_s or 0.0 for p, s in self.write_rates.items() if s.least_bytes_per_s > room}
        large = sorted(rates, key=lambda p: (-rates[p], p))
        if not large or self.is_share_group:
            return None
        return (
            f"{format_first(large)} receives {format_rate(rates[large[0]])}, above the usable "
            f"capacity of a consumer ({format_rate(room)}): split the key or raise the capacity"
        )

    def compute_cross_rack_traffic(self) -> CrossRackTraffic | None:
        """Return the cross-rack traffic of the current placement; None if no member has a rack."""
        members = self.observation.group.members
        racks = self.observation.replica_racks
        return compute_cross_rack_traffic(members, self.write_rates, racks)

    def weighs_racks(self) -> bool:
        """Return whether the heuristic considers racks."""
        return get_heuristic(self.policy.placement.heuristic).weighs_racks

    @property
    def is_overfull(self) -> bool:
        """Whether a consumer exceeds the fill limit now."""
        return not self.is_share_group and exceeds(self.fullest, self.fill_limit)

    @cached_property
    def better_placement(self) -> PlacementPlan | None:
        """`find_better_placement` on the active replicas."""
        return self.find_better_placement(self.active)

    def find_better_placement(self, names: Iterable[str]) -> PlacementPlan | None:
        """Return a placement on those of the replicas that have joined with a less full fullest consumer."""
        joined = tuple(name for name in names if self.has_joined(name))
        placed = self._placement if joined == self._joined else self.place_on(joined) if joined else None
        if placed is None:
            return None
        after = self.compute_fullest(placed.assignment)
        gain = self.fullest - after
        return placed if gain >= MIN_FILL_GAIN or not exceeds(after, self.fill_limit) else None

    @cached_property
    def relieving_placement(self) -> PlacementPlan | None:
        """A placement on the active replicas that fills none above its capacity, if one is above it now."""
        placed = self._placement
        if placed is None or not exceeds(self.fullest, 1.0):
            return None
        return None if exceeds(self.compute_fullest(placed.assignment), 1.0) else placed

    @property
    def _joined(self) -> tuple[str, ...]:
        return tuple(name for name in self.active if self.has_joined(name))

    @cached_property
    def _placement(self) -> PlacementPlan | None:
        """The placement on the active replicas that have joined; several rules ask for it."""
        return self.place_on(self._joined) if self._joined else None

    def find_last_owners(self) -> dict[TopicPartition, str]:
        """Return the last known owner of each partition among the consumers of live replicas."""
        return self._list_owners(self.list_consumers(self.running))

    def _list_owners(self, names: Collection[str]) -> dict[TopicPartition, str]:
        there = set(names)
        last = {p: name for p, name in self.last_owners.items() if name in there and p in self.write_rates}
        return last | {p: name for name in names for p in self.partitions_of(name)}

    def capture_placement(self) -> frozenset[tuple[TopicPartition, str]]:
        """Return the current placement as a comparable value."""
        return frozenset((p, name) for name, member in self.members.items() for p in member.owned_partitions)

    @cached_property
    def _partition_index(self) -> PartitionIndex:
        return PartitionIndex.from_partitions(self.write_rates)

    def size_active(self, share: float = 1.0) -> PlacementPlan:
        """Return the placement on the active consumers and added ones, filled to `share` of the headroom."""
        policy = self.policy.placement
        policy = replace(policy, headroom=min(1.0, policy.headroom * share))
        # Unknown partitions weigh nothing here: an estimate must not add replicas.
        group, load = self.build_group(with_draining=False), self.build_load(unknown_as_zero=True)
        return size_group(group, load, policy, partition_index=self._partition_index)

    def bound_replicas(self, share: float) -> int:
        """Return a count that `size_active` needs at least, without its search."""
        policy = self.policy.placement
        largest = max([policy.capacity, *map(self.capacity_of, self.list_consumers(self.active))])
        room = largest * min(1.0, policy.headroom * share)
        # A partition that no consumer can hold has one of its own.
        filled = math.fsum(min(s.weight or 0.0, room) for s in self.write_rates.values()) / room
        return self.count_replicas(math.ceil(filled * (1 - OVERLOAD_SLACK)))

    def place_on(self, replicas: Collection[str], added: int = 0) -> PlacementPlan:
        """Return the placement on these replicas' consumers and on added ones: "+1", "+2" and so on."""
        added *= self.consumers_per_replica
        wanted = {*self.list_consumers(replicas), *(f"+{place + 1}" for place in range(added))}
        if self.sized is not None and not self.draining and not self.unknown_partitions:
            used = {name for name, owned in self.sized.assignment.items() if owned}
            if used == wanted and not exceeds(self.compute_fullest(self.sized.assignment), self.fill_limit):
                return self.sized  # what is done is what was sized
        group = self.build_group(set(self.running).difference(replicas))
        policy, index = self.policy.placement, self._partition_index
        return place_partitions(group, self.build_load(), policy, added, partition_index=index)


def build_group_model(
    observation: Observation,
    policy: AutoscalingPolicy,
    plan: GroupPlan,
    last_owners: Mapping[TopicPartition, str] | None = None,
) -> GroupModel:
    """Build the model of an observation with known replicas and group."""
    running = (i.name for i in observation.replicas or () if i.alive)
    mapped = map_members(observation.group.members, running, policy.consumers_per_replica)
    ours = (mapped.running, mapped.members, mapped.consumers_per_replica)
    return GroupModel(*ours, observation, policy, plan, last_owners or {})


def sum_rates(partitions: Iterable[TopicPartition], load: Load) -> float:
    """Return the known rate of these partitions, in bytes/s."""
    # exact, so that the order of a set, which differs by process, decides no tie
    return math.fsum(load.write_rates.get(p) or 0.0 for p in partitions)


def exceeds(fill: float, limit: float) -> bool:
    """Return whether a load / capacity is above a limit; float sums are inexact."""
    return fill > limit * (1 + OVERLOAD_SLACK)
