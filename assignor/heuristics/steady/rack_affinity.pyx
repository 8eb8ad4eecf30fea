"""Step 3a, rack affinity: move or swap cross-rack partitions into racks with a replica.

Each such partition, in the order given, takes the first of these that lowers the objective: the
member with room of the largest gain; else a swap with a partition of another member. Neither member
may rise above `ceiling` or, from above `floor`, fall below it (fractions of its capacity). A swap is
sought among at most `MAX_SWAP_CANDIDATES` partitions, within `SEARCH_BUDGET` in all.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double MIN_GAIN = 1e-9  # consumers; smaller gains are rounding errors
cdef enum:
    MAX_AFFINITY_ROUNDS = 4
    MAX_SWAP_CANDIDATES = 2000
    SEARCH_BUDGET = 600000  # candidates in all
    SWAP_TRIAL_COST = 20  # candidates that one tried swap counts as


cdef struct SearchLimits:
    double floor
    double ceiling
    int work


def improve_rack_affinity(Bins bins, int[::1] order, double floor=0.0, double ceiling=1.0):
    """Bring items to racks of their replicas while the objective falls."""
    cdef SearchLimits band
    cdef int i
    cdef bint changed
    band.floor, band.ceiling, band.work = floor, ceiling, SEARCH_BUDGET
    if not bins.has_rack_costs:
        return
    for _ in range(MAX_AFFINITY_ROUNDS):
        changed = False
        for i in range(order.shape[0]):
            if bins.bin[order[i]] >= 0 and _cross_rack_cost(bins, order[i], bins.bin[order[i]]) > MIN_GAIN:
                changed |= _bring_item_nearer(bins, order[i], &band)
        if not changed:
            break


cdef inline double _cross_rack_cost(Bins bins, int item, int number) noexcept nogil:
    return bins.cross_rack_cost[item, bins.rack_of_bin[number]]


cdef bint _bring_item_nearer(Bins bins, int item, SearchLimits *band) noexcept:
    cdef int source = bins.bin[item], number, best = -1
    cdef double rack_cost = _cross_rack_cost(bins, item, source), relief = bins.removal_gain(item)
    cdef double price, least = relief - MIN_GAIN
    for number in range(bins.open_end):
        if number == source or bins.count[number] == 0 or _cross_rack_cost(bins, item, number) >= rack_cost:
            continue
        if bins.can_read(item, number) and _stays_in_band(bins, source, number, bins.weight[item], band):
            price = bins.insertion_cost(item, number)
            if price < least:
                least, best = price, number
    if best >= 0:
        bins.remove_item(item)
        bins.place_item(item, best)
        return True
    return _swap_with_other(bins, item, rack_cost, band)


cdef bint _stays_in_band(Bins bins, int source, int target, double load, SearchLimits *band) noexcept nogil:
    """Return whether both members stay in the band if `load` moves from source to target."""
    cdef double rest = bins.load[source] - load, after = bins.load[target] + load
    if after > max(band.ceiling * bins.capacity[target], bins.load[target]):
        return False
    if rest > max(band.ceiling * bins.capacity[source], bins.load[source]):
        return False
    if rest < min(band.floor * bins.capacity[source], bins.load[source]):
        return False
    return after >= min(band.floor * bins.capacity[target], bins.load[target])


cdef bint _swap_with_other(Bins bins, int item, double rack_cost, SearchLimits *band) noexcept:
    """Swap the item with the first one of another member that lowers the objective."""
    cdef int source = bins.bin[item], number, other, following, looks = 0
    cdef double more, gain
    for number in range(bins.open_end):
        if number == source or bins.count[number] == 0 or not bins.can_read(item, number):
            continue
        if _cross_rack_cost(bins, item, number) >= rack_cost:
            continue
        gain = bins.item_cost(item, source) - bins.item_cost(item, number)
        other = bins.head[number]
        while other >= 0 and looks < min(MAX_SWAP_CANDIDATES, band.work):
            following = bins.next[other]
            more = bins.weight[item] - bins.weight[other]
            looks += 1
            if (
                gain + bins.item_cost(other, number) - bins.item_cost(other, source) > MIN_GAIN
                and bins.can_read(other, source)
                and _stays_in_band(bins, source, number, more, band)
            ):
                looks += SWAP_TRIAL_COST
                if bins.swap_if_better(item, other):
                    band.work -= looks
                    return True
            other = following
    band.work -= looks
    return False
