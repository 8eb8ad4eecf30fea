"""How `trimtab doctor` judges racks: who is where, and whether followers may be read. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from trimtab.assignor.racks.cross_rack_traffic import Crossing
from trimtab.common.units import listed
from trimtab.sidecar.diagnostics.doctor.checks import Finding, Level

PART: Final = "racks"
SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def of_racks(crossing: Crossing | None, *, weighed: bool) -> Iterable[Finding]:
    """Judge where consumers and replicas are; `weighed` where the heuristic goes by that.

    Nothing is found where nobody asks for racks.
    """
    if crossing is None and weighed:
        yield Finding(
            PART,
            Level.WRONG,
            "the heuristic weighs racks, but no consumer says its own",
            "set client.rack of the consumers, or take another heuristic",
        )
    elif crossing is not None:
        said = (f"partitions read from other racks: {crossing.partitions}", *crossing.notes)
        yield Finding(PART, Level.NOTE if crossing.notes else Level.OK, "; ".join(said))


def of_selectors(selectors: Mapping[int, str | None], *, weighed: bool) -> Finding:
    """Judge each broker's replica.selector.class: "" for none, None where it is not told."""
    part = "fetching from followers"
    without = [str(broker) for broker, name in sorted(selectors.items()) if name == ""]
    if without:
        return Finding(
            part,
            Level.WRONG if weighed else Level.NOTE,
            f"brokers without replica.selector.class: {listed(without, len(without))}; consumers "
            "read from leaders, so that traffic crosses racks wherever they are",
            f"set replica.selector.class={SELECTOR}",
        )
    if None in selectors.values():
        return Finding(
            part, Level.NOTE, "DescribeConfigs is not allowed, so whether brokers do it is unknown"
        )
    return Finding(part, Level.OK, "every broker has a replica.selector.class")
