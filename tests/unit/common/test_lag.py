"""Consumer lag as defined by KAFKA-5337, with and without a commit."""

import pytest

from trimtab.common.lag import compute_lag


@pytest.mark.parametrize(
    ("committed", "from_beginning", "lag"),
    [(40, True, 60), (40, False, 60), (None, True, 90), (None, False, 0), (5, True, 90)],
)
def test_lag_of_a_partition(committed: int | None, from_beginning: bool, lag: int) -> None:  # noqa: FBT001 - a case
    """End - committed; without a commit by auto.offset.reset; deleted records never count."""
    assert compute_lag(100, committed, 10, from_beginning=from_beginning) == lag
