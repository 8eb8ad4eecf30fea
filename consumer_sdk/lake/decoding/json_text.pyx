"""Reads the text of one JSON value: RFC 8259 in UTF-8, with no lone surrogate and at most 1000 levels."""

cimport cython
from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memset

cdef enum:
    MAX_EXPONENT = 1_000_000_000
    QUOTED_CHARACTERS = 60

NOT_UTF8 = "not UTF-8"
NOT_JSON = "not valid JSON"
LONE_SURROGATE = "a lone surrogate, which is no character"
TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

cdef uint8_t[256] _PLAIN  # whether a byte of text stands for itself, without a look at its neighbours


cdef void _fill_table() noexcept:
    cdef int at
    for at in range(256):
        _PLAIN[at] = 0x20 <= at < 0x80 and at != c'"' and at != c'\\'


_fill_table()


class RefusedError(ValueError):
    """The record is a dead letter; the text is the reason: a problem, and ": " before the value, if any."""


class OutOfRangeError(RefusedError):
    """A value outside the range of its type, behind which the cursor is."""


@cython.final
cdef class Buffer:
    """Bytes that grow, and become an Arrow buffer without a copy."""

    def __cinit__(self):
        self.reserve(64)

    def __dealloc__(self):
        free(self.data)

    def __getbuffer__(self, Py_buffer* view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, 1, flags)

    cdef int grow(self, Py_ssize_t more) except -1:
        cdef Py_ssize_t capacity = max(2 * self.capacity, self.size + more)
        cdef void* data = realloc(self.data, capacity)
        if data == NULL:
            raise MemoryError
        self.data = <uint8_t*>data
        self.capacity = capacity
        return 0

    cdef int add_zeros(self, Py_ssize_t count) except -1:
        self.reserve(count)
        memset(self.data + self.size, 0, count)
        self.size += count
        return 0


