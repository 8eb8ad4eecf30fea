"""Declarations of `bins.pyx`, for the steps that work on it."""

cimport cython


@cython.final
cdef class Bins:
    cdef readonly int items, members, total, top
    cdef readonly double value
    cdef double bin_cost, risk_cost
    cdef const double[::1] weight, drift, variance, fare
    cdef double[::1] capacity, load, load_drift, load_variance, risk
    cdef const int[::1] home, topic, rack
    cdef const double[:, ::1] toll
    cdef int[::1] bin, next, prev, head, count
    cdef const unsigned char[:, ::1] readers
    cdef bint all_read, tolled
    cdef int[::1] journal_item, journal_bin
    cdef int journal_length
    cdef bint journalling

    cdef bint reads(self, int item, int number) noexcept nogil
    cdef bint has_room(self, int item, int number) noexcept nogil
    cdef bint away(self, int item, int number) noexcept nogil
    cdef double bill(self, int item, int number) noexcept nogil
    cdef double danger(self, int number, int joins, int leaves) noexcept nogil
    cdef double price(self, int item, int number) noexcept nogil
    cdef double relief(self, int item) noexcept nogil
    cdef void put(self, int item, int number) noexcept nogil
    cdef void take(self, int item) noexcept nogil
    cdef bint exchange(self, int item, int other) noexcept nogil
    cdef void empty(self, int number) noexcept nogil
    cdef int free_bin(self, int item) noexcept nogil
    cdef void mark(self) noexcept nogil
    cdef void keep(self) noexcept nogil
    cdef void undo(self) noexcept nogil
    cdef void _link(self, int item, int number) noexcept nogil
    cdef void _unlink(self, int item, int number) noexcept nogil
    cdef void _weigh(self, int number) noexcept nogil
    cdef void _note(self, int item, int number) noexcept nogil
    cdef int _sizes(
        self, int number, int joins, int leaves, double share, double *sizes
    ) noexcept nogil
