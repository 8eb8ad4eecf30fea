"""Parses JSON objects into typed columns with Arrow: ten times as fast as Python's parser.

1. Each value must be one JSON object in UTF-8 whose fields have the types of the schema. Fields
   outside the schema are ignored, missing ones are null. A date is text, like "2026-11-23", or with
   `dates_are_numbers` the days since 1970.
2. A value that does not fit makes the parser refuse a whole batch: the batch is halved until the
   value is alone, and its error is the reason.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from trimtab.consumer_sdk.lake.untyped_arrow import Array, pc

# Also UnicodeDecodeError, which Arrow raises for an error text that is not UTF-8.
CONVERSION_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError, RecursionError)
MAX_REASON_LENGTH: Final = 300
_BRACE_OPEN, _BRACE_CLOSE = b"{}"
_AFTER_BRACE: Final = np.frombuffer(b",}]", np.uint8)
_NOT_AN_OBJECT: Final = "not one JSON object"


class _NotOneObjectError(ValueError):
    pass


def parse_json_objects(
    values: Array, schema: Any, *, dates_are_numbers: bool = False
) -> tuple[Array, dict[int, str]]:
    """Return a struct for each value, null if it does not fit, and the reasons by row.

    `values` are binary without nulls, `schema` is a pyarrow schema.
    """
    kind = pa.struct(list(schema))
    parsed = kind if dates_are_numbers else replace_with_text(kind, pa.types.is_date)
    return convert_by_halves(values, lambda some: parse_every_object(some, parsed).cast(kind), kind)


def convert_by_halves(
    values: Array, convert: Callable[[Array], Array], kind: Any, smallest: int = 1
) -> tuple[Array, dict[int, str]]:
    """Convert an array; return nulls and reasons for the rows for which `convert` fails.

    Up to `smallest` rows fail together: with 1, only those for which `convert` alone fails.
    """
    try:
        return convert(values) if len(values) else pa.nulls(0, kind), {}
    except CONVERSION_ERRORS as error:
        if len(values) <= smallest:
            return pa.nulls(len(values), kind), dict.fromkeys(range(len(values)), _describe_error(error))
    half = len(values) // 2
    first, errors = convert_by_halves(values[:half], convert, kind, smallest)
    second, more = convert_by_halves(values[half:], convert, kind, smallest)
    return pa.concat_arrays([first, second]), errors | {half + row: text for row, text in more.items()}


def parse_every_object(values: Array, kind: Any) -> Array:
    """Return a struct of type `kind` for each value; raise one of CONVERSION_ERRORS if any does not fit."""
    for row in _find_doubtful(values):
        if not isinstance(json.loads(values[row].as_py()), dict):
            raise _NotOneObjectError
    values.cast(pa.string())  # raises if it is not UTF-8: the parser does not check ignored text
    lines = pc.binary_join(pa.ListArray.from_arrays([0, len(values)], values), b"\n")[0].as_buffer()
    table = arrow_json.read_json(
        pa.BufferReader(lines),
        # one block: an object must not span two
        arrow_json.ReadOptions(use_threads=False, block_size=lines.size + 1),
        arrow_json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore"),
    )
    return table.select(kind.names).to_struct_array().combine_chunks()


def replace_with_text(kind: Any, is_replaced: Callable[[Any], bool]) -> Any:
    """Return a type with text for the types that `is_replaced` selects, also nested ones.

    Arrow's parser takes dates for numbers.
    """
    if is_replaced(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(replace_with_text(field.type, is_replaced)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(replace_with_text(kind.value_type, is_replaced)))
    return kind


def _find_doubtful(values: Array) -> list[int]:
    """Return the rows that may be no single object, to be parsed one by one.

    The parser takes two objects in one value for two values, and a leading `null` crashes it (Arrow
    26). In an object written without spaces between its tokens, every "}" outside of text is followed
    by one of ",}]" or ends the value.
    """
    _, offsets, text = values.buffers()
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    starts, stops = ends[:-1], ends[1:]
    if (stops == starts).any():
        raise _NotOneObjectError
    data = np.frombuffer(text, np.uint8)
    odd = (data[starts] != _BRACE_OPEN) | (data[stops - 1] != _BRACE_CLOSE)
    braces = np.flatnonzero(data[starts[0] : stops[-1]] == _BRACE_CLOSE) + starts[0]
    owners = np.searchsorted(stops, braces, side="right")
    inner = braces + 1 < stops[owners]
    followed = data[braces[inner] + 1]
    odd[owners[inner][~np.isin(followed, _AFTER_BRACE)]] = True
    return np.flatnonzero(odd).tolist()


def _describe_error(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        return "not UTF-8"
    if isinstance(error, _NotOneObjectError | json.JSONDecodeError | RecursionError):
        return _NOT_AN_OBJECT
    return " ".join(str(error).split()).removesuffix(" in row 0")[:MAX_REASON_LENGTH]
