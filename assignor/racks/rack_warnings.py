"""What to know about racks in a decision: where nothing is known, and what no care can help."""

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.fill_levels import Outcome
from trimtab.assignor.model import Racks
from trimtab.assignor.problem import Framed
from trimtab.assignor.racks.replica_racks import Replicas
from trimtab.common.units import listed

SHOWN: Final = 3  # names in a list


def rack_notes(framed: Framed) -> Iterator[str]:
    """Yield what to know, nothing where the heuristic does not weigh racks."""
    racks, replicas = framed.problem.racks, framed.census.replicas
    if racks is None or replicas is None or not len(framed.item):
        return
    missing = [m.instance or m.id for m in framed.members if not m.rack]
    if missing:
        who = listed(missing[:SHOWN], len(missing))
        yield f"no rack is known of {who} (client.rack): nothing is far from them"
    unknown = np.flatnonzero(~replicas.known[framed.item])
    if unknown.size:
        yield (
            f"no rack is known of brokers with replicas of {_partitions(framed, unknown)} "
            "(broker.rack): nothing is far of theirs"
        )
    yield from _unmatched(framed, replicas)
    far = stranded(racks)
    if far.size:
        yield f"no member is in a rack with a replica of {_partitions(framed, far)}"


def unmanned(framed: Framed) -> tuple[str, ...]:
    """Return the racks that hold replicas and in which no member says it is."""
    replicas = framed.census.replicas
    manned = {m.rack for m in framed.members}
    return () if replicas is None else tuple(r for r in replicas.racks if r not in manned)


def stranded(racks: Racks) -> NDArray[np.intp]:
    """Return the partitions that cross racks with whoever reads them; none where that is unknown.

    A member of unknown rack could be near.
    """
    unknown = racks.far.shape[1] - 1
    if not unknown or (racks.at == unknown).any():
        return np.zeros(0, dtype=np.intp)
    return np.flatnonzero(racks.far[:, :unknown].all(axis=1))


def _unmatched(framed: Framed, replicas: Replicas) -> Iterator[str]:
    """Name racks of one side only: a member there would save traffic; names may be misspelt."""
    lonely = unmanned(framed)
    if lonely:
        yield f"replicas are in {listed(lonely[:SHOWN], len(lonely))}, but no member says it is"
    away = [m for m in framed.members if m.rack and m.rack not in replicas.racks]
    if away and replicas.known[framed.item].all():
        who = [f"{m.instance or m.id} ({m.rack})" for m in away[:SHOWN]]
        yield (
            f"no replica is in the rack of {listed(who, len(away))}: all that they read crosses "
            "racks; are racks of consumers and brokers called the same?"
        )


def _partitions(framed: Framed, items: NDArray[np.intp]) -> str:
    universe = framed.census.universe
    shown = [str(universe.name(int(framed.item[i]))) for i in items[:SHOWN]]
    return listed(shown, len(items))


def nearer(decided: Outcome, item: int) -> str:
    """Say that the item moves nearer to a replica; "" where it does not."""
    framed, racks = decided.framed, decided.framed.problem.racks
    source, target = int(framed.problem.owner[item]), int(decided.bins[item])
    if racks is None or max(source, target) >= len(racks.at):
        return ""
    if not racks.far[item, racks.at[source]] or racks.far[item, racks.at[target]]:
        return ""
    there = [framed.members[member].rack for member in (source, target)]
    giver, taker = decided.person(source), decided.person(target)
    return f"a replica is in rack {there[1]} of {taker}, none in rack {there[0]} of {giver}"
