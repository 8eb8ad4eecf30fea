"""Level: closed mode without a plan. Every member carries its share of the load, within 5 %.

Capacities are scaled by the members' shares (`shares.py`), so that a fill of 1 is the share.

1. A member above the band hands on the least load that brings it back into it; one larger than the
   band keeps its member for itself.
2. What is loose goes to the emptiest, the largest first; or stays at home, unless it would make its
   reader more than 5 % emptier than home.
3. A member below the band is handed partitions by the fullest, until it is inside: the largest that
   leave the giver inside too, if there are such; else what makes the fuller of the two more than
   5 % emptier.
So a member that joins takes its share from those above the band, and who is inside it gives only
to fill up somebody below. Nothing moves for less than 5 %.
"""

import numpy as np

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double BAND = 0.05  # of a share, to either side; also the least gain of a move
cdef enum:
    ROUNDS = 8  # what is seated or handed over may lift its member above the band again


def level(Bins bins, int[::1] order):
    """Place what is loose, in the order given, and even out; a fill of 1 is a member's share."""
    before = None
    for _ in range(ROUNDS):
        _trim(bins)
        _seat(bins, order)
        _fill_up(bins)
        after = bins.placed()
        if before is not None and (after == before).all():
            break
        before = after


cdef void _trim(Bins bins):
    cdef int member
    for member in range(bins.members):
        if bins.count[member] > 1 and _fill(bins, member) > 1.0 + BAND:
            _hand_on(bins, member)


cdef void _fill_up(Bins bins):
    cdef unsigned char[::1] sated = np.zeros(bins.members, dtype=np.uint8)
    cdef int member
    for _ in range(4 * bins.items + bins.members):  # each narrows a gap; the bound is for safety
        member = _emptiest(bins, sated)
        if member < 0 or _fill(bins, member) >= 1.0 - BAND:
            break
        if not _feed(bins, member, True) and not _feed(bins, member, False):
            sated[member] = 1


cdef inline double _fill(Bins bins, int member) noexcept nogil:
    return bins.load[member] / bins.capacity[member] if bins.count[member] else 0.0


cdef inline double _after(Bins bins, int item, int member) noexcept nogil:
    """Return the fill of a member if it got the item."""
    return _fill(bins, member) + bins.weight[item] / bins.capacity[member]


cdef void _hand_on(Bins bins, int member):
    """Take the largest that are not too much, one by one, then the smallest that is enough."""
    cdef double over
    cdef int item, i, enough = -1
    cdef list held = []
    item = bins.head[member]
    while item >= 0:
        held.append((-bins.weight[item], item))
        item = bins.next[item]
    held.sort()
    for i in range(len(held)):
        item = held[i][1]
        over = bins.load[member] - (1.0 + BAND) * bins.capacity[member]
        if over <= 0:
            return
        if bins.count[member] > 1 and bins.weight[item] <= over:
            bins.take(item)
        elif bins.weight[item] >= over:
            enough = item
    if enough >= 0 and bins.bin[enough] == member and bins.count[member] > 1:
        bins.take(enough)


cdef void _seat(Bins bins, int[::1] order):
    """Give each loose item to the emptiest of its readers, or back to its home (rule 2)."""
    cdef int[::1] heap = np.arange(bins.members, dtype=np.int32)
    cdef int[::1] place = np.arange(bins.members, dtype=np.int32)
    cdef int i, item, best, home
    for i in range(bins.members // 2, -1, -1):
        _sink(bins, heap, place, i)
    for i in range(order.shape[0]):
        item = order[i]
        if bins.bin[item] >= 0:
            continue
        best = heap[0] if bins.all_read else _emptiest_reader(bins, item)
        home = bins.home[item]
        if home >= 0 and bins.reads(item, home):
            if _after(bins, item, home) <= _after(bins, item, best) + BAND:
                best = home
        bins.put(item, best)
        _sink(bins, heap, place, place[best])


cdef void _sink(Bins bins, int[::1] heap, int[::1] place, int at) noexcept:
    """Restore the order of a heap of members by fill, then number, from this place down."""
    cdef int size = bins.members, child, member
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(bins, heap[child + 1], heap[child]):
            child += 1
        if not _before(bins, heap[child], heap[at]):
            return
        member = heap[at]
        heap[at], heap[child] = heap[child], member
        place[heap[at]], place[member] = at, child
        at = child


cdef inline bint _before(Bins bins, int one, int other) noexcept nogil:
    cdef double a = _fill(bins, one), b = _fill(bins, other)
    return a < b or (a == b and one < other)


cdef int _emptiest_reader(Bins bins, int item) noexcept:
    cdef int member, best = -1
    cdef double least = 1e300
    for member in range(bins.members):
        if bins.reads(item, member) and _after(bins, item, member) < least:
            least, best = _after(bins, item, member), member
    return best


cdef int _emptiest(Bins bins, unsigned char[::1] sated) noexcept:
    """Return the emptiest member that is not sated; -1: all are."""
    cdef int member, best = -1
    for member in range(bins.members):
        if not sated[member] and (best < 0 or _before(bins, member, best)):
            best = member
    return best


cdef bint _feed(Bins bins, int taker, bint inside) noexcept:
    """Hand the taker one partition of the fullest that can (see `_gift`); False if nobody can."""
    cdef int giver, item, best = -1
    cdef double fill, fullest = -1.0
    for giver in range(bins.members):
        fill = _fill(bins, giver)
        if bins.count[giver] > 1 and fill > fullest and giver != taker:
            item = _gift(bins, giver, taker, inside)
            if item >= 0:
                fullest, best = fill, item
    if best < 0:
        return False
    bins.take(best)
    bins.put(best, taker)
    return True


cdef int _gift(Bins bins, int giver, int taker, bint inside) noexcept:
    """Return the largest partition that leaves both in the band; -1: none does.

    Where they need not stay `inside`: the one that leaves the two most even, if that helps enough.
    """
    cdef int item = bins.head[giver], best = -1
    cdef double rest, after, worst, least = _fill(bins, giver) - (0.0 if inside else BAND)
    while item >= 0:
        rest = _fill(bins, giver) - bins.weight[item] / bins.capacity[giver]
        after = _after(bins, item, taker)
        worst = max(rest, after)
        if inside:
            worst = rest if rest >= 1.0 - BAND and after <= 1.0 + BAND else 1e300
        if worst < least and bins.reads(item, taker):
            least, best = worst, item
        item = bins.next[item]
    return best
