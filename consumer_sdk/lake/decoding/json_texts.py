"""Finds JSON values that Arrow may accept and Spark refuse, or read as another value, by their text.

The rows are found one by one: those beside them are still Arrow's.
"""

import re
from typing import Any, Final

import numpy as np
import pyarrow as pa

from trimtab.consumer_sdk.lake.untyped_arrow import Array, pc

# Spark's parser refuses a depth of 1000, a number of 1000 characters and a name of 50,000.
_MAX_DEPTH: Final = 900
_MAX_NUMBER_LENGTH: Final = 900
_MAX_LENGTH: Final = 50_000
_NUMBER_STRIDE: Final = 100
_IS_NUMBER_BYTE: Final = np.isin(np.arange(256), np.frombuffer(b"0123456789+-.eE", np.uint8))
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
# Exponents of four digits: the parsers limit them in different ways. Hexadecimal text, such as a UUID's,
# has them, too, so they count only where a number or a text begins.
_LARGE_EXPONENT: Final = r'[\s:\[,]-?[\d.]+[eE][+-]?\d{4}|"[+-]?[\d.]+[eE][+-]?\d{4}\d*"'
# Spark reads "-0" as an integer, and names of numbers also in fields outside the schema. The last are
# characters of a number that are escaped.
_ODD_NUMBER: Final = (
    rf"{_LARGE_EXPONENT}|[\s:\[,]-0(\.0+)?[eE\s,}}\]]|(NaN|Inf|Infinity)\s*[,}}\]]|\\u00([46]5|2[dD]|3\d)"
)


def find_uncertain_texts(values: Array) -> Any:
    """Return whether Arrow and Spark may read each of these values in different ways: a numpy array, (N,)."""
    # Spark trims blanks only; no other whitespace may precede the object
    uncertain = ~_to_numpy(pc.starts_with(values, pattern=b"{"))
    uncertain |= _to_numpy(pc.match_substring_regex(values, _ODD_NUMBER))
    lengths = _to_numpy(pc.binary_length(values))
    uncertain |= lengths >= _MAX_LENGTH
    long = np.flatnonzero((lengths >= _MAX_NUMBER_LENGTH) & ~uncertain)
    if long.size:
        uncertain[long] = _find_extreme_values(values.take(pa.array(long)))
    return uncertain


def _find_extreme_values(values: Array) -> Any:
    """Return whether each value has a long number, or is nested deeply."""
    _, offsets, text = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[: len(values) + 1]
    data = np.frombuffer(text, np.uint8)[: ends[-1]]
    extreme = np.zeros(len(values), np.bool_)
    extreme[np.searchsorted(ends[1:], _find_long_numbers(data), side="right")] = True
    opened = np.add.reduceat(_is_any_of(data, b"[{"), ends[:-1], dtype=np.int32)
    for row in np.flatnonzero(opened >= _MAX_DEPTH):
        extreme[row] |= _measure_depth(values[row].as_py()) >= _MAX_DEPTH
    return extreme


def _find_long_numbers(data: Any) -> Any:
    """Return where as many characters of numbers follow one another; some text has them, too."""
    sampled = np.concatenate([[0], np.cumsum(_IS_NUMBER_BYTE[data[::_NUMBER_STRIDE]])])
    run = _MAX_NUMBER_LENGTH // _NUMBER_STRIDE
    starts = np.flatnonzero(sampled[run:] - sampled[:-run] == run) * _NUMBER_STRIDE
    for step in range((run - 1) * _NUMBER_STRIDE):  # hexadecimal text ends most after a few steps
        if not starts.size:
            break
        starts = starts[_IS_NUMBER_BYTE[data[starts + step]]]
    return starts


def _measure_depth(value: bytes) -> int:
    data = np.frombuffer(_TEXT.sub(b"", value), np.uint8)
    steps = _is_any_of(data, b"[{").astype(np.int32) - _is_any_of(data, b"]}")
    return int(np.cumsum(steps).max(initial=0))


def _is_any_of(data: Any, two_bytes: bytes) -> Any:
    return (data == two_bytes[0]) | (data == two_bytes[1])


def _to_numpy(array: Array) -> Any:
    return array.to_numpy(zero_copy_only=False)