@cython.final
cdef class Cursor:
    """A place in the text of one value, and the last string and number that were read."""

    def __cinit__(self):
        self.unescaped = Buffer()

    cdef int fail(self) except -1:
        text = self.at[:min(self.end - self.at, QUOTED_CHARACTERS)].decode("utf-8", "replace")
        raise RefusedError(f"{NOT_JSON}: at byte {self.at - self.begin + 1}, {text or 'its end'}")

    cdef int read_word(self, const char* word, Py_ssize_t size) except -1:
        if self.end - self.at < size or memcmp(self.at, word, size):
            self.fail()
        self.at += size
        return 0

    cdef bint is_number_name(self) noexcept:
        """Return whether NaN or Infinity may follow, which many writers take for JSON."""
        cdef const uint8_t* at = self.at + (self.at[0] == c'-')
        return at < self.end and (at[0] == c'N' or at[0] == c'I')

    cdef bint ends_digits(self) noexcept:
        return self.at >= self.end or self.at[0] < c'0' or self.at[0] > c'9'

    cdef int read_number(self) except -1:
        self.number = self.at
        self.negative = self.at[0] == c'-'
        self.at += self.negative
        self.digits, self.exponent, self.is_whole, self.has_exponent = 0, 0, True, False
        if self.at < self.end and self.at[0] == c'0':
            self.at += 1
        else:
            self.read_digits(0)
        if self.at < self.end and self.at[0] == c'.':
            self.at += 1
            self.read_digits(1)
        if self.at < self.end and (self.at[0] == c'e' or self.at[0] == c'E'):
            self.at += 1
            self.read_exponent()
        return 0

    cdef int read_digits(self, int fraction) except -1:
        cdef uint8_t digit
        if self.ends_digits():
            self.fail()
        while not self.ends_digits():
            digit = self.at[0] - c'0'
            self.at += 1
            if self.digits < 1_000_000_000_000_000_000:
                self.digits = self.digits * 10 + digit
                self.exponent -= fraction
            else:
                self.is_whole = self.is_whole and digit == 0
                self.exponent += 1 - fraction
        return 0

    cdef int read_exponent(self) except -1:
        cdef int64_t exponent = 0
        cdef bint negative = False
        self.has_exponent = True
        if self.at < self.end and (self.at[0] == c'-' or self.at[0] == c'+'):
            negative = self.at[0] == c'-'
            self.at += 1
        if self.ends_digits():
            self.fail()
        while not self.ends_digits():
            if exponent < MAX_EXPONENT:
                exponent = exponent * 10 + self.at[0] - c'0'
            self.at += 1
        self.exponent += -exponent if negative else exponent
        return 0

    cdef int read_string(self) except -1:
        """Read the string behind an opening quote."""
        cdef const uint8_t* at = self.at
        cdef bint is_wide = False
        while at < self.end:
            if _PLAIN[at[0]]:
                at += 1
            elif at[0] == c'"':
                self.text, self.size = self.at, at - self.at
                self.at = at + 1
                return _check_utf8(self.text, self.size) if is_wide else 0
            elif at[0] == c'\\':
                return self.read_escaped()
            elif at[0] < c' ':
                break
            else:
                is_wide = True
                at += 1
        self.at = at
        return self.fail()

    cdef int read_escaped(self) except -1:
        self.unescaped.size = 0
        while self.at < self.end and self.at[0] >= c' ':
            if self.at[0] == c'"':
                self.at += 1
                self.text, self.size = self.unescaped.data, self.unescaped.size
                return _check_utf8(self.text, self.size)
            if self.at[0] == c'\\':
                self.read_escape()
            else:
                self.unescaped.add_byte(self.at[0])
                self.at += 1
        return self.fail()

    cdef int read_escape(self) except -1:
        cdef int byte = self.at[1] if self.end - self.at > 1 else 0
        cdef const char* meaning = b'""\\\\//b\bf\fn\nr\rt\t'
        if byte == c'u':
            self.at += 2
            return self.add_character(self.read_code_point())
        while meaning[0]:
            if meaning[0] == byte:
                self.at += 2
                return self.unescaped.add_byte(meaning[1])
            meaning += 2
        return self.fail()

    cdef int read_code_point(self) except -1:
        cdef int first = self.read_hex(), second
        if not 0xD800 <= first < 0xE000:
            return first
        if first < 0xDC00 and self.end - self.at >= 6 and self.at[0] == c'\\' and self.at[1] == c'u':
            self.at += 2
            second = self.read_hex()
            if 0xDC00 <= second < 0xE000:
                return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00)
        raise RefusedError(LONE_SURROGATE)

    cdef int read_hex(self) except -1:
        cdef int value = 0, byte, _
        for _ in range(4):
            byte = self.at[0] if self.at < self.end else 0
            if c'0' <= byte <= c'9':
                value = value * 16 + byte - c'0'
            elif c'a' <= (byte | 0x20) <= c'f':
                value = value * 16 + (byte | 0x20) - c'a' + 10
            else:
                self.fail()
            self.at += 1
        return value

    cdef int add_character(self, int code) except -1:
        if code < 0x80:
            return self.unescaped.add_byte(code)
        if code < 0x800:
            self.unescaped.add_byte(0xC0 | code >> 6)
        else:
            if code < 0x10000:
                self.unescaped.add_byte(0xE0 | code >> 12)
            else:
                self.unescaped.add_byte(0xF0 | code >> 18)
                self.unescaped.add_byte(0x80 | code >> 12 & 0x3F)
            self.unescaped.add_byte(0x80 | code >> 6 & 0x3F)
        return self.unescaped.add_byte(0x80 | code & 0x3F)

    cdef int skip_value(self) except -1:
        """Read any value; without recursion, which a value could make as deep as it likes."""
        cdef int depth = 0, byte
        while True:
            byte = self.peek()
            if byte == c'{' or byte == c'[':
                if depth == MAX_DEPTH:
                    raise RefusedError(TOO_DEEP)
                self.at += 1
                self.closing[depth] = byte + 2
                if self.peek() != byte + 2:
                    depth += 1
                    self.skip_key(byte)
                    continue
                self.at += 1
            else:
                self.skip_scalar(byte)
            while depth and self.peek() == self.closing[depth - 1]:
                self.at += 1
                depth -= 1
            if not depth:
                return 0
            self.expect(c',')
            self.skip_key(self.closing[depth - 1] - 2)

    cdef int skip_key(self, int opening) except -1:
        if opening == c'[':
            return 0
        self.expect(c'"')
        self.read_string()
        return self.expect(c':')

    cdef int skip_scalar(self, int byte) except -1:
        if byte == c'"':
            self.at += 1
            return self.read_string()
        if byte == c't':
            return self.read_word(b"true", 4)
        if byte == c'f':
            return self.read_word(b"false", 5)
        if byte == c'n':
            return self.read_word(b"null", 4)
        if byte == c'-' or c'0' <= byte <= c'9':
            return self.read_number()
        return self.fail()

    cdef str quote(self, const uint8_t* start):
        """Return the text from a place to this one, shortened."""
        cdef Py_ssize_t size = self.at - start
        text = start[:min(size, 4 * QUOTED_CHARACTERS)].decode("utf-8", "replace")
        return text if len(text) <= QUOTED_CHARACTERS else f"{text[:QUOTED_CHARACTERS]}…"


cdef int _check_utf8(const uint8_t* text, Py_ssize_t size) except -1:
    cdef const uint8_t* end = text + size
    cdef int length
    while text < end:
        if text[0] < 0x80:
            text += 1
            continue
        length = _measure_character(text, end - text)
        if not length:
            raise RefusedError(NOT_UTF8)
        text += length
    return 0


cdef int _measure_character(const uint8_t* text, Py_ssize_t left) noexcept:
    """Return the bytes of a character beyond ASCII, 0 if there is none."""
    cdef uint8_t first = text[0]
    cdef int length = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
    cdef uint8_t lowest = 0x90 if first == 0xF0 else 0xA0 if first == 0xE0 else 0x80  # no longer than need be
    cdef uint8_t highest = 0x8F if first == 0xF4 else 0x9F if first == 0xED else 0xBF  # no surrogate
    if first < 0xC2 or first > 0xF4 or left < length or not lowest <= text[1] <= highest:
        return 0
    cdef int at
    for at in range(2, length):
        if text[at] & 0xC0 != 0x80:
            return 0
    return length
