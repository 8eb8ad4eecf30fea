"""Mutations of an input: of the values in JSON, else of the bytes. Pure; chance is an argument."""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

DEEP_MARK: Final = "@deep@"
DEEP_JSON: Final = b"[" * 3000 + b"]" * 3000  # beyond Python's recursion limit

# Values that a writer may put where a reader expects another: each ended a decoder once, or its like.
ODD_VALUES: Final[tuple[Any, ...]] = (
    *(None, True, False, [], {}, [[]], "", "\0", "\ud800", "a" * 300, DEEP_MARK),
    *(0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, -1e308, 5e-324),
    *(float("nan"), float("inf"), -float("inf"), "NaN", "-1", "9" * 400, ["a", 1, None], {"a": {"b": []}}),
)
ODD_BYTES: Final = (
    *(b"", b"\0", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff" * 8, b"\xc0\x80", b"\xed\xa0\x80"),
    *(b"-1", b"9" * 400, b"NaN", b"\r\n", b"\r\n\r\n", b": ", b"\n", b'"', b"{", b"[" * 40, b"%00", b"../"),
)


def mutate(data: bytes, rng: Random, max_size: int) -> bytes:
    """Return `data` with some changes, at most `max_size` bytes."""
    for _ in range(rng.randint(1, 4)):
        changed = mutate_json(data, rng) if rng.random() < 0.7 else None
        data = rng.choice(BYTE_MUTATIONS)(data, rng) if changed is None else changed
    return data[:max_size]


def mutate_json(data: bytes, rng: Random) -> bytes | None:
    """Return a JSON document with one value changed, added or removed; None if `data` is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return None
    try:
        changed = json.dumps(_change_value(document, rng)).encode()
    except (ValueError, RecursionError):  # Python limits the digits of a number
        return None
    return changed.replace(f'"{DEEP_MARK}"'.encode(), DEEP_JSON)


def _change_value(value: Any, rng: Random) -> Any:
    if not value or not isinstance(value, list | dict) or rng.random() < 0.2:
        return rng.choice(ODD_VALUES)
    items: dict[Any, Any] = dict(value) if isinstance(value, dict) else dict(enumerate(value))
    key = rng.choice(list(items))
    match rng.randrange(8):
        case 0:
            del items[key]
        case 1:
            items["x" if isinstance(value, dict) else len(items)] = items[key]
        case 2:
            items[str(rng.choice(ODD_VALUES)) if isinstance(value, dict) else key] = items.pop(key)
        case 3:
            items[key] = items[rng.choice(list(items))]
        case _:
            items[key] = _change_value(items[key], rng)
    return items if isinstance(value, dict) else list(items.values())


def _insert(data: bytes, rng: Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + rng.choice(ODD_BYTES) + data[at:]


def _cut(data: bytes, rng: Random) -> bytes:
    start, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return data[:start] + data[end:]


def _repeat(data: bytes, rng: Random) -> bytes:
    start, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    return data[:end] + data[start:end] * rng.randint(1, 3) + data[end:]


def _overwrite(data: bytes, rng: Random) -> bytes:
    at = rng.randint(0, len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


BYTE_MUTATIONS: Final[tuple[Callable[[bytes, Random], bytes], ...]] = (
    *(_insert, _cut, _repeat, _overwrite, _overwrite),
)
