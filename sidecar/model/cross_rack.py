"""Cross-rack traffic of an observed group. Pure."""

from collections.abc import Iterable, Mapping

from trimtab.assignor.model import ConsumerGroup, Load, Member, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic, measure_cross_rack_traffic
from trimtab.common.control_topics.write_rates import PartitionLoad
from trimtab.sidecar.model.observation import ObservedMember, ReplicaRacks


def compute_cross_rack_traffic(
    group_members: Iterable[ObservedMember],
    write_rates: Mapping[TopicPartition, PartitionLoad],
    replica_racks: ReplicaRacks,
) -> CrossRackTraffic | None:
    """Return the cross-rack traffic, with unknown write rates as 0; None if no member has a rack."""
    group_members = tuple(group_members)
    if not any(member.rack for member in group_members):
        return None  # clients without client.rack: all traffic would seem to cross racks
    topics = frozenset(p.topic for p in write_rates)
    members = tuple(Member(m.id, topics, instance=m.instance, rack=m.rack) for m in group_members)
    owners = {p: m.id for m in group_members for p in m.owned_partitions}
    group = ConsumerGroup(members, tuple(write_rates), owners, replica_racks)
    return measure_cross_rack_traffic(group, Load({p: s.weight or 0.0 for p, s in write_rates.items()}))
