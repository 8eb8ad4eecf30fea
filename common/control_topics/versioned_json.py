"""Versioned JSON codec of control-topic values.

1. A value is a JSON object; `v` is the format version of its writer.
2. `min_reader_version` is the oldest reader that understands the value; it defaults to `v`.
3. A reader accepts a value if `min_reader_version` is not above its own version.
4. A reader ignores fields that it does not know; a missing optional field takes its default.
5. Anything else raises `InvalidPayloadError`. The reader skips that record and keeps the value it
   has.
"""

import json
import math
from collections.abc import Hashable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar, cast

from trimtab.common.errors import InvalidPayloadError

CONTROL_VALUE_VERSION: Final = 1
SHOWN_BYTES: Final = 80  # of a value in an error: enough to recognize its writer
ValueT = TypeVar("ValueT")


def encode_control_value(body: Mapping[str, Any]) -> bytes:
    """Return the record value of `body`; equal bodies give equal bytes."""
    # an added optional field keeps the version; a change that old readers would misread raises it
    versioned = {"v": CONTROL_VALUE_VERSION, **body}
    return json.dumps(versioned, sort_keys=True, separators=(",", ":")).encode()


def decode_control_value(value: bytes, name: str) -> dict[str, Any]:
    """Return the body of a record value, version checked. Raises InvalidPayloadError with `name`."""
    try:
        body: Any = json.loads(value)
    except (ValueError, RecursionError) as error:  # json recurses into "[[[[..."
        raise InvalidPayloadError(f"{name}: not JSON: {value[:SHOWN_BYTES]!r}") from error
    if not isinstance(body, dict) or not _has_versions(body):
        raise InvalidPayloadError(f"{name}: no JSON object with a version: {value[:SHOWN_BYTES]!r}")
    version = body["v"]
    required: Any = body.get("min_reader_version", version)
    if required > CONTROL_VALUE_VERSION:
        raise InvalidPayloadError(
            f"{name}: format version {version} needs a reader of version {required}, this process "
            f"reads up to {CONTROL_VALUE_VERSION}; upgrade this process: {value[:SHOWN_BYTES]!r}"
        )
    return body


def build_dataclass(value_class: type[ValueT], body: Mapping[str, Any]) -> ValueT:
    """Build a dataclass from the fields of `body` that it has. Raises TypeError, AttributeError."""
    known = _list_field_names(cast("Hashable", value_class))
    return value_class(**{name: value for name, value in body.items() if name in known})


def check_non_negative(name: str, value: Any) -> None:
    """Raise InvalidPayloadError unless `value` is a finite number >= 0."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and 0 <= value < math.inf):  # json reads NaN and Infinity
        raise InvalidPayloadError(f"{name} is {value!r}; it must be a finite number from 0 on")


def check_text(name: str, *values: Any) -> None:
    """Raise InvalidPayloadError unless all `values` are strings."""
    for value in values:
        if not isinstance(value, str):
            raise InvalidPayloadError(f"{name} is {value!r}; it must be text")


def _has_versions(body: Mapping[str, Any]) -> bool:
    # bool is an int to isinstance, and true is no version
    return type(body.get("v")) is int and type(body.get("min_reader_version", 1)) is int


@cache  # a topic of 10,000 partitions has as many values of one class
def _list_field_names(value_class: Any) -> frozenset[str]:
    return frozenset(field.name for field in fields(value_class))
