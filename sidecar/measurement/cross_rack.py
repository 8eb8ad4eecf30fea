"""What crosses racks in a group as it is, or as it would be. Pure."""

from collections.abc import Iterable, Mapping

from trimtab.assignor.model import ConsumerGroup, Load, Member, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic, measure_cross_rack_traffic
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.measurement.observation import ObservedMember, ReplicaRacks


def compute_cross_rack_traffic(
    group_members: Iterable[ObservedMember],
    write_rates: Mapping[TopicPartition, PartitionLoad],
    replica_racks: ReplicaRacks,
) -> CrossRackTraffic | None:
    """Tell what crosses racks; None where no reader says its rack.

    What is not known of a write speed counts as nothing.
    """
    group_members = tuple(group_members)
    if not any(reader.rack for reader in group_members):
        return None
    topics = frozenset(p.topic for p in write_rates)
    members = tuple(Member(r.id, topics, instance=r.instance, rack=r.rack) for r in group_members)
    owners = {p: r.id for r in group_members for p in r.owned_partitions}
    group = ConsumerGroup(members, tuple(write_rates), owners, replica_racks)
    return measure_cross_rack_traffic(
        group, Load({p: s.weight or 0.0 for p, s in write_rates.items()})
    )
