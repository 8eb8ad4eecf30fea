"""Lag means what KAFKA-5337 says, with and without a commit."""

import pytest

from trimtab.common.lag import compute_lag


@pytest.mark.parametrize(
    ("committed", "from_beginning", "lag"),
    [(40, True, 60), (40, False, 60), (None, True, 90), (None, False, 0), (5, True, 90)],
)
def test_lag(committed: int | None, from_beginning: bool, lag: int) -> None:  # noqa: FBT001 - a case
    """End - committed; with no commit what auto.offset.reset makes it; never what is deleted."""
    assert compute_lag(100, committed, 10, from_beginning=from_beginning) == lag
