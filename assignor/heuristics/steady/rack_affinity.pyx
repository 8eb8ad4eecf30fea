"""Step 3a, nearer: what crosses racks goes where it does not, or changes places with what is there.

Each such partition, in the order given, takes the first of these that lets the objective fall: the
member with room where it falls most; else an exchange with a partition of another member, by which
neither gets above `ceiling` or, where it was above `floor`, below that (shares of its capacity). An
exchange is looked for among `MAX_SWAP_CANDIDATES` partitions at most, as long as `SEARCH_BUDGET` lasts.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double MIN_GAIN = 1e-9  # consumers; less is noise of the sums
cdef enum:
    MAX_AFFINITY_ROUNDS = 4
    MAX_SWAP_CANDIDATES = 2000
    SEARCH_BUDGET = 600000  # looks in all
    SWAP_TRIAL_COST = 20  # looks that an exchange counts which is tried


cdef struct SearchLimits:
    double floor
    double ceiling
    int work


def improve_rack_affinity(Bins bins, int[::1] order, double floor=0.0, double ceiling=1.0):
    """Bring items to their racks while the objective falls."""
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
    cdef double toll = _cross_rack_cost(bins, item, source), relief = bins.removal_gain(item)
    cdef double price, least = relief - MIN_GAIN
    for number in range(bins.open_end):
        if number == source or bins.count[number] == 0 or _cross_rack_cost(bins, item, number) >= toll:
            continue
        if bins.can_read(item, number) and _stays_in_band(bins, source, number, bins.weight[item], band):
            price = bins.insertion_cost(item, number)
            if price < least:
                least, best = price, number
    if best >= 0:
        bins.remove_item(item)
        bins.place_item(item, best)
        return True
    return _swap_with_other(bins, item, toll, band)


cdef bint _stays_in_band(Bins bins, int source, int target, double load, SearchLimits *band) noexcept nogil:
    """Tell whether both stay in the band if so much goes from the one to the other."""
    cdef double rest = bins.load[source] - load, after = bins.load[target] + load
    if after > max(band.ceiling * bins.capacity[target], bins.load[target]):
        return False
    if rest > max(band.ceiling * bins.capacity[source], bins.load[source]):
        return False
    if rest < min(band.floor * bins.capacity[source], bins.load[source]):
        return False
    return after >= min(band.floor * bins.capacity[target], bins.load[target])


cdef bint _swap_with_other(Bins bins, int item, double toll, SearchLimits *band) noexcept:
    """Exchange the item with the first of another member that makes it pay."""
    cdef int source = bins.bin[item], number, other, following, looks = 0
    cdef double more, gain
    for number in range(bins.open_end):
        if number == source or bins.count[number] == 0 or not bins.can_read(item, number):
            continue
        if _cross_rack_cost(bins, item, number) >= toll:
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
