"""How `trimtab doctor` judges racks: who is where, and whether followers may be read. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.units import format_name_list
from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel

RACKS_CHECK: Final = "racks"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def check_racks(crossing: CrossRackTraffic | None, *, is_rack_aware: bool) -> Iterable[Finding]:
    """Judge where consumers and replicas are; `is_rack_aware` where the heuristic goes by that.

    Nothing is found where nobody asks for racks.
    """
    if crossing is None and is_rack_aware:
        yield Finding(
            RACKS_CHECK,
            FindingLevel.WRONG,
            "the heuristic weighs racks, but no consumer says its own",
            "set client.rack of the consumers, or take another heuristic",
        )
    elif crossing is not None:
        said = (f"partitions read from other racks: {crossing.partitions}", *crossing.notes)
        yield Finding(RACKS_CHECK, FindingLevel.NOTE if crossing.notes else FindingLevel.OK, "; ".join(said))


def check_replica_selectors(selectors: Mapping[int, str | None], *, is_rack_aware: bool) -> Finding:
    """Judge each broker's replica.selector.class: "" for none, None where it is not told."""
    part = "fetching from followers"
    without = [str(broker) for broker, name in sorted(selectors.items()) if name == ""]
    if without:
        return Finding(
            part,
            FindingLevel.WRONG if is_rack_aware else FindingLevel.NOTE,
            "brokers without replica.selector.class: "
            f"{format_name_list(without, len(without))}; consumers "
            "read from leaders, so that traffic crosses racks wherever they are",
            f"set replica.selector.class={RACK_AWARE_SELECTOR}",
        )
    if None in selectors.values():
        return Finding(
            part, FindingLevel.NOTE, "DescribeConfigs is not allowed, so whether brokers do it is unknown"
        )
    return Finding(part, FindingLevel.OK, "every broker has a replica.selector.class")
