"""Declarations of `bins.pyx`, for the steps that work on it."""

cimport cython


cdef struct Change:
    int item
    int bin
    double objective  # this and the others: before the change, of the bin
    double load
    double risk
    double drift
    double variance


@cython.final
cdef class Bins:
    cdef readonly int items, members, total, open_end
    cdef readonly double objective
    cdef double bin_cost, eviction_cost
    cdef const double[::1] weight, drift, variance, move_cost
    cdef double[::1] capacity, load, load_drift, load_variance, risk
    cdef const int[::1] home, topic, rack_of_bin
    cdef const double[:, ::1] cross_rack_cost
    cdef int[::1] bin, next, prev, head, count
    cdef const unsigned char[:, ::1] readers
    cdef bint all_read, has_rack_costs
    cdef Change[::1] journal
    cdef int journal_length
    cdef bint journalling

    cdef bint can_read(self, int item, int number) noexcept nogil
    cdef bint has_room(self, int item, int number) noexcept nogil
    cdef bint is_moved(self, int item, int number) noexcept nogil
    cdef double item_cost(self, int item, int number) noexcept nogil
    cdef double expected_eviction(self, int number, int joins, int leaves) noexcept nogil
    cdef double insertion_cost(self, int item, int number) noexcept nogil
    cdef double least_insertion_cost(self, int item, int number) noexcept nogil
    cdef double removal_gain(self, int item) noexcept nogil
    cdef void place_item(self, int item, int number) noexcept nogil
    cdef void remove_item(self, int item) noexcept nogil
    cdef bint swap_if_better(self, int item, int other) noexcept nogil
    cdef void empty_bin(self, int number) noexcept nogil
    cdef int find_closed_bin(self, int item) noexcept nogil
    cdef void begin_change(self) noexcept nogil
    cdef void keep_change(self) noexcept nogil
    cdef void undo_change(self) noexcept nogil
    cdef void _link_item(self, int item, int number) noexcept nogil
    cdef void _unlink_item(self, int item, int number) noexcept nogil
    cdef void _update_risk(self, int number) noexcept nogil
    cdef void _record_change(self, int item, int number) noexcept nogil
    cdef int _sort_overflow_sizes(
        self, int number, int joins, int leaves, double share, double *sizes
    ) noexcept nogil
