"""Who leads: the lease's rules, in a world of two candidates whose clocks do not agree."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from trimtab.sidecar.leadership.leader_election import ACTS, LEASE, RETRY, Candidate, Record


def record(holder: str, version: int) -> Record:
    return Record(holder, str(version))


def test_a_lease_that_nobody_holds_is_free() -> None:
    """Without a record, or with an empty one, a candidate may take it at once."""
    one = Candidate("one")
    assert one.may_take(0.0)
    assert one.saw(record("", 3), 0.0).may_take(0.0)
    assert not one.saw(record("two", 3), 0.0).may_take(0.0)


def test_a_silent_leader_is_followed_when_its_lease_is_over() -> None:
    """What counts is since when the record was not seen to change, not what it says of times."""
    two = Candidate("two").saw(record("one", 1), 100.0)
    assert not two.may_take(100.0 + LEASE - 0.1)
    two = two.saw(record("one", 2), 111.0)
    assert not two.may_take(111.0 + LEASE - 0.1)
    assert two.may_take(111.0 + LEASE)


def test_a_leader_acts_only_for_so_long() -> None:
    """It stops well before anybody else may begin, counted from when it sent the renewal."""
    one = Candidate("one").took(record("one", 1), 50.0)
    assert one.leads(50.0 + ACTS - 0.1)
    assert not one.leads(50.0 + ACTS)
    assert not one.lost().leads(50.0)
    assert ACTS + 5.0 <= LEASE  # a question that was on its way is over (timeout)
    assert LEASE + 2 * RETRY < 20.0  # the next one leads within 20 s


@dataclass
class World:
    """A server and candidates; `offsets` is how far each one's clock is ahead."""

    offsets: dict[str, float]
    record: Record | None = None
    version: int = 0
    candidates: dict[str, Candidate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.candidates = {name: Candidate(name) for name in self.offsets}

    def step(self, name: str, now: float, *, lost: bool, late: float) -> None:
        """Let one candidate look, and take the lease; its answer may be lost, or come late."""
        clock = now + self.offsets[name]
        one = self.candidates[name].saw(self.record, clock)
        if one.may_take(clock):
            self.version += 1
            self.record = record(name, self.version)
            if not lost:
                one = one.took(self.record, clock - late)
        else:
            one = one.lost()
        self.candidates[name] = one

    def leaders(self, now: float) -> list[str]:
        return [n for n, c in self.candidates.items() if c.leads(now + self.offsets[n])]


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["one", "two", "three"]),
            st.floats(0.0, 8.0),
            st.booleans(),
            st.floats(0.0, 3.0),
        ),
        max_size=60,
    ),
    offsets=st.tuples(*[st.floats(0.0, 1000.0)] * 3),
)
def test_never_two_leaders(
    steps: list[tuple[str, float, bool, float]], offsets: tuple[float, float, float]
) -> None:
    """Whoever looks when, whatever their clocks say and whichever answers are lost: one leads."""
    world = World(dict(zip(("one", "two", "three"), offsets, strict=True)))
    now = 0.0
    for name, pause, lost, late in steps:
        for share in (0.0, 0.5, 1.0):
            assert len(world.leaders(now + share * pause)) <= 1
        now += pause
        world.step(name, now, lost=lost, late=late)
