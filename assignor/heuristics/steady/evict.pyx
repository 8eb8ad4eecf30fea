"""Step 1, evict: remove from each overloaded consumer the least load that makes it fit.

A partition larger than its consumer stays there alone. With up to `MAX_ENUMERATED_ITEMS` partitions
all subsets are tried; with more, the smallest sufficient partition goes, else the largest, repeatedly.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef enum:
    MAX_ENUMERATED_ITEMS = 12


def evict_overload(Bins bins):
    """Remove the excess of the overloaded bins."""
    cdef int number
    for number in range(bins.open_end):
        if bins.count[number] > 1 and bins.load[number] > bins.capacity[number]:
            _relieve_bin(bins, number)


cdef void _relieve_bin(Bins bins, int number) noexcept:
    cdef int giant = _find_oversized_item(bins, number)
    if giant >= 0:
        bins.empty_bin(number)
        bins.place_item(giant, number)
    elif bins.count[number] <= MAX_ENUMERATED_ITEMS:
        _remove_least_subset(bins, number)
    else:
        while bins.load[number] > bins.capacity[number]:
            bins.remove_item(_find_next_eviction(bins, number))


cdef int _find_oversized_item(Bins bins, int number) noexcept:
    cdef int item = bins.head[number]
    while item >= 0 and bins.weight[item] <= bins.capacity[number]:
        item = bins.next[item]
    return item


cdef void _remove_least_subset(Bins bins, int number) noexcept:
    """Remove the sufficient subset of least load."""
    cdef double over = bins.load[number] - bins.capacity[number]
    cdef double least = bins.load[number] + 1.0, load
    cdef int held[MAX_ENUMERATED_ITEMS]
    cdef int count = 0, subset, best = 0, i
    cdef int item = bins.head[number]
    while item >= 0:
        held[count] = item
        count += 1
        item = bins.next[item]
    for subset in range(1, 1 << count):
        load = 0.0
        for i in range(count):
            if subset >> i & 1:
                load += bins.weight[held[i]]
        if over <= load < least:
            least, best = load, subset
    for i in range(count):
        if best >> i & 1:
            bins.remove_item(held[i])


cdef int _find_next_eviction(Bins bins, int number) noexcept:
    """Return the smallest item that is sufficient alone, else the largest."""
    cdef double over = bins.load[number] - bins.capacity[number]
    cdef int item = bins.head[number], enough = -1, largest = item
    while item >= 0:
        if bins.weight[item] > bins.weight[largest]:
            largest = item
        if bins.weight[item] >= over and (enough < 0 or bins.weight[item] < bins.weight[enough]):
            enough = item
        item = bins.next[item]
    return enough if enough >= 0 else largest
