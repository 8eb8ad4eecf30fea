"""Level: closed mode without a plan. Every member carries its share of the load, within 5 %.

1. A member above the band hands on the least load that brings it back into it; one larger than the
   band keeps its member for itself.
2. What is loose goes to the emptiest, the largest first.
3. A member below the band is handed partitions by the fullest, until it is inside: the largest that
   leave the giver inside too, if there are such.
So a member that joins takes its share and nothing else moves, and when one leaves, what it read is
all that moves.
"""

import numpy as np

from trimtab.assignor.steady.bins cimport Bins

cdef double BAND = 0.05  # of the mean fill, to either side
cdef enum:
    ROUNDS = 2  # what is seated may lift its member above the band again


def level(Bins bins, int[::1] order):
    """Place what is loose, in the order given, and even out; the members' fills are the measure."""
    cdef double mean = _mean_fill(bins)
    cdef int member
    for _ in range(ROUNDS):
        for member in range(bins.members):
            if bins.count[member] > 1 and _fill(bins, member) > mean * (1.0 + BAND):
                _hand_on(bins, member, mean * (1.0 + BAND))
        _seat(bins, order)
    for _ in range(4 * bins.items):  # every gift narrows a gap; the bound is for safety
        member = _emptiest(bins)
        if member < 0 or _fill(bins, member) >= mean * (1.0 - BAND):
            break
        if not _feed(bins, member, mean) and not _feed(bins, member, 0.0):
            break


cdef inline double _fill(Bins bins, int member) noexcept nogil:
    return bins.load[member] / bins.capacity[member] if bins.count[member] else 0.0


cdef double _mean_fill(Bins bins) noexcept:
    cdef double load = 0.0, capacity = 0.0
    cdef int i
    for i in range(bins.items):
        load += bins.weight[i]
    for i in range(bins.members):
        capacity += bins.capacity[i]
    return load / capacity


cdef void _hand_on(Bins bins, int member, double most):
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
        over = bins.load[member] - most * bins.capacity[member]
        if over <= 0:
            return
        if bins.count[member] > 1 and bins.weight[item] <= over:
            bins.take(item)
        elif bins.weight[item] >= over:
            enough = item
    if enough >= 0 and bins.bin[enough] == member and bins.count[member] > 1:
        bins.take(enough)


cdef void _seat(Bins bins, int[::1] order):
    """Give each loose item to the emptiest of its readers."""
    cdef int[::1] heap = np.arange(bins.members, dtype=np.int32)
    cdef int i, item
    for i in range(bins.members // 2, -1, -1):
        _sink(bins, heap, i)
    for i in range(order.shape[0]):
        item = order[i]
        if bins.bin[item] >= 0:
            continue
        if bins.all_read:
            bins.put(item, heap[0])
            _sink(bins, heap, 0)
        else:
            bins.put(item, _emptiest_reader(bins, item))


cdef void _sink(Bins bins, int[::1] heap, int at) noexcept:
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
        at = child


cdef inline bint _before(Bins bins, int one, int other) noexcept nogil:
    cdef double a = _fill(bins, one), b = _fill(bins, other)
    return a < b or (a == b and one < other)


cdef int _emptiest_reader(Bins bins, int item) noexcept:
    cdef int member, best = -1
    cdef double after, least = 1e300
    for member in range(bins.members):
        if bins.reads(item, member):
            after = _fill(bins, member) + bins.weight[item] / bins.capacity[member]
            if after < least:
                least, best = after, member
    return best


cdef int _emptiest(Bins bins) noexcept:
    cdef int member, best = -1
    for member in range(bins.members):
        if best < 0 or _before(bins, member, best):
            best = member
    return best


cdef bint _feed(Bins bins, int taker, double mean) noexcept:
    """Hand the taker one partition of the fullest that can (see `_gift`); False if nobody can."""
    cdef int giver, item, best = -1
    cdef double fill, fullest = -1.0
    for giver in range(bins.members):
        fill = _fill(bins, giver)
        if bins.count[giver] > 1 and fill > fullest and giver != taker:
            item = _gift(bins, giver, taker, mean)
            if item >= 0:
                fullest, best = fill, item
    if best < 0:
        return False
    bins.take(best)
    bins.put(best, taker)
    return True


cdef int _gift(Bins bins, int giver, int taker, double mean) noexcept:
    """Return the largest partition that leaves both in the band around `mean`; -1: none does.

    Without a mean: the one that leaves the two most even, if that helps.
    """
    cdef int item = bins.head[giver], best = -1
    cdef double rest, after, worst, least = _fill(bins, giver) * (1.0 - 1e-9)
    while item >= 0:
        rest = _fill(bins, giver) - bins.weight[item] / bins.capacity[giver]
        after = _fill(bins, taker) + bins.weight[item] / bins.capacity[taker]
        worst = max(rest, after)
        if mean > 0:
            worst = rest if rest >= mean * (1.0 - BAND) and after <= mean * (1.0 + BAND) else 1e300
        if worst < least and bins.reads(item, taker):
            least, best = worst, item
        item = bins.next[item]
    return best
