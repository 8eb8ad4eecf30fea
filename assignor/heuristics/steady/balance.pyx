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

cimport cython
from libc.math cimport INFINITY
from libc.stdlib cimport qsort

import numpy as np

from trimtab.assignor.heuristics.steady.bins cimport Bins
from trimtab.assignor.model.packing import sort_decreasing

cdef double BALANCE_BAND = 0.05  # of a share, to either side; also the least gain of a move
cdef enum:
    MAX_BALANCE_ROUNDS = 8  # a placed partition may lift its member above the band again


cdef struct _Held:
    double weight
    int item


@cython.final
cdef class _Ranking:
    """Members by a key, the least first, of ties the lowest number: a tournament of all members."""

    cdef int places  # of the first round, a power of two
    cdef double[::1] key  # (places,) infinite: does not take part
    cdef int[::1] winner  # (2 * places,) of each match: of 2 and 3 at 1, of 4 and 5 at 2, and so on

    def __init__(self, const double[::1] key):
        """Rank members by their keys (M,)."""
        cdef int match
        self.places = 1 << max(0, len(key) - 1).bit_length()
        self.key = np.concatenate([key, np.full(self.places - len(key), np.inf)])
        self.winner = np.concatenate([np.zeros(self.places), np.arange(self.places)]).astype(np.int32)
        for match in range(self.places - 1, 0, -1):
            self._play_match(match)

    cdef int find_first(self) noexcept:
        """Return the member with the least key, or -1 if none takes part."""
        return self.winner[1] if self.key[self.winner[1]] < INFINITY else -1

    cdef void set_key(self, int member, double key) noexcept:
        cdef int match = (member + self.places) >> 1
        self.key[member] = key
        while match:
            self._play_match(match)
            match >>= 1

    cdef inline void _play_match(self, int match) noexcept:
        cdef int one = self.winner[2 * match], other = self.winner[2 * match + 1]
        self.winner[match] = one if self.key[one] <= self.key[other] else other


def balance_members(Bins bins):
    """Place the loose items and balance; a fill of 1 is the fair share."""
    before = None
    for _ in range(MAX_BALANCE_ROUNDS):
        _trim_overfull(bins)
        _place_loose_items(bins)
        _fill_underfull(bins)
        after = bins.copy_placement()
        if before is not None and (after == before).all():
            break
        before = after


cdef void _trim_overfull(Bins bins):
    cdef int member
    cdef _Held[::1] held = np.empty(bins.items, dtype=np.dtype([("weight", "f8"), ("item", "i4")], align=True))
    for member in range(bins.members):
        if bins.count[member] > 1 and _member_fill(bins, member) > 1.0 + BALANCE_BAND:
            _remove_excess(bins, member, held)


cdef void _fill_underfull(Bins bins):
    cdef _Ranking emptiest = _Ranking(_compute_fills(bins)), fullest = _rank_donors(bins)
    cdef int member, donor
    for _ in range(4 * bins.items + bins.members):  # each step narrows a gap; the bound is for safety
        member = emptiest.find_first()
        if member < 0 or _member_fill(bins, member) >= 1.0 - BALANCE_BAND:
            break
        donor = _give_from_fullest(bins, member, fullest, True)
        if donor < 0:
            donor = _give_from_fullest(bins, member, fullest, False)
        if donor < 0:
            emptiest.set_key(member, INFINITY)
            continue
        emptiest.set_key(member, _member_fill(bins, member))
        if emptiest.key[donor] < INFINITY:  # else it found no donor itself
            emptiest.set_key(donor, _member_fill(bins, donor))


cdef inline double _member_fill(Bins bins, int member) noexcept nogil:
    return bins.load[member] / bins.capacity[member] if bins.count[member] else 0.0


cdef inline double _fill_with_item(Bins bins, int item, int member) noexcept nogil:
    """Return the fill of a member with the item added."""
    return _member_fill(bins, member) + bins.weight[item] / bins.capacity[member]


