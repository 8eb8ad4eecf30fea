"""The schedule of faults of a seed."""

from collections import Counter

from faults.schedule import KINDS, POINTS, SESSION, draw

BAG = sum(kind.weight for kind in KINDS.values())


def test_seed_determines_the_faults() -> None:
    """The same seed and round give the same faults; others give others."""
    assert draw(1, 2, 50, KINDS) == draw(1, 2, 50, KINDS)
    assert draw(1, 2, 50, KINDS) != draw(1, 3, 50, KINDS)
    assert draw(1, 2, 50, KINDS) != draw(2, 2, 50, KINDS)


def test_weights_give_the_frequency_of_kinds() -> None:
    """Over the sum of the weights each kind occurs as often as its weight."""
    found = Counter(fault.kind for fault in draw(5, 0, BAG, KINDS))
    assert found == {name: kind.weight for name, kind in KINDS.items()}


def test_every_crash_point_occurs() -> None:
    """A long run crashes consumers at each step of a flush, a rebalance and the end."""
    steps = {fault.step for number in range(40) for fault in draw(1, number, BAG, KINDS)}
    assert steps == {"", *(step for points in POINTS.values() for step in points)}


def test_freezes_are_shorter_and_longer_than_the_session() -> None:
    """A short freeze keeps the membership, a long one loses it."""
    lengths = [f.seconds for f in draw(1, 0, 40 * BAG, KINDS) if f.kind == "freeze"]
    assert min(lengths) < SESSION / 2
    assert max(lengths) > SESSION * 1.5
