"""What crosses racks in a group as it is, or as it would be. Pure."""

from collections.abc import Iterable, Mapping

from trimtab.assignor.model import Group, Load, Member, TopicPartition
from trimtab.assignor.racks.cross_rack_traffic import Crossing, crossing
from trimtab.common.control_topics.values import PartitionSpeed
from trimtab.sidecar.measurement.observation import Racks, Reader


def across(
    readers: Iterable[Reader], speeds: Mapping[TopicPartition, PartitionSpeed], racks: Racks
) -> Crossing | None:
    """Tell what crosses racks; None where no reader says its rack.

    What is not known of a write speed counts as nothing.
    """
    readers = tuple(readers)
    if not any(reader.rack for reader in readers):
        return None
    topics = frozenset(p.topic for p in speeds)
    members = tuple(Member(r.id, topics, instance=r.instance, rack=r.rack) for r in readers)
    owners = {p: r.id for r in readers for p in r.owned}
    group = Group(members, tuple(speeds), owners, racks)
    return crossing(group, Load({p: s.weight or 0.0 for p, s in speeds.items()}))
