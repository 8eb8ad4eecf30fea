"""Reads JSON objects into Arrow columns: each value exactly, or the record is a dead letter.

1. A value is one JSON object of RFC 8259 in UTF-8, with no lone surrogate and at most 1000 levels. Other
   fields are only checked for grammar.
2. A key names a column in any case. A second key of the column is refused, and so is one of a MAP.
3. `_Column.read` of each type is its rule: what it accepts becomes that value, and nothing is rounded but
   a fraction in DOUBLE and FLOAT, to the nearest one.
4. A record whose lists and maps would take more than MAX_ITEM_BYTES of memory is refused: a struct of many
   columns takes it for `{}`, too.
5. A record that is refused leaves no value behind in any column: `_Column.truncate`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from libc.math cimport HUGE_VAL, nextafterf
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp, memcpy

from trimtab.consumer_sdk.lake.decoding.iso_times cimport parse_time
from trimtab.consumer_sdk.lake.decoding.json_text cimport Buffer, Cursor

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from trimtab.consumer_sdk.lake.decoding.json_settings import EPOCH_SCALES, EVERY_COLUMN
from trimtab.consumer_sdk.lake.decoding.json_text import OutOfRangeError, RefusedError

cdef extern from *:
    """
    typedef unsigned __int128 trimtab_uint128;
    """
    ctypedef uint64_t uint128 "trimtab_uint128"  # for C only: Python would get half of it

cdef extern from "Python.h":
    double PyOS_string_to_double(const char* text, char** end, PyObject* overflow) except? -1.0

cdef enum:
    QUOTED_CHARACTERS = 60
    SURE_DIGITS = 19  # in 64 bits
    MAX_DIGITS = 38  # of DECIMAL, in 128 bits
    KNOWN_KEYS = 10_000
    MAX_ITEM_BYTES = 512_000_000

NOT_AN_OBJECT = "not one JSON object"
TOO_MANY_ITEMS = f"more values than {MAX_ITEM_BYTES // 1_000_000} MB of columns hold"
# beyond the years 1 to 9999, as Debezium and Java write it
_FAR_TIME = re.compile(rb"-?infinity|([+-]\d{4,9}|\d{5,9})-\d\d-\d\d([T ].*)?")
_NO_ISO = "not an ISO 8601"
_NUMBER_FOR_TIME = "a number without a rule of lake.timestamps for"

cdef uint128[39] _POWERS
cdef double[23] _DOUBLE_POWERS


cdef void _fill_tables() noexcept:
    cdef int at
    _POWERS[0] = 1
    for at in range(1, 39):
        _POWERS[at] = _POWERS[at - 1] * 10
    _DOUBLE_POWERS[0] = 1.0
    for at in range(1, 23):
        _DOUBLE_POWERS[at] = _DOUBLE_POWERS[at - 1] * 10.0


_fill_tables()


cdef class _Column:
    """Values of one column; while all are null it takes no memory."""

    cdef object kind
    cdef str type_name
    cdef Py_ssize_t length
    cdef Py_ssize_t nulls
    cdef bint is_begun
    cdef bint nulls_outside  # a value out of range of its type is null
    cdef bint is_spared  # and so is any other that the type does not take
    cdef Buffer valid  # a byte for each value
    cdef Py_ssize_t blank_bytes  # memory of a null, unless all are

    def __init__(self, kind):
        self.kind = kind
        self.type_name = name_type(kind)
        self.valid = Buffer()
        self.blank_bytes = 1

    # Reads a value that is not null; the cursor is at its first byte.
    cdef int read(self, Cursor cursor) except -1:
        raise NotImplementedError

    # The data of that many nulls.
    cdef int add_blanks(self, Py_ssize_t count) except -1:
        return 0

    # Drops the data behind that many values.
    cdef int cut(self, Py_ssize_t length) except -1:
        return 0

    # The Arrow array, with a buffer of validity or None.
    cdef object build(self, object validity):
        raise NotImplementedError

    # Path of the value whose read failed, within this column.
    cdef str find_place(self):
        return ""

    cdef inline int read_any(self, Cursor cursor) except -1:
        cdef int byte = cursor.peek()
        if byte == c'n':
            cursor.read_word(b"null", 4)
            return self.add_nulls(1)
        if byte < 0:
            return cursor.fail()
        if not self.is_begun:
            self.begin()
        return self.read_limited(cursor) if self.nulls_outside or self.is_spared else self.read(cursor)

    cdef int read_limited(self, Cursor cursor) except -1:
        cdef Py_ssize_t length = self.length
        cdef const uint8_t* start = cursor.at
        try:
            return self.read(cursor)
        except RefusedError as error:
            if not self.is_spared and not isinstance(error, OutOfRangeError):
                raise
        self.truncate(length)
        cursor.at = start
        cursor.skip_value()
        return self.add_nulls(1)

    cdef int begin(self) except -1:
        self.is_begun = True
        self.valid.add_zeros(self.length)
        return self.add_blanks(self.length)

    cdef int add_nulls(self, Py_ssize_t count) except -1:
        if self.is_begun:
            self.valid.add_zeros(count)
            self.add_blanks(count)
        self.length += count
        self.nulls += count
        return 0

    cdef inline int mark_value(self) except -1:
        self.length += 1
        return self.valid.add_byte(1)

    cdef int truncate(self, Py_ssize_t length) except -1:
        cdef Py_ssize_t at
        for at in range(length, self.length):
            self.nulls -= not self.is_begun or not self.valid.data[at]
        self.length = length
        if self.is_begun:
            self.valid.size = length
            self.cut(length)
        return 0

    cdef object finish(self):
        if not self.is_begun:
            return pa.nulls(self.length, self.kind)
        return self.build(_pack_bits(self.valid) if self.nulls else None)

    cdef int refuse(self, Cursor cursor, const uint8_t* start, str problem) except -1:
        raise RefusedError(f"{problem} {self.type_name}: {cursor.quote(start)}")

    cdef int refuse_range(self, Cursor cursor, const uint8_t* start) except -1:
        raise OutOfRangeError(f"out of range of {self.type_name}: {cursor.quote(start)}")

    cdef int refuse_kind(self, Cursor cursor) except -1:
        """Refuse the value at the cursor, which is of another kind; it must be JSON nevertheless."""
        cdef const uint8_t* start = cursor.at
        if cursor.is_number_name():
            while cursor.at < cursor.end and cursor.at[0] not in b",]} \t\r\n":
                cursor.at += 1
        else:
            cursor.skip_value()
        return self.refuse(cursor, start, "not of type")


cdef object _pack_bits(Buffer bytes):
    return pa.py_buffer(np.packbits(np.frombuffer(bytes, np.uint8), bitorder="little"))


cdef class _FixedColumn(_Column):
    """Values of one width."""

    cdef Buffer data
    cdef int width

    def __init__(self, kind):
        super().__init__(kind)
        self.data = Buffer()
        self.width = max(kind.bit_width // 8, 1)
        self.blank_bytes += self.width

    cdef int add_blanks(self, Py_ssize_t count) except -1:
        return self.data.add_zeros(count * self.width)

    cdef int cut(self, Py_ssize_t length) except -1:
        self.data.size = length * self.width
        return 0

    cdef inline int add_value(self, const void* value) except -1:
        self.data.add(value, self.width)
        return self.mark_value()

    cdef object build(self, object validity):
        return pa.Array.from_buffers(
            self.kind, self.length, [validity, pa.py_buffer(self.data)], null_count=self.nulls
        )

    cdef int read_number(self, Cursor cursor) except -1:
        if (cursor.at[0] != c'-' and not c'0' <= cursor.at[0] <= c'9') or cursor.is_number_name():
            return self.refuse_kind(cursor)
        return cursor.read_number()

    cdef int scale_number(self, Cursor cursor, int places, int precision, uint128* scaled) except -1:
        """Return the last number in units of 10 ** -places, without its sign."""
        cdef int64_t shift = cursor.exponent + places
        scaled[0] = cursor.digits
        if not cursor.is_whole:
            return self.scale_long_number(cursor, places, precision, scaled)
        if not cursor.digits:
            return 0
        while shift < 0:
            if scaled[0] % 10:
                return self.refuse(cursor, cursor.number, "not exact in")
            scaled[0] = scaled[0] // 10
            shift += 1
        if shift > MAX_DIGITS or scaled[0] >= _POWERS[precision]:
            return self.refuse_range(cursor, cursor.number)
        if shift and scaled[0] >= _POWERS[max(precision - shift, 0)]:
            return self.refuse_range(cursor, cursor.number)
        scaled[0] = scaled[0] * _POWERS[shift]
        return 0

    cdef int scale_long_number(self, Cursor cursor, int places, int precision, uint128* scaled) except -1:
        text = cursor.number[:cursor.at - cursor.number].lower().partition(b"e")[0]
        whole, _, fraction = text.lstrip(b"-").partition(b".")
        cdef int64_t shift = cursor.exponent + places
        # the exponent of `digits`, moved to the last digit that is none of the zeros at the end
        digits = (whole + fraction).lstrip(b"0")
        shift -= len(digits) - SURE_DIGITS
        kept = digits.rstrip(b"0")
        shift += len(digits) - len(kept)
        if shift < 0:
            return self.refuse(cursor, cursor.number, "not exact in")
        if len(kept) + shift > precision:
            return self.refuse_range(cursor, cursor.number)
        exact = int(kept + b"0" * shift).to_bytes(16, "little")
        memcpy(scaled, PyBytes_AS_STRING(exact), 16)
        return 0


cdef class _BooleanColumn(_FixedColumn):
    cdef int read(self, Cursor cursor) except -1:
        cdef uint8_t value = cursor.at[0] == c't'
        if value:
            cursor.read_word(b"true", 4)
        elif cursor.at[0] == c'f':
            cursor.read_word(b"false", 5)
        else:
            return self.refuse_kind(cursor)
        return self.add_value(&value)

    cdef object build(self, object validity):
        return pa.Array.from_buffers(
            self.kind, self.length, [validity, _pack_bits(self.data)], null_count=self.nulls
        )


cdef class _IntegerColumn(_FixedColumn):
    cdef int read(self, Cursor cursor) except -1:
        cdef uint128 magnitude
        self.read_number(cursor)
        self.scale_number(cursor, 0, SURE_DIGITS, &magnitude)
        if magnitude >= (<uint128>1 << (8 * self.width - 1)) + cursor.negative:
            return self.refuse_range(cursor, cursor.number)
        cdef uint64_t value = <uint64_t>magnitude
        value = 0 - value if cursor.negative else value
        return self.add_value(&value)  # little-endian: the lower bytes are the value


cdef class _DecimalColumn(_FixedColumn):
    """A number, or a text of one."""

    cdef int read(self, Cursor cursor) except -1:
        if cursor.at[0] != c'"':
            self.read_number(cursor)
            return self.add_number(cursor)
        cdef const uint8_t* start = cursor.at
        cursor.at += 1
        cursor.read_string()
        cdef Cursor inner = Cursor()
        inner.begin = inner.at = cursor.text
        inner.end = inner.at + cursor.size
        try:
            inner.skip_scalar(inner.at[0] if cursor.size else 0)
        except RefusedError:
            inner.at = inner.begin
        if inner.at != inner.end or inner.at == inner.begin or not c'0' <= (inner.end - 1)[0] <= c'9':
            return self.refuse(cursor, start, "not of type")
        return self.add_number(inner)

    cdef int add_number(self, Cursor cursor) except -1:
        cdef uint128 scaled
        self.scale_number(cursor, self.kind.scale, self.kind.precision, &scaled)
        scaled = 0 - scaled if cursor.negative else scaled
        return self.add_value(&scaled)


cdef class _FloatColumn(_FixedColumn):
    """The nearest one of a fraction; where not every integer is one, an integer must be exact."""

    cdef int read(self, Cursor cursor) except -1:
        self.read_number(cursor)
        cdef double value = self.convert(cursor)
        cdef float single = <float>value
        if cursor.negative:
            value, single = -value, -single
        return self.add_value(&value) if self.width == 8 else self.add_value(&single)

    cdef double convert(self, Cursor cursor) except? -1:
        cdef bint is_double = self.width == 8
        cdef uint64_t sure = <uint64_t>1 << (53 if is_double else 24)
        cdef int64_t places = 22 if is_double else 10
        if cursor.is_whole and cursor.digits <= sure and -places <= cursor.exponent <= places:
            # both are exact, so the result of one operation is the nearest
            if cursor.exponent >= 0 and cursor.digits * _DOUBLE_POWERS[cursor.exponent] <= sure:
                return cursor.digits * _DOUBLE_POWERS[cursor.exponent]
            if cursor.exponent < 0 and is_double:
                return cursor.digits / _DOUBLE_POWERS[-cursor.exponent]
            if cursor.exponent < 0:
                return <float>cursor.digits / <float>_DOUBLE_POWERS[-cursor.exponent]
        return self.convert_exactly(cursor, sure)

    cdef double convert_exactly(self, Cursor cursor, uint64_t sure) except? -1:
        text = cursor.number[cursor.negative:cursor.at - cursor.number]
        cdef double value = PyOS_string_to_double(PyBytes_AS_STRING(text), NULL, NULL)
        if self.width == 4:
            value = _round_to_single(value, text)
        if value == HUGE_VAL or (value == 0 and cursor.digits):
            self.refuse_range(cursor, cursor.number)
        if value >= sure and not cursor.has_exponent and Decimal(text.decode()) != Decimal(value):
            self.refuse(cursor, cursor.number, "not exact in")
        return value


cdef double _round_to_single(double value, bytes text) except? -1:
    """Return the nearest FLOAT of a text whose nearest DOUBLE is `value`."""
    cdef float single = <float>value
    cdef float other = nextafterf(single, HUGE_VAL if value > single else 0)
    if single == value or (<double>single + other) / 2 != value:
        return single
    exact, middle = Decimal(text.decode()), Decimal(value)
    if exact == middle:
        return single
    return max(single, other) if exact > middle else min(single, other)


cdef class _TextColumn(_Column):
    """Text, or bytes as Base64."""

    cdef Buffer offsets
    cdef Buffer data
    cdef bint is_binary

    def __init__(self, kind):
        super().__init__(kind)
        self.offsets, self.data = Buffer(), Buffer()
        self.offsets.add_zeros(4)
        self.is_binary = kinds.is_binary(kind)
        self.blank_bytes += 4

    cdef int read(self, Cursor cursor) except -1:
        cdef const uint8_t* start = cursor.at
        if cursor.at[0] != c'"':
            return self.refuse_kind(cursor)
        cursor.at += 1
        cursor.read_string()
        if not self.is_binary:
            return self.add_text(cursor.text, cursor.size)
        text = cursor.text[:cursor.size]
        try:
            decoded = a2b_base64(text, strict_mode=True)
        except Base64Error:
            return self.refuse(cursor, start, "no Base64 for")
        if b2a_base64(decoded, newline=False) != text:  # bits behind the last byte
            return self.refuse(cursor, start, "no Base64 for")
        return self.add_text(<const uint8_t*>PyBytes_AS_STRING(decoded), PyBytes_GET_SIZE(decoded))

    cdef int add_text(self, const uint8_t* text, Py_ssize_t size) except -1:
        self.data.add(text, size)
        cdef int32_t end = <int32_t>self.data.size  # the text of a batch is below 2 GiB
        self.offsets.add(&end, 4)
        return self.mark_value()

    cdef int add_blanks(self, Py_ssize_t count) except -1:
        return _repeat_offset(self.offsets, count)

    cdef int cut(self, Py_ssize_t length) except -1:
        self.offsets.size = 4 * (length + 1)
        self.data.size = self.offsets.last_int32()
        return 0

    cdef object build(self, object validity):
        buffers = [validity, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(self.kind, self.length, buffers, null_count=self.nulls)


cdef int _repeat_offset(Buffer offsets, Py_ssize_t count) except -1:
    cdef int32_t end = offsets.last_int32()
    cdef Py_ssize_t _
    for _ in range(count):
        offsets.add(&end, 4)
    return 0


cdef class _TimeColumn(_FixedColumn):
    """A text of ISO 8601, or a number by a rule."""

    cdef int places  # of the unit of a column's value in a number, -1: it may be no number
    cdef bint is_date
    cdef bint has_zone

    def __init__(self, kind, places):
        super().__init__(kind)
        self.places = places
        self.is_date = kinds.is_date(kind)
        self.has_zone = not self.is_date and kind.tz is not None

    cdef int read(self, Cursor cursor) except -1:
        cdef const uint8_t* start = cursor.at
        cdef int64_t value = 0
        cdef int problem
        if cursor.at[0] != c'"':
            value = self.read_epoch(cursor)
        else:
            cursor.at += 1
            cursor.read_string()
            problem = parse_time(cursor.text, cursor.size, self.is_date, self.has_zone, &value)
            if problem == 1 and _FAR_TIME.fullmatch(cursor.text[:cursor.size]):
                return self.refuse_range(cursor, start)
            if problem:
                return self.refuse(cursor, start, "not exact in" if problem == 2 else _NO_ISO)
        if self.is_date and not -(<int64_t>1 << 31) <= value < <int64_t>1 << 31:
            return self.refuse_range(cursor, start)
        return self.add_value(&value)

    cdef int64_t read_epoch(self, Cursor cursor) except? -1:
        cdef uint128 scaled
        self.read_number(cursor)
        if self.places < 0:
            self.refuse(cursor, cursor.number, _NO_ISO if self.is_date else _NUMBER_FOR_TIME)
        self.scale_number(cursor, self.places, 18, &scaled)
        return -<int64_t>scaled if cursor.negative else <int64_t>scaled


cdef class _ArrayColumn(_Column):
    cdef Buffer offsets
    cdef _Column items
    cdef bint is_reading

    def __init__(self, kind, items):
        super().__init__(kind)
        self.offsets = Buffer()
        self.offsets.add_zeros(4)
        self.items = items
        self.blank_bytes += 4

    cdef int read(self, Cursor cursor) except -1:
        if cursor.at[0] != c'[':
            return self.refuse_kind(cursor)
        cursor.at += 1
        if cursor.peek() != c']':
            self.is_reading = True
            self.read_item(cursor)
            while cursor.peek() == c',':
                cursor.at += 1
                self.read_item(cursor)
            self.is_reading = False
        cursor.expect(c']')
        return self.add_list()

    cdef inline int read_item(self, Cursor cursor) except -1:
        cursor.item_bytes += self.items.blank_bytes
        if cursor.item_bytes > MAX_ITEM_BYTES:
            raise RefusedError(TOO_MANY_ITEMS)
        return self.items.read_any(cursor)

    cdef int add_list(self) except -1:
        cdef int32_t end = <int32_t>self.items.length
        self.offsets.add(&end, 4)
        return self.mark_value()

    cdef int add_blanks(self, Py_ssize_t count) except -1:
        return _repeat_offset(self.offsets, count)

    cdef int cut(self, Py_ssize_t length) except -1:
        self.is_reading = False
        self.offsets.size = 4 * (length + 1)
        return self.items.truncate(self.offsets.last_int32())

    cdef object build(self, object validity):
        return pa.Array.from_buffers(
            self.kind,
            self.length,
            [validity, pa.py_buffer(self.offsets)],
            null_count=self.nulls,
            children=[self.build_items()],
        )

    cdef object build_items(self):
        return self.items.finish()

    cdef str find_place(self):
        if not self.is_reading:
            return ""
        return f"[{self.items.length - self.offsets.last_int32()}]{self.items.find_place()}"


cdef class _MapColumn(_ArrayColumn):
    """An object whose keys are those of the map."""

    cdef _TextColumn keys
    cdef str key  # whose value is read

    def __init__(self, kind, keys, items):
        super().__init__(kind, items)
        self.keys = keys

    cdef int read(self, Cursor cursor) except -1:
        if cursor.at[0] != c'{':
            return self.refuse_kind(cursor)
        cursor.at += 1
        if cursor.peek() != c'}':
            self.is_reading = True
            seen = set()
            self.read_entry(cursor, seen)
            while cursor.peek() == c',':
                cursor.at += 1
                self.read_entry(cursor, seen)
            self.is_reading = False
        cursor.expect(c'}')
        return self.add_list()

    cdef int read_entry(self, Cursor cursor, set seen) except -1:
        self.key = ""
        cursor.expect(c'"')
        cursor.read_string()
        self.key = cursor.text[:cursor.size].decode()
        if self.key in seen:
            raise RefusedError("a key that comes twice")
        seen.add(self.key)
        if not self.keys.is_begun:
            self.keys.begin()
        self.keys.add_text(cursor.text, cursor.size)
        cursor.expect(c':')
        return self.read_item(cursor)

    cdef int cut(self, Py_ssize_t length) except -1:
        _ArrayColumn.cut(self, length)
        return self.keys.truncate(self.offsets.last_int32())

    cdef object build_items(self):
        entries = [self.kind.key_field, self.kind.item_field]
        return pa.StructArray.from_arrays([self.keys.finish(), self.items.finish()], fields=entries)

    cdef str find_place(self):
        if not self.is_reading or not self.key:
            return ""
        key = self.key if len(self.key) <= QUOTED_CHARACTERS else f"{self.key[:QUOTED_CHARACTERS]}…"
        return f".{key}{self.items.find_place()}"


cdef class _StructColumn(_Column):
    cdef list columns
    cdef list names  # in UTF-8
    cdef dict by_lower_name
    cdef dict by_key
    cdef Py_ssize_t next  # the column behind that of the last key
    cdef Py_ssize_t current  # the column whose value is read, or -1

    def __init__(self, kind, columns):
        super().__init__(kind)
        self.columns = columns
        self.blank_bytes += sum([(<_Column>column).blank_bytes for column in columns])
        self.names = [field.name.encode() for field in kind]
        self.by_lower_name = {field.name.lower(): at for at, field in enumerate(kind)}
        self.by_key = {}
        self.current = -1

    cdef int read(self, Cursor cursor) except -1:
        if cursor.at[0] != c'{':
            return self.refuse_kind(cursor)
        cursor.at += 1
        self.next = 0
        if cursor.peek() != c'}':
            self.read_field(cursor)
            while cursor.peek() == c',':
                cursor.at += 1
                self.read_field(cursor)
        cursor.expect(c'}')
        self.add_missing()
        return self.mark_value()

    cdef int read_field(self, Cursor cursor) except -1:
        cursor.expect(c'"')
        cursor.read_string()
        cdef Py_ssize_t at = self.find_column(cursor)
        if at < 0:
            cursor.expect(c':')
            return cursor.skip_value()
        self.current = at
        cdef _Column column = <_Column>self.columns[at]
        if column.length > self.length:
            key = cursor.text[:cursor.size].decode()
            raise RefusedError(f"two keys name this column; the second: {key}")
        cursor.expect(c':')
        column.read_any(cursor)
        self.current, self.next = -1, at + 1
        return 0

    cdef Py_ssize_t find_column(self, Cursor cursor) except -2:
        """Return the column that the last string names, -1 for none."""
        cdef bytes name
        if self.next < len(self.names):  # most objects have their keys in the order of the columns
            name = <bytes>self.names[self.next]
            if PyBytes_GET_SIZE(name) == cursor.size and not memcmp(
                PyBytes_AS_STRING(name), cursor.text, cursor.size
            ):
                return self.next
        key = cursor.text[:cursor.size]
        found = self.by_key.get(key)
        if found is None:
            found = self.by_lower_name.get(key.decode().lower(), -1)
            if len(self.by_key) < KNOWN_KEYS:
                self.by_key[key] = found
        return found

    cdef int add_missing(self) except -1:
        cdef Py_ssize_t at
        cdef _Column column
        for at in range(len(self.columns)):
            column = <_Column>self.columns[at]
            if column.length == self.length:
                column.add_nulls(1)
        return 0

    cdef int add_blanks(self, Py_ssize_t count) except -1:
        for column in self.columns:
            (<_Column>column).add_nulls(count)
        return 0

    cdef int cut(self, Py_ssize_t length) except -1:
        self.current = -1
        for column in self.columns:
            (<_Column>column).truncate(length)
        return 0

    cdef object build(self, object validity):
        return pa.Array.from_buffers(
            self.kind,
            self.length,
            [validity],
            null_count=self.nulls,
            children=self.finish_columns(),
        )

    cdef list finish_columns(self):
        """Return the arrays of the columns; those without a value share one buffer of zeros."""
        empty = [field for field, column in zip(self.kind, self.columns) if not (<_Column>column).is_begun]
        nulls = iter(pa.nulls(self.length, pa.struct(empty)).flatten())
        return [
            (<_Column>column).finish() if (<_Column>column).is_begun else next(nulls) for column in self.columns
        ]

    cdef str find_place(self):
        if self.current < 0:
            return ""
        cdef _Column column = <_Column>self.columns[self.current]
        return f".{self.kind[self.current].name}{column.find_place()}"


def read_objects(
    values,
    schema,
    timestamp_rules,
    *,
    dates_are_numbers=False,
    nulls_outside=frozenset(),
    spared=frozenset(),
    Py_ssize_t most_bytes=MAX_ITEM_BYTES,
):
    """Return a struct for each value, null if it is refused, and by row the field and the reason.

    `values` are binary without nulls, `schema` is a pyarrow schema, `timestamp_rules` are TimestampRules.
    With `dates_are_numbers` a number in a DATE is the days since 1970. `nulls_outside` are paths of columns in
    which a number out of range of its type is null, `spared` of those in which any value is that the type does
    not take. Years are not limited: `value_ranges` does that.
    Of more values than take `most_bytes` of columns, beside their text, only the first ones are read.
    """
    kind = pa.struct(list(schema))
    cdef _StructColumn root = _create_column(kind, "", timestamp_rules, dates_are_numbers)
    _set_nulls(root, "", nulls_outside, spared, False)
    cdef Cursor cursor = Cursor()
    cdef Py_ssize_t row, count = len(values), used = 0
    refused = {}
    if not count:
        return pa.nulls(0, root.kind), refused
    _, offsets, text = values.buffers()
    cdef const int32_t[::1] ends = np.frombuffer(offsets, np.int32)[values.offset:values.offset + count + 1]
    cdef const uint8_t[::1] data = np.frombuffer(text or b"\0", np.uint8)
    root.begin()
    for row in range(count):
        cursor.begin = cursor.at = &data[0] + ends[row]
        cursor.end = &data[0] + ends[row + 1]
        cursor.item_bytes = 0
        try:
            _read_object(root, cursor)
        except RefusedError as error:
            refused[row] = root.find_place()[1:] or None, str(error)
            cursor.item_bytes = 0
        used += root.blank_bytes + cursor.item_bytes
        if row and used > most_bytes:
            root.truncate(row)
            refused.pop(row, None)
            break
        if root.length == row:
            root.truncate(row)
            root.add_nulls(1)
    return root.finish(), refused


def find_wrapped(values, bint is_typed):
    """Return which values Connect wraps: objects of two fields, `schema`, an object or null, and `payload`.

    With `is_typed` the schema must be an object whose first field is `type`. `values` are binary without nulls.
    """
    cdef Cursor cursor = Cursor()
    cdef Py_ssize_t row, count = len(values)
    wrapped = np.zeros(count, np.uint8)
    if not count:
        return wrapped.view(np.bool_)
    cdef uint8_t[::1] marks = wrapped
    _, offsets, text = values.buffers()
    cdef const int32_t[::1] ends = np.frombuffer(offsets, np.int32)[values.offset:values.offset + count + 1]
    cdef const uint8_t[::1] data = np.frombuffer(text or b"\0", np.uint8)
    for row in range(count):
        cursor.begin = cursor.at = &data[0] + ends[row]
        cursor.end = &data[0] + ends[row + 1]
        if cursor.peek() == c'{':
            cursor.at += 1
            marks[row] = _is_wrapped(cursor, is_typed)
    return wrapped.view(np.bool_)


cdef bint _is_wrapped(Cursor cursor, bint is_typed) except -1:
    cdef bint has_schema = False, has_payload = False
    try:
        while True:
            cursor.expect(c'"')
            cursor.read_string()
            if not has_schema and _is_text(cursor, b"schema", 6):
                cursor.expect(c':')
                has_schema = _is_schema(cursor, is_typed)
                if not has_schema:
                    return False
            elif not has_payload and _is_text(cursor, b"payload", 7):
                cursor.expect(c':')
                has_payload = True
            else:
                return False
            cursor.skip_value()
            if cursor.peek() != c',':
                break
            cursor.at += 1
    except RefusedError:  # reading the value finds it, too
        pass
    return has_schema and has_payload


cdef bint _is_schema(Cursor cursor, bint is_typed) except -1:
    cdef int byte = cursor.peek()
    cdef const uint8_t* start = cursor.at
    if byte != c'{' or not is_typed:
        return byte == c'{' or (byte == c'n' and not is_typed)
    cursor.at += 1
    if cursor.peek() != c'"':
        return False
    cursor.at += 1
    cursor.read_string()
    cursor.at = start
    return _is_text(cursor, b"type", 4)


cdef inline bint _is_text(Cursor cursor, const char* text, Py_ssize_t size) noexcept:
    return cursor.size == size and not memcmp(cursor.text, text, size)


cdef int _read_object(_StructColumn root, Cursor cursor) except -1:
    if cursor.peek() != c'{':
        raise RefusedError(NOT_AN_OBJECT)
    root.read(cursor)
    if cursor.peek() != -1:
        root.truncate(root.length - 1)
        raise RefusedError(NOT_AN_OBJECT)
    return 0


cdef int _set_nulls(_Column column, str path, object outside, object spared, bint is_inside) except -1:
    column.nulls_outside = is_inside or path in outside
    column.is_spared = path in spared
    if isinstance(column, _StructColumn):
        prefix = f"{path}." if path else ""
        for field, child in zip(column.kind, (<_StructColumn>column).columns):
            _set_nulls(child, f"{prefix}{field.name}", outside, spared, column.nulls_outside)
    elif isinstance(column, _ArrayColumn):
        _set_nulls((<_ArrayColumn>column).items, path, outside, frozenset(), column.nulls_outside)
    return 0


cdef _Column _create_column(object kind, str path, object rules, bint has_days):
    if kinds.is_struct(kind):
        prefix = f"{path}." if path else ""
        columns = [_create_column(field.type, f"{prefix}{field.name}", rules, has_days) for field in kind]
        return _StructColumn(kind, columns)
    if kinds.is_map(kind):
        return _MapColumn(kind, _TextColumn(pa.string()), _create_column(kind.item_type, path, rules, has_days))
    if kinds.is_list(kind):
        return _ArrayColumn(kind, _create_column(kind.value_type, path, rules, has_days))
    if kinds.is_date(kind):
        return _TimeColumn(kind, 0 if has_days else -1)
    if kinds.is_timestamp(kind):
        return _TimeColumn(kind, EPOCH_SCALES.get(rules.get(path.lower(), rules.get(EVERY_COLUMN)), -1))
    if kinds.is_boolean(kind):
        return _BooleanColumn(kind)
    if kinds.is_integer(kind):
        return _IntegerColumn(kind)
    if kinds.is_floating(kind):
        return _FloatColumn(kind)
    return _DecimalColumn(kind) if kinds.is_decimal(kind) else _TextColumn(kind)


_TYPE_NAMES = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", "UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


def name_type(kind):
    """Return the SQL name of an Arrow type. Raises KeyError for one that JSON is not read into."""
    if kinds.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if kinds.is_struct(kind):
        return "STRUCT"
    if kinds.is_map(kind):
        return "MAP"
    return "ARRAY" if kinds.is_list(kind) else _TYPE_NAMES[kind]
