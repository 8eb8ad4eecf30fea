"""The wait of a scale-down after an outage of the API server."""

import pytest

from trimtab.sidecar.targets.kubernetes.api_outage import ApiOutage


def test_without_an_outage_nothing_waits() -> None:
    """A long time without calls is no outage."""
    outage = ApiOutage(0.0)
    outage.note_answer(500.0)
    assert outage.compute_resync_left(500.0) == 0


@pytest.mark.parametrize(("away", "waits"), [(1.0, 4.0), (10.0, 22.0), (29.0, 60.0), (900.0, 60.0)])
def test_watches_are_back_after_twice_the_outage(away: float, waits: float) -> None:
    """Counted from the last answer before it, a minute at most; then it is over."""
    outage = ApiOutage(0.0)
    outage.note_answer(100.0)
    outage.note_failure()
    outage.note_failure()
    outage.note_answer(100.0 + away)
    assert outage.compute_resync_left(100.0 + away) == waits
    outage.note_answer(101.0 + away)
    assert outage.compute_resync_left(101.0 + away) == waits - 1
    assert outage.compute_resync_left(100.0 + away + waits) == 0


def test_a_second_outage_extends_the_first() -> None:
    """The backoff from the first part may still be pending."""
    outage = ApiOutage(0.0)
    outage.note_failure()
    outage.note_answer(20.0)
    assert outage.compute_resync_left(20.0) == 42
    outage.note_failure()
    outage.note_answer(22.0)
    assert outage.compute_resync_left(22.0) == 46
