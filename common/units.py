"""Parse and format sizes, rates and durations: "64 MB", "2.3 MB/s", "10 s", "250 ms".

Decimal prefixes (kB, MB, GB) are powers of 1000, binary ones (KiB, MiB, GiB) powers of 1024, as in
IEC 80000-13. A bare number is bytes, bytes/s or seconds. A prefix may have either case, but B is bytes
and b is bits, eight times less: bits are refused.
"""

import re
from collections.abc import Sequence
from typing import Final

from trimtab.common.errors import SettingError

UNKNOWN: Final = "?"
_QUANTITY_PATTERN: Final = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([A-Za-z/]*)\s*")
_BIT_UNIT_PATTERN: Final = re.compile(r"(?i:[kmgt]i?)?(b|(?i:bits?|bps))")
_DECIMAL_UNITS: Final = {"": 1.0, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12}
_BYTES_PER_UNIT: Final = _DECIMAL_UNITS | {"kib": 1024.0, "mib": 1024.0**2, "gib": 1024.0**3}
_SECONDS_PER_UNIT: Final = {"": 1.0, "s": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes(text: str | float, name: str = "size") -> int:
    """Return bytes for "64 MB". Raises SettingError with the name of the setting."""
    return int(_parse(str(text), _BYTES_PER_UNIT, name, '"64 MB"'))


def parse_rate(text: str | float, name: str = "rate") -> float:
    """Return bytes/s for "2.3 MB/s". Raises SettingError with the name of the setting."""
    return _parse(re.sub(r"/\s*s(ec)?\s*$", "", str(text)), _BYTES_PER_UNIT, name, '"2.3 MB/s"')


def parse_seconds(text: str | float, name: str = "duration") -> float:
    """Return seconds for "10 s". Raises SettingError with the name of the setting."""
    return _parse(str(text), _SECONDS_PER_UNIT, name, '"10 s"')


def format_bytes(size: float | None) -> str:
    """Return "64.0 MB" for bytes; "?" for None."""
    if size is None:
        return UNKNOWN
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if abs(size) >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{size:.0f} B"


def format_rate(rate: float | None) -> str:
    """Return "2.3 MB/s" for bytes/s; "?" for None."""
    return UNKNOWN if rate is None else f"{format_bytes(rate)}/s"


def format_fill(fill: float, limit: float) -> str:
    """Return a consumer's load ÷ capacity as "85%"; as "80.3%" where it would look like the limit."""
    text = f"{fill:.0%}"
    return f"{fill:.1%}" if text == f"{limit:.0%}" and f"{fill:.1%}" != f"{limit:.1%}" else text


def format_count(count: int | None, noun: str = "", plural: str = "", *, separator: str = "") -> str:
    """Return "3"; "?" for None; with a noun "1 member" or "3 members", or with the `plural` given.

    `separator` stands between thousands.
    """
    text = UNKNOWN if count is None else f"{count:{separator}}"
    word = noun if count == 1 else plural or f"{noun}s"
    return f"{text} {word}" if noun else text


def format_age(seconds: float) -> str:
    """Format seconds as "25 s", "3 min", "2.5 h" or "4 days"; negative values count as 0."""
    seconds = max(0.0, seconds)
    if seconds < 100:  # noqa: PLR2004 - these are the bounds of the words
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 2 * 86400 else f"{seconds / 86400:.0f} days"


def _parse(text: str, units: dict[str, float], name: str, example: str) -> float:
    match = _QUANTITY_PATTERN.fullmatch(text)
    if match and units is _BYTES_PER_UNIT and _BIT_UNIT_PATTERN.fullmatch(match[2]):
        raise SettingError(
            f"{name}: {text!r} is in bits (b); divide by 8 and write it in bytes (B), like {example}"
        )
    factor = units.get(match[2].lower()) if match else None  # people write "mb", too
    if match is None or factor is None:
        raise SettingError(f"{name}: {text!r} is not understood; write it like {example}")
    return float(match[1]) * factor


def format_first(names: Sequence[object]) -> str:
    """Return "a (and 3 more)": the first of the names."""
    return f"{names[0]} (and {len(names) - 1} more)" if len(names) > 1 else str(names[0])


def format_name_list(shown: Sequence[str], count: int) -> str:
    """Return "a, b and 3 more": the `shown` names out of `count`."""
    more = f" and {count - len(shown)} more" if count > len(shown) else ""
    return ", ".join(shown) + more
