"""Start-up times that the sidecar learns from replicas."""

from trimtab.sidecar.measurement.startup_time import MAX_SAMPLES, StartupTimes
from trimtab.sidecar.model.observation import ReplicaInstance


def replica(name: str, started_at: float, *, alive: bool = True) -> ReplicaInstance:
    return ReplicaInstance(name, alive=alive, started_at=started_at)


def test_the_time_from_start_to_join_is_learned() -> None:
    """Of replicas that were seen before they joined; of others nobody knows it."""
    old, new = replica("old", 0), replica("new", 100)
    times = StartupTimes().add_replicas([old, new], {"old"}, 110)
    assert times.median is None
    times = times.add_replicas([old, new], {"old", "new"}, 130)
    assert times.seconds == (30,)
    assert times.add_replicas([old, new], {"old", "new"}, 140).seconds == (30,)


def test_a_replica_that_dies_before_it_joins_tells_nothing() -> None:
    """A later replica of its name has a start of its own, before which it was not seen."""
    times = StartupTimes().add_replicas([replica("a", 0)], set(), 10)
    times = times.add_replicas([replica("a", 0, alive=False)], set(), 20)
    assert times.add_replicas([replica("a", 90)], {"a"}, 100).seconds == ()


def test_the_newest_times_count() -> None:
    """A new image may start faster."""
    times = StartupTimes()
    for number in range(MAX_SAMPLES + 5):
        one = replica(f"r-{number}", 0)
        times = times.add_replicas([one], set(), 0).add_replicas([one], {one.name}, number)
    assert times.seconds == tuple(range(5, MAX_SAMPLES + 5))
    assert times.median == 9.5
