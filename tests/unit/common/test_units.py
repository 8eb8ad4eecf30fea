"""Quantities as people read them."""

import pytest

from trimtab.common.errors import SettingError
from trimtab.common.units import format_count, format_fill, parse_bytes, parse_rate


@pytest.mark.parametrize(
    ("fill", "limit", "text"),
    [
        (0.85, 0.8, "85%"),
        (0.803, 0.8, "80.3%"),
        (0.797, 0.8, "79.7%"),
        (0.8, 0.8, "80%"),
        (0.80004, 0.8, "80%"),
        (1.002, 1.0, "100.2%"),
        (0.77, 0.8, "77%"),
    ],
)
def test_a_fill_does_not_look_like_a_limit_that_it_is_not(fill: float, limit: float, text: str) -> None:
    """Else a move out of a consumer "at 80%" of 80% seems to have no reason."""
    assert format_fill(fill, limit) == text


def test_a_count_has_its_noun_in_the_right_number() -> None:
    """One helper counts all nouns, so that no output has "1 members"."""
    counts = [format_count(n, "member") for n in (0, 1, 2, None)]
    assert counts == ["0 members", "1 member", "2 members", "? members"]
    assert format_count(1, "partition has", "partitions have") == "1 partition has"
    assert format_count(1234, "file", separator=",") == "1,234 files"
    assert format_count(3) == "3"


@pytest.mark.parametrize(
    "text", ["2.3 Mb/s", "2.3Mb", "260 kb/s", "1 Gib", "1 gb", "8 b/s", "10 Mbps", "10 Mbit/s", "3 bits"]
)
def test_bits_are_refused_and_never_read_as_bytes(text: str) -> None:
    """Eight times the capacity would be silent; the error says what to write."""
    for parse in (parse_rate, parse_bytes):
        with pytest.raises(SettingError, match=r"capacity: .* (is in bits|is not understood)"):
            parse(text, "capacity")
    with pytest.raises(SettingError, match="is in bits"):
        parse_rate(text)


def test_bytes_have_a_prefix_of_either_case() -> None:
    """B is bytes, whatever the case of its prefix."""
    assert [parse_bytes(text) for text in ("1 kB", "1KB", "2 mB", "1 KiB", "7 B", "7")] == [
        *(1000, 1000, 2_000_000, 1024, 7, 7)
    ]
