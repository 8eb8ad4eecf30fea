"""Declarations of `iso_times.pyx`, for the columns of times."""

from libc.stdint cimport int64_t, uint8_t

cdef enum:
    DAY_MICROS = 86_400_000_000

cdef int parse_time(const uint8_t* text, Py_ssize_t size, bint is_date, bint has_zone, int64_t* value) noexcept
