"""The objective of a decision, and its last term, for the bins' bookkeeping to inline.

In consumers, the least is the best:

    bins in use + λ · (Σ over moved partitions of (w_i + TOUCH · C) + β · Σ over bins of E) / C
                + κ · Σ over partitions that cross racks of w_i / C

λ, β and κ are knobs (`knobs.py`), C the capacity of a consumer to be added (closed mode: the mean
of the members'), w_i a partition's load, and TOUCH = 0.0001, so that an idle partition stays, too.
In closed mode the consumers run anyway, so a bin costs nothing.

E is what a bin is expected to evict at the next tick. Its load is then taken as normal: `slack` is
the room that its expected load leaves, `deviation` the root of its variance. Of an overflow o the
bin evicts the smallest partition of at least o, so with sizes w_1 ≤ w_2 ≤ … it evicts

    Σ_i (w_i − w_{i−1}) · Q((slack + w_{i−1}) / deviation),   w_0 = 0

where Q is the upper tail, and what is farther than four deviations is not looked at. With many
partitions some subset comes as near to o as one likes, and the sum becomes the mean overflow,
deviation · (φ(z) − z·Q(z)) at z = slack / deviation. That holds from 24 partitions on.

The sizes are what the partitions will weigh *if* the bin overflows: w_i, and the drift that is
forecast (none, in Trimtab), and as much of the overflow as is partition i's share of the variance.
The largest partition always stays, so a bin with one evicts nothing; and a bin whose load cannot
change evicts what it is over by.
"""

from libc.math cimport erfc, exp


cdef inline double upper_tail(double z) noexcept nogil:
    """Return the chance that a standard normal exceeds z."""
    return 0.5 * erfc(z * 0.7071067811865476)


cdef inline double mean_overflow(double slack, double deviation) noexcept nogil:
    """Return the mean of max(0, load − capacity)."""
    cdef double z = slack / deviation
    return deviation * (0.3989422804014327 * exp(-0.5 * z * z) - z * upper_tail(z))


cdef inline double mean_evicted(
    double *sizes, int count, double slack, double deviation
) noexcept nogil:
    """Return what is evicted of partitions of rising sizes; the largest always stays."""
    cdef double expected = 0.0
    cdef double below = 0.0
    cdef int i
    for i in range(count - 1):
        if slack + below > 4.0 * deviation:
            break
        expected += (sizes[i] - below) * upper_tail((slack + below) / deviation)
        below = sizes[i]
    return expected
