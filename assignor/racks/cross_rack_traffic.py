"""What crosses racks as things are, whatever heuristic brought it about."""

from dataclasses import dataclass

from trimtab.assignor.model import Group, Load, Policy
from trimtab.assignor.problem import frame
from trimtab.assignor.racks.rack_warnings import rack_notes, stranded, unmanned


@dataclass(frozen=True, slots=True)
class Crossing:
    """Load that is read from other racks (bytes/s), of so many partitions.

    `stranded` partitions have no replica in the rack of any member: they cross with whoever reads
    them. `unmanned` are racks with replicas in which no member says it is; `notes` say all of that,
    and what is not known.
    """

    load: float
    partitions: int
    stranded: int
    unmanned: tuple[str, ...]
    notes: tuple[str, ...]


def crossing(group: Group, load: Load) -> Crossing:
    """Tell what crosses racks; who drains reads nothing here. Raises BadProblem."""
    framed = frame(group, load, Policy(), racks=True)
    problem, racks = framed.problem, framed.problem.racks
    assert racks is not None, "it was asked for"
    crosses = racks.crossing(problem.owner)
    return Crossing(
        load=float(problem.weight[crosses].sum()),
        partitions=int(crosses.sum()),
        stranded=len(stranded(racks)),
        unmanned=unmanned(framed),
        notes=tuple(rack_notes(framed)),
    )
