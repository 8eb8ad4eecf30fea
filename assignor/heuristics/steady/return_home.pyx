"""Step 3, homeward: a moved partition returns, or swaps with one at its home, where that pays.

After it no single move can be taken back at a gain: every move has a reason.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double GAIN = 1e-9  # consumers; less is noise of the sums
cdef enum:
    ROUNDS = 8


def homeward(Bins bins, int[::1] order):
    """Bring moved items home, in the order given, while the objective falls."""
    cdef int i
    cdef bint changed
    for _ in range(ROUNDS):
        changed = False
        for i in range(order.shape[0]):
            if bins.bin[order[i]] >= 0 and bins.away(order[i], bins.bin[order[i]]):
                changed |= _return(bins, order[i])
        if not changed:
            break


cdef bint _return(Bins bins, int item) noexcept:
    cdef int home = bins.home[item]
    if not bins.reads(item, home):
        return False
    if bins.count[home] == 0 or bins.has_room(item, home):
        if bins.price(item, home) < bins.relief(item) - GAIN:
            bins.take(item)
            bins.put(item, home)
            return True
    return _swap(bins, item, home)


cdef bint _swap(Bins bins, int item, int home) noexcept:
    """Exchange the item with the first at its home that makes it pay."""
    cdef int source = bins.bin[item], other = bins.head[home], following
    cdef double w = bins.weight[item], more
    while other >= 0:
        following = bins.next[other]
        more = w - bins.weight[other]  # load that goes from the source to home
        if (
            bins.load[home] + more <= bins.capacity[home]
            and bins.load[source] - more <= bins.capacity[source]
            and (more > 0 or bins.away(other, home))
            and bins.reads(other, source)
            and bins.exchange(item, other)
        ):
            return True
        other = following
    return False
