"""Parses times as ISO 8601 writes them: `2024-05-06`, `2024-05-06T07:08:09.123456+02:00`."""

from libc.stdint cimport int64_t, uint8_t


cdef int parse_time(const uint8_t* text, Py_ssize_t size, bint is_date, bint has_zone, int64_t* value) noexcept:
    """Return 0 and days or microseconds since 1970, 1 for no ISO 8601, 2 for parts of a microsecond."""
    cdef int year = _parse_digits(text, size, 0, 4), month = _parse_digits(text, size, 5, 2)
    cdef int day = _parse_digits(text, size, 8, 2)
    if size < 10 or text[4] != c'-' or text[7] != c'-' or not _is_day(year, month, day):
        return 1
    value[0] = _count_days(year, month, day)
    if is_date:
        return size != 10
    cdef int hour = _parse_digits(text, size, 11, 2), minute = _parse_digits(text, size, 14, 2)
    if size < 16 or (text[10] != c'T' and text[10] != c' ') or text[13] != c':':
        return 1
    if not (0 <= hour <= 23 and 0 <= minute <= 59):
        return 1
    value[0] = value[0] * DAY_MICROS + (hour * 60 + minute) * <int64_t>60_000_000
    return _parse_second(text, size, has_zone, value)


cdef int _parse_second(const uint8_t* text, Py_ssize_t size, bint has_zone, int64_t* value) noexcept:
    cdef Py_ssize_t at = 16
    cdef int second, problem = 0
    cdef int64_t unit = 100_000
    if size > at and text[at] == c':':
        second = _parse_digits(text, size, 17, 2)
        if not 0 <= second <= 59:
            return 1
        value[0] += second * <int64_t>1_000_000
        at = 19
        if size > at and text[at] == c'.':
            at += 1
            if _parse_digits(text, size, at, 1) < 0:
                return 1
            while at < size and c'0' <= text[at] <= c'9':
                value[0] += (text[at] - c'0') * unit
                if not unit and text[at] != c'0':
                    problem = 2
                unit //= 10
                at += 1
    return _parse_zone(text, size, at, has_zone, value) or problem


cdef int _parse_zone(const uint8_t* text, Py_ssize_t size, Py_ssize_t at, bint has_zone, int64_t* value) noexcept:
    """A TIMESTAMP without a zone is in UTC; a TIMESTAMP_NTZ has none."""
    if at == size:
        return 0
    if not has_zone:
        return 1
    if text[at] == c'Z':
        return at + 1 != size
    if text[at] != c'+' and text[at] != c'-':
        return 1
    cdef int hours = _parse_digits(text, size, at + 1, 2), minutes = 0
    cdef Py_ssize_t end = at + 3
    if end < size:
        end += text[end] == c':'
        minutes = _parse_digits(text, size, end, 2)
        end += 2
    if end != size or not (0 <= hours <= 18 and 0 <= minutes <= 59) or hours * 60 + minutes > 18 * 60:
        return 1
    value[0] += (hours * 60 + minutes) * <int64_t>60_000_000 * (1 if text[at] == c'-' else -1)
    return 0


cdef int _parse_digits(const uint8_t* text, Py_ssize_t size, Py_ssize_t at, int count) noexcept:
    """Return a number of that many digits, -1 if there is none."""
    cdef int value = 0
    cdef Py_ssize_t end = at + count
    if end > size:
        return -1
    for at in range(at, end):
        if not c'0' <= text[at] <= c'9':
            return -1
        value = value * 10 + text[at] - c'0'
    return value


cdef bint _is_day(int year, int month, int day) noexcept:
    if year < 1 or not 1 <= month <= 12 or day < 1:
        return False
    if month == 2:
        return day <= 28 + (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0))
    return day <= 30 + (month + month // 8) % 2


cdef int64_t _count_days(int year, int month, int day) noexcept:
    # years from March: the day of February 29 is the last one
    cdef int64_t from_march = year - (month <= 2)
    cdef int64_t day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return from_march * 365 + from_march // 4 - from_march // 100 + from_march // 400 + day_of_year - 719_468
