"""Leader election: the lease's rules with two candidates whose clocks differ."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from trimtab.sidecar.leadership.leader_election import (
    LEASE_DURATION_S,
    LEASE_RENEW_DEADLINE_S,
    LEASE_RETRY_PERIOD_S,
    LeaseCandidate,
    LeaseRecord,
)


def record(holder: str, version: int) -> LeaseRecord:
    return LeaseRecord(holder, str(version))


def test_a_lease_without_holder_is_free() -> None:
    """Without a record, or with an empty one, a candidate may acquire it at once."""
    one = LeaseCandidate("one")
    assert one.can_acquire(0.0)
    assert one.observe_record(record("", 3), 0.0).can_acquire(0.0)
    assert not one.observe_record(record("two", 3), 0.0).can_acquire(0.0)


def test_an_expired_lease_can_be_acquired() -> None:
    """The time since the last observed change counts, not the times in the record."""
    two = LeaseCandidate("two").observe_record(record("one", 1), 100.0)
    assert not two.can_acquire(100.0 + LEASE_DURATION_S - 0.1)
    two = two.observe_record(record("one", 2), 111.0)
    assert not two.can_acquire(111.0 + LEASE_DURATION_S - 0.1)
    assert two.can_acquire(111.0 + LEASE_DURATION_S)


def test_a_leader_stops_before_its_lease_expires() -> None:
    """It stops well before another may acquire, counted from when it sent the renewal."""
    one = LeaseCandidate("one").record_renewal(record("one", 1), 50.0)
    assert one.is_leader(50.0 + LEASE_RENEW_DEADLINE_S - 0.1)
    assert not one.is_leader(50.0 + LEASE_RENEW_DEADLINE_S)
    assert not one.step_down().is_leader(50.0)
    assert (
        LEASE_RENEW_DEADLINE_S + 5.0 <= LEASE_DURATION_S
    )  # a question that was on its way is over (timeout)
    assert LEASE_DURATION_S + 2 * LEASE_RETRY_PERIOD_S < 20.0  # the next one leads within 20 s


@dataclass
class World:
    """A server and candidates; `offsets` are the candidates' clock errors."""

    offsets: dict[str, float]
    record: LeaseRecord | None = None
    version: int = 0
    candidates: dict[str, LeaseCandidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.candidates = {name: LeaseCandidate(name) for name in self.offsets}

    def step(self, name: str, now: float, *, lost: bool, late: float) -> None:
        """Let one candidate read and acquire the lease; its answer may be lost or late."""
        clock = now + self.offsets[name]
        one = self.candidates[name].observe_record(self.record, clock)
        if one.can_acquire(clock):
            self.version += 1
            self.record = record(name, self.version)
            if not lost:
                one = one.record_renewal(self.record, clock - late)
        else:
            one = one.step_down()
        self.candidates[name] = one

    def leaders(self, now: float) -> list[str]:
        return [n for n, c in self.candidates.items() if c.is_leader(now + self.offsets[n])]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["one", "two", "three"]), st.floats(0.0, 8.0), st.booleans(), st.floats(0.0, 3.0)
        ),
        max_size=60,
    ),
    offsets=st.tuples(*[st.floats(0.0, 1000.0)] * 3),
)
def test_never_two_leaders(
    steps: list[tuple[str, float, bool, float]], offsets: tuple[float, float, float]
) -> None:
    """With any schedule, any clocks and any lost answers there is one leader."""
    world = World(dict(zip(("one", "two", "three"), offsets, strict=True)))
    now = 0.0
    for name, pause, lost, late in steps:
        for share in (0.0, 0.5, 1.0):
            assert len(world.leaders(now + share * pause)) <= 1
        now += pause
        world.step(name, now, lost=lost, late=late)
