"""Step 1, evict: from each overloaded consumer the least load whose removal makes it fit.

A partition larger than the consumer keeps it for itself. Up to `SUBSETS` partitions every subset is
tried; with more, the smallest that is enough by itself goes, else the largest, and so on.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef enum:
    SUBSETS = 12


def evict(Bins bins):
    """Make loose what the overloaded bins cannot hold."""
    cdef int number
    for number in range(bins.top):
        if bins.count[number] > 1 and bins.load[number] > bins.capacity[number]:
            _relieve(bins, number)


cdef void _relieve(Bins bins, int number) noexcept:
    cdef int giant = _larger_than_bin(bins, number)
    if giant >= 0:
        bins.empty(number)
        bins.put(giant, number)
    elif bins.count[number] <= SUBSETS:
        _take_least(bins, number)
    else:
        while bins.load[number] > bins.capacity[number]:
            bins.take(_next_best(bins, number))


cdef int _larger_than_bin(Bins bins, int number) noexcept:
    cdef int item = bins.head[number]
    while item >= 0 and bins.weight[item] <= bins.capacity[number]:
        item = bins.next[item]
    return item


cdef void _take_least(Bins bins, int number) noexcept:
    """Take the subset of least load that is enough."""
    cdef double over = bins.load[number] - bins.capacity[number]
    cdef double least = bins.load[number] + 1.0, load
    cdef int held[SUBSETS]
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
            bins.take(held[i])


cdef int _next_best(Bins bins, int number) noexcept:
    """Return the smallest that is enough by itself, else the largest."""
    cdef double over = bins.load[number] - bins.capacity[number]
    cdef int item = bins.head[number], enough = -1, largest = item
    while item >= 0:
        if bins.weight[item] > bins.weight[largest]:
            largest = item
        if bins.weight[item] >= over and (enough < 0 or bins.weight[item] < bins.weight[enough]):
            enough = item
        item = bins.next[item]
    return enough if enough >= 0 else largest
