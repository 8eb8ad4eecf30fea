"""Step 4, close: empty consumers, the cheapest first, by ejection chains.

Each partition of the consumer goes where the objective rises least; where nothing has room it
displaces a smaller one, which goes on in the same way, up to `DEPTH` times. Taken back unless the
objective has fallen in the end.
"""

import numpy as np

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double GAIN = 1e-9
cdef double SNUG = 1e-3  # consumers: what a whole consumer of room left over counts
cdef double AWAY = 0.3  # load that is away from home already counts this much
cdef double NUISANCE[3]
NUISANCE[:] = [0.0, 1.0, 2.0]  # to displace what would return home, is away, or is at home
cdef enum:
    DEPTH = 4


def close(Bins bins, int tries):
    """Try to empty up to `tries` consumers."""
    cdef int number
    cdef unsigned char[::1] shut = np.zeros(bins.total, dtype=np.uint8)
    cdef double spare = _spare(bins)
    for number in _cheapest(bins)[:tries].tolist():
        if bins.count[number] == 0 or bins.load[number] > spare:
            continue
        shut[number] = 1
        if not _shut(bins, number, shut):
            shut[number] = 0
        else:
            spare = _spare(bins)


cdef double _spare(Bins bins) noexcept:
    """Return the room in the open bins, less the room of the emptiest: what a closing may use."""
    cdef double room = 0.0
    cdef int number
    for number in range(bins.top):
        if bins.count[number] and bins.load[number] < bins.capacity[number]:
            room += bins.capacity[number] - bins.load[number]
    return room


cdef object _cheapest(Bins bins):
    """Return the open bins by the load that closing them would move."""
    cdef double[::1] cost = np.full(bins.top, np.inf)
    cdef int item, number
    for number in range(bins.top):
        if bins.count[number]:
            cost[number] = 0.0
    for item in range(bins.items):
        number = bins.bin[item]
        if number >= 0:
            cost[number] += bins.weight[item] * (AWAY if bins.away(item, number) else 1.0)
    order = np.argsort(cost, kind="stable")
    return order[np.isfinite(np.asarray(cost)[order])]


cdef bint _shut(Bins bins, int number, unsigned char[::1] shut) noexcept:
    """Empty the bin; take it back, and return False, if that fails or does not pay."""
    cdef double before = bins.value
    cdef bint fits = True
    bins.mark()
    while fits and bins.count[number]:
        fits = _send_off(bins, _take_largest(bins, number), shut)
        if bins.value - (bins.bin_cost if bins.count[number] else 0.0) >= before:
            fits = False
    if fits and bins.value < before - GAIN:
        bins.keep()
        return True
    bins.undo()
    return False


cdef int _take_largest(Bins bins, int number) noexcept:
    cdef int item = bins.head[number], largest = item
    while item >= 0:
        if bins.weight[item] > bins.weight[largest]:
            largest = item
        item = bins.next[item]
    bins.take(largest)
    return largest


cdef bint _send_off(Bins bins, int item, unsigned char[::1] shut) noexcept:
    """Place a loose item in bins that are not shut, displacing others; False if it fails."""
    cdef int link, number, victim
    for link in range(DEPTH + 1):
        number = _cheapest_room(bins, item, shut)
        if number >= 0:
            bins.put(item, number)
            return True
        victim = _victim(bins, item, shut) if link < DEPTH else -1
        if victim < 0:
            return False
        number = bins.bin[victim]
        bins.take(victim)
        bins.put(item, number)
        item = victim
    return False


cdef int _cheapest_room(Bins bins, int item, unsigned char[::1] shut) noexcept:
    """Return the open bin with room where the objective rises least; of two, the fuller."""
    cdef int number, best = -1
    cdef double price, least = 1e300
    for number in range(bins.top):
        if bins.count[number] == 0 or shut[number] or not bins.has_room(item, number):
            continue
        price = bins.price(item, number) - SNUG * bins.load[number] / bins.capacity[number]
        if price < least:
            least, best = price, number
    return best


cdef int _victim(Bins bins, int item, unsigned char[::1] shut) noexcept:
    """Return the smaller item whose place would do, the cheapest to displace; -1 if none."""
    cdef int number, other, kind, best = -1
    cdef double over, cost, least = 1e300, w = bins.weight[item]
    for number in range(bins.top):
        if bins.count[number] == 0 or shut[number] or not bins.reads(item, number):
            continue
        over = bins.load[number] + w - bins.capacity[number]
        other = bins.head[number]
        while other >= 0:
            if over <= bins.weight[other] < w:
                kind = 2 if not bins.away(other, number) else 1 if shut[bins.home[other]] else 0
                cost = NUISANCE[kind] * bins.weight[other] + (w if bins.away(item, number) else 0.0)
                if cost < least:
                    least, best = cost, other
            other = bins.next[other]
    return best
