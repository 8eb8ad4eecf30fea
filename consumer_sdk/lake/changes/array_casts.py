"""Casts Arrow arrays of which some values do not fit: each of those has a reason."""

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from trimtab.consumer_sdk.lake.model.untyped_arrow import Array

_CAST_ERRORS: Final = (pa.ArrowException, ValueError, TypeError, OverflowError)
_MAX_REASON_LENGTH: Final = 300


def cast_by_halves(values: Array, cast: Callable[[Array], Array], kind: Any) -> tuple[Array, dict[int, str]]:
    """Return the values that `cast` returns, null for those for which it alone fails, and the reasons by row.

    A value that does not fit fails a whole array: that is halved until the value is alone.
    """
    try:
        return cast(values) if len(values) else pa.nulls(0, kind), {}
    except _CAST_ERRORS as error:
        if len(values) == 1:
            return pa.nulls(1, kind), {0: _describe_error(error)}
    half = len(values) // 2
    first, errors = cast_by_halves(values[:half], cast, kind)
    second, more = cast_by_halves(values[half:], cast, kind)
    return pa.concat_arrays([first, second]), errors | {half + row: text for row, text in more.items()}


def _describe_error(error: Exception) -> str:
    if isinstance(error, UnicodeDecodeError) or "UTF8" in str(error):
        return "not UTF-8"
    return " ".join(str(error).split())[:_MAX_REASON_LENGTH]
