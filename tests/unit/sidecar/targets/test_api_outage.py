"""How long a scale-in waits after the API server was away."""

import pytest

from trimtab.sidecar.targets.kubernetes.api_outage import ApiOutage


def test_without_an_outage_nothing_waits() -> None:
    """However long nobody asked."""
    outage = ApiOutage(0.0)
    outage.note_answer(500.0)
    assert outage.compute_resync_left(500.0) == 0


@pytest.mark.parametrize(("away", "waits"), [(1.0, 4.0), (10.0, 22.0), (29.0, 60.0), (900.0, 60.0)])
def test_streams_are_back_after_twice_the_outage(away: float, waits: float) -> None:
    """Counted from the last answer before it, a minute at most; it passes."""
    outage = ApiOutage(0.0)
    outage.note_answer(100.0)
    outage.note_failure()
    outage.note_failure()
    outage.note_answer(100.0 + away)
    assert outage.compute_resync_left(100.0 + away) == waits
    outage.note_answer(101.0 + away)
    assert outage.compute_resync_left(101.0 + away) == waits - 1
    assert outage.compute_resync_left(100.0 + away + waits) == 0


def test_away_again_before_all_streams_are_back_is_one_outage() -> None:
    """The pause that the first part brought about may still be under way."""
    outage = ApiOutage(0.0)
    outage.note_failure()
    outage.note_answer(20.0)
    assert outage.compute_resync_left(20.0) == 42
    outage.note_failure()
    outage.note_answer(22.0)
    assert outage.compute_resync_left(22.0) == 46
