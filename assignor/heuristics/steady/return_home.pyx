"""Step 3, return home: a moved partition returns, or swaps with one at its home, at a gain.

Afterwards no single move can be reverted at a gain: every move has a reason.
"""

from trimtab.assignor.heuristics.steady.bins cimport Bins

cdef double MIN_GAIN = 1e-9  # consumers; less is noise of the sums
cdef enum:
    MAX_RETURN_ROUNDS = 8


def return_items_home(Bins bins, int[::1] order):
    """Return moved items home, in the order given, while the objective falls."""
    cdef int i
    cdef bint changed
    for _ in range(MAX_RETURN_ROUNDS):
        changed = False
        for i in range(order.shape[0]):
            if bins.bin[order[i]] >= 0 and bins.is_moved(order[i], bins.bin[order[i]]):
                changed |= _return_item(bins, order[i])
        if not changed:
            break


cdef bint _return_item(Bins bins, int item) noexcept:
    cdef int home = bins.home[item]
    if not bins.can_read(item, home):
        return False
    if bins.count[home] == 0 or bins.has_room(item, home):
        if bins.insertion_cost(item, home) < bins.removal_gain(item) - MIN_GAIN:
            bins.remove_item(item)
            bins.place_item(item, home)
            return True
    return _swap_with_home_item(bins, item, home)


cdef bint _swap_with_home_item(Bins bins, int item, int home) noexcept:
    """Swap the item with the first one at its home that lowers the objective."""
    cdef int source = bins.bin[item], other = bins.head[home], following
    cdef double w = bins.weight[item], more
    while other >= 0:
        following = bins.next[other]
        more = w - bins.weight[other]  # load that goes from the source to home
        if (
            bins.load[home] + more <= bins.capacity[home]
            and bins.load[source] - more <= bins.capacity[source]
            and (more > 0 or bins.is_moved(other, home))
            and bins.can_read(other, source)
            and bins.swap_if_better(item, other)
        ):
            return True
        other = following
    return False
