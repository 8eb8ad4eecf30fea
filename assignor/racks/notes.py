"""What to know about racks in a decision: where nothing is known, and what no care can help."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trimtab.assignor.outcome import Outcome
from trimtab.assignor.units import listed

SHOWN: Final = 3  # names in a list


def rack_notes(decided: Outcome) -> Iterator[str]:
    """Yield what to know, nothing where the heuristic does not weigh racks."""
    framed, there = decided.framed, decided.framed.census
    racks = framed.problem.racks
    if racks is None or there.replicas is None or not len(framed.item):
        return
    missing = np.flatnonzero(racks.at == racks.far.shape[1] - 1).tolist()
    if missing:
        who = listed([decided.person(m) for m in missing[:SHOWN]], len(missing))
        yield f"no rack is known of {who} (client.rack): nothing is far from them"
    unknown = np.flatnonzero(~there.replicas.known[framed.item])
    if unknown.size:
        yield (
            f"no rack is known of brokers with replicas of {_partitions(decided, unknown)} "
            "(broker.rack): nothing is far of theirs"
        )
    yield from _empty(decided, there.replicas.racks)
    if not missing:
        yield from _stranded(decided)


def _empty(decided: Outcome, replicas: Sequence[str]) -> Iterator[str]:
    """Name the racks that hold replicas and have no member: a member there would save traffic."""
    manned = {m.rack for m in decided.framed.members}
    lonely = [rack for rack in replicas if rack not in manned]
    if lonely:
        yield f"replicas are in {listed(lonely[:SHOWN], len(lonely))}, but no member is"


def _stranded(decided: Outcome) -> Iterator[str]:
    """Name the partitions that cross racks with whoever reads them."""
    racks = decided.framed.problem.racks
    assert racks is not None
    far = np.flatnonzero(racks.far[:, :-1].all(axis=1) & (racks.far.shape[1] > 1))
    if far.size:
        yield f"no member is in a rack with a replica of {_partitions(decided, far)}"


def _partitions(decided: Outcome, items: NDArray[np.intp]) -> str:
    framed = decided.framed
    shown = [str(framed.census.universe.name(int(framed.item[i]))) for i in items[:SHOWN]]
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