cdef void _remove_excess(Bins bins, int member, _Held[::1] held):
    """Remove the largest items within the excess, one by one, then the smallest that covers it."""
    cdef double over
    cdef int item, i, enough = -1, count = 0
    item = bins.head[member]
    while item >= 0:
        held[count].weight, held[count].item = bins.weight[item], item
        count += 1
        item = bins.next[item]
    qsort(&held[0], count, sizeof(_Held), _compare_held)
    for i in range(count):
        item = held[i].item
        over = bins.load[member] - (1.0 + BALANCE_BAND) * bins.capacity[member]
        if over <= 0:
            return
        if bins.count[member] > 1 and bins.weight[item] <= over:
            bins.remove_item(item)
        elif bins.weight[item] >= over:
            enough = item
    if enough >= 0 and bins.bin[enough] == member and bins.count[member] > 1:
        bins.remove_item(enough)


cdef int _compare_held(const void *one, const void *other) noexcept nogil:
    """Order items for `qsort`: the largest first, of ties the lowest number."""
    cdef _Held *a = <_Held *> one
    cdef _Held *b = <_Held *> other
    return (a.weight < b.weight) - (a.weight > b.weight) or (a.item > b.item) - (a.item < b.item)


cdef void _place_loose_items(Bins bins):
    """Place each loose item with its emptiest reader, or at home (rule 2)."""
    cdef _Ranking emptiest = _Ranking(_compute_fills(bins))
    cdef int[::1] order = _order_loose_items(bins)
    cdef int i, item, best, home
    for i in range(order.shape[0]):
        item = order[i]
        best = emptiest.find_first() if bins.all_read else _find_emptiest_reader(bins, item)
        if best < 0:
            best = _find_first_reader(bins, item)
        home = bins.home[item]
        if home >= 0 and bins.can_read(item, home):
            if _fill_with_item(bins, item, home) <= _fill_with_item(bins, item, best) + BALANCE_BAND:
                best = home
        bins.place_item(item, best)
        emptiest.set_key(best, _member_fill(bins, best))


cdef object _order_loose_items(Bins bins):
    """Return the loose items, the largest first."""
    loose = np.flatnonzero(np.asarray(bins.bin) < 0).astype(np.int32)
    return loose[sort_decreasing(np.asarray(bins.weight)[loose])]


cdef double[::1] _compute_fills(Bins bins):
    cdef double[::1] fill = np.empty(bins.members)
    cdef int member
    for member in range(bins.members):
        fill[member] = _member_fill(bins, member)
    return fill


cdef _Ranking _rank_donors(Bins bins):
    """Rank the members that can give a partition, the fullest first."""
    cdef double[::1] key = np.empty(bins.members)
    cdef int member
    for member in range(bins.members):
        key[member] = _donor_key(bins, member)
    return _Ranking(key)


cdef inline double _donor_key(Bins bins, int member) noexcept:
    return -_member_fill(bins, member) if bins.count[member] > 1 else INFINITY


cdef int _find_first_reader(Bins bins, int item) noexcept:
    """Return a member for an item if the loads are too large for a sum, so that none is the emptiest."""
    cdef int member = 0
    while member < bins.members - 1 and not bins.can_read(item, member):
        member += 1
    return member


cdef int _find_emptiest_reader(Bins bins, int item) noexcept:
    cdef int member, best = -1
    cdef double least = 1e300
    for member in range(bins.members):
        if bins.can_read(item, member) and _fill_with_item(bins, item, member) < least:
            least, best = _fill_with_item(bins, item, member), member
    return best


cdef int _give_from_fullest(Bins bins, int recipient, _Ranking fullest, bint inside):
    """Give the recipient one partition of the fullest possible member; return that member, or -1."""
    cdef int donor = fullest.find_first(), item = -1
    cdef list passed = [recipient]
    while donor >= 0 and _may_give(_member_fill(bins, donor), _member_fill(bins, recipient), inside):
        if donor != recipient:
            item = _select_partition_to_give(bins, donor, recipient, inside)
        passed.append(donor)
        if item >= 0:
            bins.remove_item(item)
            bins.place_item(item, recipient)
            break
        fullest.set_key(donor, INFINITY)
        donor = fullest.find_first()
    for other in passed:
        fullest.set_key(other, _donor_key(bins, other))
    return donor if item >= 0 else -1


cdef inline bint _may_give(double fill, double recipient_fill, bint inside) noexcept:
    """Return whether a partition of any size could do (`_select_partition_to_give`)."""
    return fill >= 1.0 - BALANCE_BAND if inside else fill - BALANCE_BAND > recipient_fill


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
