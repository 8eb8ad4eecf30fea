"""The objective of a decision, with inline functions for its expected evictions.

It is minimized, in consumers:

    bins in use + λ · (Σ over moved partitions of (w_i + BASE · C) + β · Σ over bins of E) / C
                + κ · Σ over cross-rack partitions of w_i / C

λ, β and κ are parameters (`params.py`), C is the capacity of an added consumer (closed mode: the
mean of the members'), w_i a partition's load, and BASE = 0.0001 (`MOVE_BASE_LOAD`), so that idle
partitions stay, too. In closed mode a bin costs nothing, since the consumers run anyway.

E is the load a bin is expected to evict at the next tick. Its load is then normal: `slack` is the
capacity less the expected load, `deviation` the root of its variance. At an overflow o the bin
evicts the smallest partition of at least o, so with sizes w_1 ≤ w_2 ≤ … it evicts

    Σ_i (w_i − w_{i−1}) · Q((slack + w_{i−1}) / deviation),   w_0 = 0

where Q is the upper tail; terms beyond four deviations are ignored. With many partitions some
subset matches o closely, and the sum becomes the mean overflow, deviation · (φ(z) − z·Q(z)) at
z = slack / deviation. That holds from 24 partitions on.

The sizes are the weights *if* the bin overflows: w_i, plus the forecast drift (0 in Trimtab), plus
partition i's share of the overflow by variance. The largest partition always stays, so a bin with
one evicts nothing; a bin of constant load evicts its excess.
"""

from libc.math cimport erfc, exp


cdef inline double upper_tail(double z) noexcept nogil:
    """Return the probability that a standard normal exceeds z."""
    return 0.5 * erfc(z * 0.7071067811865476)


cdef inline double mean_overflow(double slack, double deviation) noexcept nogil:
    """Return the mean of max(0, load − capacity)."""
    cdef double z = slack / deviation
    return deviation * (0.3989422804014327 * exp(-0.5 * z * z) - z * upper_tail(z))


cdef inline double mean_evicted(
    double *sizes, int count, double slack, double deviation
) noexcept nogil:
    """Return the mean evicted load of partitions of rising sizes; the largest stays."""
    cdef double expected = 0.0
    cdef double below = 0.0
    cdef int i
    for i in range(count - 1):
        if slack + below > 4.0 * deviation:
            break
        expected += (sizes[i] - below) * upper_tail((slack + below) / deviation)
        below = sizes[i]
    return expected
