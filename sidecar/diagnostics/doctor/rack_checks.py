"""Checks of cross-rack traffic and of fetching from followers (KIP-392). Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.assignor.racks.cross_rack_traffic import CrossRackTraffic
from trimtab.common.units import format_name_list
from trimtab.sidecar.diagnostics.doctor.checks import Finding, FindingLevel, failed, noted, passed

RACKS_CHECK: Final = "racks"
RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def check_racks(traffic: CrossRackTraffic | None, *, is_rack_aware: bool) -> Iterable[Finding]:
    """Check the cross-rack traffic (None if no consumer reports its rack) for a heuristic."""
    if traffic is not None:
        message = f"partitions read from other racks: {traffic.partitions}"
        level = FindingLevel.NOTE if traffic.notes else FindingLevel.OK
        yield Finding(RACKS_CHECK, level, "; ".join((message, *traffic.notes)))
    elif is_rack_aware:
        message = "the heuristic is rack-aware, but no consumer reports its rack"
        yield failed(RACKS_CHECK, message, "set client.rack of the consumers, or use another heuristic")


def check_replica_selectors(selectors: Mapping[int, str | None], *, is_rack_aware: bool) -> Finding:
    """Check each broker's replica.selector.class: "" if unset, None if it is not readable."""
    check = "fetching from followers"
    without = [str(broker) for broker, name in sorted(selectors.items()) if name == ""]
    if without:
        # without a selector a consumer fetches from the leader, whatever its client.rack
        level = FindingLevel.FAILED if is_rack_aware else FindingLevel.NOTE
        brokers = format_name_list(without, len(without))
        message = f"brokers without replica.selector.class: {brokers}; consumers fetch from leaders only"
        return Finding(check, level, message, f"set replica.selector.class={RACK_AWARE_SELECTOR}")
    if None in selectors.values():
        return noted(check, "replica.selector.class is unknown: DescribeConfigs is not allowed")
    return passed(check, "every broker has a replica.selector.class")
