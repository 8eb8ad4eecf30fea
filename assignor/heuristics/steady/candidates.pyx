"""Step 2, candidates: empty the underfilled consumers and insert loose partitions, largest first.

A loose partition goes home if home is open, has room and would be nearly as full as the best fit,
else to the best fit, else to a new bin, home first. `fill` limits bins that get moved partitions. A
candidate that is sure to be worse than those that will be improved is left unfinished.
"""

import numpy as np

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double HOME_PREFERENCE = 0.02  # of a capacity
cdef double ROUNDING = 1e-6  # consumers, of the sums of costs


def release_underfilled(Bins bins, double theta):
    """Remove all items of consumers loaded below `theta` of their capacity."""
    cdef int number
    for number in range(bins.open_end):
        if bins.count[number] and bins.load[number] < theta * bins.capacity[number]:
            bins.empty_bin(number)


def insert_best_fit(Bins bins, int[::1] order, double fill, double limit):
    """Place the loose items in the order given (open mode, which always has a bin).

    Return False, with items left loose, once the objective is sure to exceed the limit.
    """
    cdef double[::1] room = np.full(bins.total, -1.0)  # of open bins: one array to scan for each item
    cdef int i, item, number
    cdef double spent = bins.bin_cost * _count_least_bins(bins) + _sum_item_costs(bins)
    for number in range(bins.open_end):
        if bins.count[number]:
            room[number] = bins.capacity[number] * fill - bins.load[number]
    for i in range(order.shape[0]):
        item = order[i]
        if bins.bin[item] < 0:
            number = _find_insertion_bin(bins, item, room)
            bins.place_item(item, number)
            room[number] = bins.capacity[number] * fill - bins.load[number]
            spent += bins.item_cost(item, number)
            if spent > limit + ROUNDING:
                return False
    return True


cdef double _sum_item_costs(Bins bins) noexcept:
    """Return the cost of the placed items, without that of bins and expected evictions."""
    cdef double cost = 0.0
    cdef int item
    for item in range(bins.items):
        if bins.bin[item] >= 0:
            cost += bins.item_cost(item, bins.bin[item])
    return cost


cdef double _count_least_bins(Bins bins):
    """Return a number of bins without which the load has no room; a bin may hold one item of any size."""
    capacity = np.asarray(bins.capacity).max()
    return np.ceil(np.minimum(bins.weight, capacity).sum() / capacity - ROUNDING)


cdef int _find_insertion_bin(Bins bins, int item, double[::1] room) noexcept:
    """Return home, the best fit or a new bin."""
    cdef int number, best = -1, home = bins.home[item]
    cdef double w = bins.weight[item], left, limited = -1.0, least = 1e300
    cdef bint home_is_open = home >= 0 and bins.count[home] > 0
    if home_is_open:  # which `fill` does not limit
        limited = room[home]
        room[home] = bins.capacity[home] - bins.load[home]
    for number in range(bins.open_end):
        left = room[number] - w
        if 0.0 <= left < least and bins.can_read(item, number):
            least, best = left, number
    if home_is_open:
        room[home] = limited
        left = bins.capacity[home] - bins.load[home] - w
        if bins.has_room(item, home) and (best < 0 or left <= least + HOME_PREFERENCE * bins.capacity[home]):
            return home
    return best if best >= 0 else bins.find_closed_bin(item)


def insert_emptiest(Bins bins, int[::1] order):
    """Place the loose items with the emptiest members; return False if one has no room."""
    cdef int i, number
    cdef bint done = True
    for i in range(order.shape[0]):
        if bins.bin[order[i]] >= 0:
            continue
        number = _find_emptiest_member(bins, order[i])
        if number >= 0:
            bins.place_item(order[i], number)
        else:
            done = False
    return done


cdef int _find_emptiest_member(Bins bins, int item) noexcept:
    """Return the emptiest member with room, the lowest of ties, or -1."""
    cdef int number, best = -1
    cdef double fill, least = 1e300
    for number in range(bins.members):
        if bins.count[number] == 0:
            fill = 0.0 if bins.can_read(item, number) else 1e300
        elif bins.has_room(item, number):
            fill = bins.load[number] / bins.capacity[number]
        else:
            continue
        if fill < least:
            least, best = fill, number
    return best
