"""Step 3a, nearer: what crosses racks goes where it does not, or changes places with what is there.

Each such partition, in the order given, takes the first of these that lets the objective fall: the
member with room where it falls most; else an exchange with a partition of another member, by which
neither gets above `ceiling` or, where it was above `floor`, below that (shares of its capacity). An
exchange is looked for among `LOOKS` partitions at most, as long as `WORK` lasts.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double GAIN = 1e-9  # consumers; less is noise of the sums
cdef enum:
    ROUNDS = 4
    LOOKS = 2000
    WORK = 600000  # looks in all
    TRIED = 20  # looks that an exchange counts which is tried


cdef struct Band:
    double floor
    double ceiling
    int work


def nearer(Bins bins, int[::1] order, double floor=0.0, double ceiling=1.0):
    """Bring items to their racks while the objective falls."""
    cdef Band band
    cdef int i
    cdef bint changed
    band.floor, band.ceiling, band.work = floor, ceiling, WORK
    if not bins.tolled:
        return
    for _ in range(ROUNDS):
        changed = False
        for i in range(order.shape[0]):
            if bins.bin[order[i]] >= 0 and _toll(bins, order[i], bins.bin[order[i]]) > GAIN:
                changed |= _bring(bins, order[i], &band)
        if not changed:
            break


cdef inline double _toll(Bins bins, int item, int number) noexcept nogil:
    return bins.toll[item, bins.rack[number]]


cdef bint _bring(Bins bins, int item, Band *band) noexcept:
    cdef int source = bins.bin[item], number, best = -1
    cdef double toll = _toll(bins, item, source), relief = bins.relief(item)
    cdef double price, least = relief - GAIN
    for number in range(bins.top):
        if number == source or bins.count[number] == 0 or _toll(bins, item, number) >= toll:
            continue
        if bins.reads(item, number) and _stays(bins, source, number, bins.weight[item], band):
            price = bins.price(item, number)
            if price < least:
                least, best = price, number
    if best >= 0:
        bins.take(item)
        bins.put(item, best)
        return True
    return _swap(bins, item, toll, band)


cdef bint _stays(Bins bins, int source, int target, double load, Band *band) noexcept nogil:
    """Tell whether both stay in the band if so much goes from the one to the other."""
    cdef double rest = bins.load[source] - load, after = bins.load[target] + load
    if after > max(band.ceiling * bins.capacity[target], bins.load[target]):
        return False
    if rest > max(band.ceiling * bins.capacity[source], bins.load[source]):
        return False
    if rest < min(band.floor * bins.capacity[source], bins.load[source]):
        return False
    return after >= min(band.floor * bins.capacity[target], bins.load[target])


cdef bint _swap(Bins bins, int item, double toll, Band *band) noexcept:
    """Exchange the item with the first of another member that makes it pay."""
    cdef int source = bins.bin[item], number, other, following, looks = 0
    cdef double more, gain
    for number in range(bins.top):
        if number == source or bins.count[number] == 0 or not bins.reads(item, number):
            continue
        if _toll(bins, item, number) >= toll:
            continue
        gain = bins.bill(item, source) - bins.bill(item, number)
        other = bins.head[number]
        while other >= 0 and looks < min(LOOKS, band.work):
            following = bins.next[other]
            more = bins.weight[item] - bins.weight[other]
            looks += 1
            if (
                gain + bins.bill(other, number) - bins.bill(other, source) > GAIN
                and bins.reads(other, source)
                and _stays(bins, source, number, more, band)
            ):
                looks += TRIED
                if bins.exchange(item, other):
                    band.work -= looks
                    return True
            other = following
    band.work -= looks
    return False
