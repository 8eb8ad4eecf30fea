"""Balance: closed mode without a plan. Every member gets its fair share of the load, within 5 %.

Capacities are scaled by the fair shares (`fair_shares.py`), so that a fill of 1 is the share.

1. A member above the band gives up the least load that brings it back into the band; a partition
   larger than the band stays alone on its member.
2. A loose partition goes to the emptiest member, largest first, or stays at home if the emptiest
   would not be more than 5 % emptier than home.
3. A member below the band gets partitions of the fullest members until it is inside: the largest
   that leave the donor inside, else one that makes the fuller of the two more than 5 % emptier.

So a joining member takes its share from members above the band, and a member inside it gives only
to one below. Nothing moves for less than 5 %.
"""

import numpy as np

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double BALANCE_BAND = 0.05  # of a share, to either side; also the least gain of a move
cdef enum:
    MAX_BALANCE_ROUNDS = 8  # a placed partition may lift its member above the band again


def balance_members(Bins bins, int[::1] order):
    """Place the loose items in the order given and balance; a fill of 1 is the fair share."""
    before = None
    for _ in range(MAX_BALANCE_ROUNDS):
        _trim_overfull(bins)
        _place_loose_items(bins, order)
        _fill_underfull(bins)
        after = bins.copy_placement()
        if before is not None and (after == before).all():
            break
        before = after


cdef void _trim_overfull(Bins bins):
    cdef int member
    for member in range(bins.members):
        if bins.count[member] > 1 and _member_fill(bins, member) > 1.0 + BALANCE_BAND:
            _remove_excess(bins, member)


cdef void _fill_underfull(Bins bins):
    cdef unsigned char[::1] without_donor = np.zeros(bins.members, dtype=np.uint8)
    cdef int member
    for _ in range(4 * bins.items + bins.members):  # each step narrows a gap; the bound is for safety
        member = _find_emptiest_member(bins, without_donor)
        if member < 0 or _member_fill(bins, member) >= 1.0 - BALANCE_BAND:
            break
        if not _give_from_fullest(bins, member, True) and not _give_from_fullest(bins, member, False):
            without_donor[member] = 1


cdef inline double _member_fill(Bins bins, int member) noexcept nogil:
    return bins.load[member] / bins.capacity[member] if bins.count[member] else 0.0


cdef inline double _fill_with_item(Bins bins, int item, int member) noexcept nogil:
    """Return the fill of a member with the item added."""
    return _member_fill(bins, member) + bins.weight[item] / bins.capacity[member]


cdef void _remove_excess(Bins bins, int member):
    """Remove the largest items within the excess, one by one, then the smallest that covers it."""
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
        over = bins.load[member] - (1.0 + BALANCE_BAND) * bins.capacity[member]
        if over <= 0:
            return
        if bins.count[member] > 1 and bins.weight[item] <= over:
            bins.remove_item(item)
        elif bins.weight[item] >= over:
            enough = item
    if enough >= 0 and bins.bin[enough] == member and bins.count[member] > 1:
        bins.remove_item(enough)


cdef void _place_loose_items(Bins bins, int[::1] order):
    """Place each loose item with its emptiest reader, or at home (rule 2)."""
    cdef int[::1] heap = np.arange(bins.members, dtype=np.int32)
    cdef int[::1] place = np.arange(bins.members, dtype=np.int32)
    cdef int i, item, best, home
    for i in range(bins.members // 2, -1, -1):
        _sift_down(bins, heap, place, i)
    for i in range(order.shape[0]):
        item = order[i]
        if bins.bin[item] >= 0:
            continue
        best = heap[0] if bins.all_read else _find_emptiest_reader(bins, item)
        home = bins.home[item]
        if home >= 0 and bins.can_read(item, home):
            if _fill_with_item(bins, item, home) <= _fill_with_item(bins, item, best) + BALANCE_BAND:
                best = home
        bins.place_item(item, best)
        _sift_down(bins, heap, place, place[best])


cdef void _sift_down(Bins bins, int[::1] heap, int[::1] place, int at) noexcept:
    """Restore the heap of members by fill, then number, from this place down."""
    cdef int size = bins.members, child, member
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _is_emptier(bins, heap[child + 1], heap[child]):
            child += 1
        if not _is_emptier(bins, heap[child], heap[at]):
            return
        member = heap[at]
        heap[at], heap[child] = heap[child], member
        place[heap[at]], place[member] = at, child
        at = child


cdef inline bint _is_emptier(Bins bins, int one, int other) noexcept nogil:
    cdef double a = _member_fill(bins, one), b = _member_fill(bins, other)
    return a < b or (a == b and one < other)


cdef int _find_emptiest_reader(Bins bins, int item) noexcept:
    cdef int member, best = -1
    cdef double least = 1e300
    for member in range(bins.members):
        if bins.can_read(item, member) and _fill_with_item(bins, item, member) < least:
            least, best = _fill_with_item(bins, item, member), member
    return best


cdef int _find_emptiest_member(Bins bins, unsigned char[::1] without_donor) noexcept:
    """Return the emptiest member that some member can still give to, or -1."""
    cdef int member, best = -1
    for member in range(bins.members):
        if not without_donor[member] and (best < 0 or _is_emptier(bins, member, best)):
            best = member
    return best


cdef bint _give_from_fullest(Bins bins, int recipient, bint inside) noexcept:
    """Give the recipient one partition of the fullest possible member; return False without one."""
    cdef int donor, item, best = -1
    cdef double fill, fullest = -1.0
    for donor in range(bins.members):
        fill = _member_fill(bins, donor)
        if bins.count[donor] > 1 and fill > fullest and donor != recipient:
            item = _select_partition_to_give(bins, donor, recipient, inside)
            if item >= 0:
                fullest, best = fill, item
    if best < 0:
        return False
    bins.remove_item(best)
    bins.place_item(best, recipient)
    return True


cdef int _select_partition_to_give(Bins bins, int donor, int recipient, bint inside) noexcept:
    """Return the largest partition that leaves both in the band, or -1.

    Unless `inside`: the partition that leaves the two most even, if that gains enough.
    """
    cdef int item = bins.head[donor], best = -1
    cdef double rest, after, worst, least = _member_fill(bins, donor) - (0.0 if inside else BALANCE_BAND)
    while item >= 0:
        rest = _member_fill(bins, donor) - bins.weight[item] / bins.capacity[donor]
        after = _fill_with_item(bins, item, recipient)
        worst = max(rest, after)
        if inside:
            worst = rest if rest >= 1.0 - BALANCE_BAND and after <= 1.0 + BALANCE_BAND else 1e300
        if worst < least and bins.can_read(item, recipient):
            least, best = worst, item
        item = bins.next[item]
    return best
