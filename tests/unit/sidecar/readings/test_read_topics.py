"""Which topics a group reads: those with an owner, or with one shortly before."""

from trimtab.sidecar.readings.read_topics import ReadTopics


def test_a_topic_without_an_owner_is_dropped_while_others_have_one() -> None:
    """Not at once: a rebalance leaves topics without an owner."""
    read = ReadTopics().add_owned(["a", "b"], 0.0).add_owned(["a"], 50.0)
    assert read.owned_at.keys() == {"a", "b"}
    assert read.add_owned(["a"], 61.0).owned_at.keys() == {"a"}


def test_nothing_is_forgotten_while_nobody_owns_anything() -> None:
    """However long the consumers or the brokers are away; then the members return one by one."""
    away = ReadTopics().add_owned(["a", "b"], 0.0).add_owned([], 3600.0)
    assert away.owned_at.keys() == {"a", "b"}
    back = away.add_owned(["b"], 3610.0)
    assert back.owned_at.keys() == {"a", "b"}
    assert back.add_owned(["b"], 3660.0).add_owned(["b"], 3671.0).owned_at.keys() == {"b"}
