"""Declarations of `json_text.pyx`, for the columns."""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    MAX_DEPTH = 1000


@cython.final
cdef class Buffer:
    cdef uint8_t* data
    cdef Py_ssize_t size
    cdef Py_ssize_t capacity

    cdef int grow(self, Py_ssize_t more) except -1
    cdef int add_zeros(self, Py_ssize_t count) except -1

    cdef inline int reserve(self, Py_ssize_t more) except -1:
        return 0 if self.size + more <= self.capacity else self.grow(more)

    cdef inline int add(self, const void* data, Py_ssize_t size) except -1:
        self.reserve(size)
        memcpy(self.data + self.size, data, size)
        self.size += size
        return 0

    cdef inline int add_byte(self, uint8_t value) except -1:
        self.reserve(1)
        self.data[self.size] = value
        self.size += 1
        return 0

    cdef inline int32_t last_int32(self) noexcept:
        return (<int32_t*>(self.data + self.size) - 1)[0]


@cython.final
cdef class Cursor:
    cdef const uint8_t* begin
    cdef const uint8_t* at
    cdef const uint8_t* end
    # string, in UTF-8 without escapes
    cdef const uint8_t* text
    cdef Py_ssize_t size
    cdef Buffer unescaped
    # number: digits * 10 ** exponent
    cdef const uint8_t* number
    cdef bint negative
    cdef bint has_exponent
    cdef uint64_t digits
    cdef bint is_whole  # `digits` has all of them
    cdef int64_t exponent
    cdef uint8_t[MAX_DEPTH] closing
    cdef Py_ssize_t item_bytes  # memory of the items of lists and maps, without their text

    cdef int fail(self) except -1
    cdef int read_word(self, const char* word, Py_ssize_t size) except -1
    cdef bint is_number_name(self) noexcept
    cdef int read_number(self) except -1
    cdef int read_digits(self, int fraction) except -1
    cdef int read_exponent(self) except -1
    cdef int read_string(self) except -1
    cdef int read_escaped(self) except -1
    cdef int read_escape(self) except -1
    cdef int read_code_point(self) except -1
    cdef int read_hex(self) except -1
    cdef int add_character(self, int code) except -1
    cdef int skip_value(self) except -1
    cdef int skip_key(self, int opening) except -1
    cdef int skip_scalar(self, int byte) except -1
    cdef str quote(self, const uint8_t* start)
    cdef bint ends_digits(self) noexcept

    cdef inline int peek(self) noexcept:
        """Return the next byte that is no blank, -1 at the end."""
        cdef uint8_t byte
        while self.at < self.end:
            byte = self.at[0]
            if byte > c' ' or not (byte == c' ' or byte == c'\n' or byte == c'\r' or byte == c'\t'):
                return byte
            self.at += 1
        return -1

    cdef inline int expect(self, int byte) except -1:
        if self.peek() != byte:
            self.fail()
        self.at += 1
        return 0
