"""Versioned JSON codec of control-topic values.

1. A value is a JSON object; `v` is the format version of its writer.
2. `min_reader_version` is the oldest reader that understands the value; it defaults to `v`.
3. A reader accepts a value if `min_reader_version` is not above its own version.
4. A reader ignores fields that it does not know; a missing optional field takes its default.
5. Every known field has its type and range. Anything else raises `InvalidPayloadError`, and nothing
   but that: the reader skips this record alone and keeps the value it has.
"""

import json
import reprlib
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from trimtab.common.errors import InvalidPayloadError

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

CONTROL_VALUE_VERSION: Final = 1
SHOWN_BYTES: Final = 80  # of a value in an error: enough to recognize its writer
ValueT = TypeVar("ValueT")


@dataclass(frozen=True, slots=True)
class _Header:
    """Fields that every value has, and those that tell in an error whose it is."""

    v: int
    min_reader_version: int | None = None
    group: str = ""
    topic: str = ""


def encode_control_value(body: Mapping[str, Any]) -> bytes:
    """Return the record value of `body`, dataclasses as objects; equal bodies give equal bytes."""
    # an added optional field keeps the version; a change that old readers would misread raises it
    versioned = {"v": CONTROL_VALUE_VERSION, **body}
    return json.dumps(versioned, sort_keys=True, separators=(",", ":"), default=list_fields).encode()


def list_fields(value: Any) -> dict[str, Any]:
    """Return a dataclass as plain values, ten times as fast as `asdict`."""
    value_class: Any = type(value)  # mypy takes the type of a dataclass for unhashable
    body: dict[str, Any] = get_adapter(value_class).dump_python(value, mode="json", warnings=False)
    return body


def decode_control_value(value_class: type[ValueT], value: bytes, name: str) -> ValueT:
    """Read a dataclass, version checked. Raises InvalidPayloadError with `name`."""
    header = validate_json(_Header, value, name)
    required = header.v if header.min_reader_version is None else header.min_reader_version
    if required > CONTROL_VALUE_VERSION:
        raise InvalidPayloadError(
            f"{name}: format version {_shorten(header.v)} needs a reader of version {_shorten(required)}, "
            f"this process reads up to {CONTROL_VALUE_VERSION}; upgrade this process: {value[:SHOWN_BYTES]!r}"
        )
    owner = ", ".join(_shorten(part) for part in (header.group, header.topic) if part)
    return validate_json(value_class, value, f"{name} of {owner}")


@cache
def get_adapter(value_class: Any) -> "TypeAdapter[Any]":
    """Return the validator of a dataclass."""
    from pydantic import TypeAdapter  # noqa: PLC0415 - --help does without

    return TypeAdapter(value_class)


def validate_json(value_class: type[ValueT], value: bytes, name: str) -> ValueT:
    """Read a dataclass of any version. Raises InvalidPayloadError with `name`."""
    from pydantic import ValidationError  # noqa: PLC0415 - --help does without

    try:
        # strict: true is no number, "1" is no figure
        validated: ValueT = get_adapter(cast("Hashable", value_class)).validate_json(value, strict=True)
    except ValidationError as error:
        raise InvalidPayloadError(f"{name}: {_describe(error)}: {value[:SHOWN_BYTES]!r}") from None
    return validated


def _describe(error: "ValidationError") -> str:
    first = error.errors(include_url=False, include_context=False)[0]
    if not first["loc"]:
        return first["msg"]
    field = ".".join(map(_shorten, first["loc"]))
    return f"{field} is {_shorten(first['input'])}: {first['msg']}"


def _shorten(value: object) -> str:
    # its own repr may be megabytes, or recurse without an end
    return value if isinstance(value, str) and len(value) <= SHOWN_BYTES else reprlib.repr(value)
