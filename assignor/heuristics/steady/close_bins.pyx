"""Step 4, close: empty consumers by ejection chains, the cheapest first.

Each partition of the consumer goes where the objective rises least. Without room it displaces a
smaller one, which is placed likewise, up to `MAX_CHAIN_LENGTH` times. The change is reverted unless
the objective falls.
"""

import numpy as np

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double MIN_GAIN = 1e-9
cdef double FULLNESS_BONUS = 1e-3  # consumers, per whole consumer of room left
cdef double MOVED_LOAD_WEIGHT = 0.3  # weight of load that has moved already
cdef double DISPLACEMENT_WEIGHT[3]
DISPLACEMENT_WEIGHT[:] = [0.0, 1.0, 2.0]  # of a victim that can return home, is moved, or is at home
cdef enum:
    MAX_CHAIN_LENGTH = 4


def close_bins(Bins bins, int tries):
    """Try to empty up to `tries` consumers."""
    cdef int number
    cdef unsigned char[::1] shut = np.zeros(bins.total, dtype=np.uint8)
    cdef double spare = _sum_open_room(bins)
    for number in _order_by_move_cost(bins)[:tries].tolist():
        if bins.count[number] == 0 or bins.load[number] > spare:
            continue
        shut[number] = 1
        if not _close_bin(bins, number, shut):
            shut[number] = 0
        else:
            spare = _sum_open_room(bins)


cdef double _sum_open_room(Bins bins) noexcept:
    """Return the total room in the open bins."""
    cdef double room = 0.0
    cdef int number
    for number in range(bins.open_end):
        if bins.count[number] and bins.load[number] < bins.capacity[number]:
            room += bins.capacity[number] - bins.load[number]
    return room


cdef object _order_by_move_cost(Bins bins):
    """Return the open bins, sorted by the load that closing them moves."""
    cdef double[::1] cost = np.full(bins.open_end, np.inf)
    cdef int item, number
    for number in range(bins.open_end):
        if bins.count[number]:
            cost[number] = 0.0
    for item in range(bins.items):
        number = bins.bin[item]
        if number >= 0:
            cost[number] += bins.weight[item] * (MOVED_LOAD_WEIGHT if bins.is_moved(item, number) else 1.0)
    order = np.argsort(cost, kind="stable")
    return order[np.isfinite(np.asarray(cost)[order])]


cdef bint _close_bin(Bins bins, int number, unsigned char[::1] shut) noexcept:
    """Empty the bin if that lowers the objective; return whether it does."""
    cdef double before = bins.objective
    cdef bint fits = True
    bins.begin_change()
    while fits and bins.count[number]:
        fits = _place_by_ejection(bins, _remove_largest(bins, number), shut)
        if bins.objective - (bins.bin_cost if bins.count[number] else 0.0) >= before:
            fits = False
    if fits and bins.objective < before - MIN_GAIN:
        bins.keep_change()
        return True
    bins.undo_change()
    return False


cdef int _remove_largest(Bins bins, int number) noexcept:
    cdef int item = bins.head[number], largest = item
    while item >= 0:
        if bins.weight[item] > bins.weight[largest]:
            largest = item
        item = bins.next[item]
    bins.remove_item(largest)
    return largest


cdef bint _place_by_ejection(Bins bins, int item, unsigned char[::1] shut) noexcept:
    """Place a loose item in bins that are not shut, displacing others; return False on failure."""
    cdef int link, number, victim
    for link in range(MAX_CHAIN_LENGTH + 1):
        number = _find_cheapest_bin(bins, item, shut)
        if number >= 0:
            bins.place_item(item, number)
            return True
        victim = _find_ejection_victim(bins, item, shut) if link < MAX_CHAIN_LENGTH else -1
        if victim < 0:
            return False
        number = bins.bin[victim]
        bins.remove_item(victim)
        bins.place_item(item, number)
        item = victim
    return False


cdef int _find_cheapest_bin(Bins bins, int item, unsigned char[::1] shut) noexcept:
    """Return the open bin with room of the least cost, of ties the fuller, or -1."""
    cdef int number, best = -1
    cdef double price, bonus, least = 1e300
    for number in range(bins.open_end):
        if bins.count[number] == 0 or shut[number] or not bins.has_room(item, number):
            continue
        bonus = FULLNESS_BONUS * bins.load[number] / bins.capacity[number]
        if bins.least_insertion_cost(item, number) - bonus >= least:
            continue  # without the expected eviction, which takes most of the time
        price = bins.insertion_cost(item, number) - bonus
        if price < least:
            least, best = price, number
    return best


cdef int _find_ejection_victim(Bins bins, int item, unsigned char[::1] shut) noexcept:
    """Return the cheapest smaller item to displace, or -1."""
    cdef int number, other, kind, best = -1
    cdef double over, cost, least = 1e300, w = bins.weight[item]
    for number in range(bins.open_end):
        if bins.count[number] == 0 or shut[number] or not bins.can_read(item, number):
            continue
        over = bins.load[number] + w - bins.capacity[number]
        other = bins.head[number]
        while other >= 0:
            if over <= bins.weight[other] < w:
                kind = 2 if not bins.is_moved(other, number) else 1 if shut[bins.home[other]] else 0
                cost = DISPLACEMENT_WEIGHT[kind] * bins.weight[other] + (w if bins.is_moved(item, number) else 0.0)
                if cost < least:
                    least, best = cost, other
            other = bins.next[other]
    return best
