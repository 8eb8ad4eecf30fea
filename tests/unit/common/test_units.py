"""Quantities as people read them."""

import pytest

from trimtab.common.units import format_fill


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
