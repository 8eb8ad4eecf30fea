"""State of the model: the coordinator's view, the members, the table. Immutable, relative, finite.

Times are ticks since an event and generations count back from the group's, both with a limit: equal
situations are equal states, whenever they occur. Sets of partitions are bit masks.
"""

from typing import Final, NamedTuple

MEMBERS: Final = range(3)
PARTITIONS: Final = range(2)
SESSION_TICKS: Final = 2  # session timeout
REBALANCE_TICKS: Final = 3  # rebalance timeout
OLDEST: Final = 2  # generations back: an older claim is no different

OUTSIDE: Final = -1  # no generation: not in the group
NONE: Final = -1  # no such event

UP: Final = 0
FROZEN: Final = 1
DEAD: Final = 2


class Promise(NamedTuple):
    """What a member repeats to the next leader: the decision's number, and the promised partitions."""

    decision: int = 0
    partitions: int = 0
    is_only_round: bool = False


class Batch(NamedTuple):
    """A batch in flight; the records are [expected, next) of one partition."""

    partition: int
    expected: int
    next: int
    seen: int  # the table's offset when the flush began
    cancelled: bool = False  # revoked or lost: it may land, or not


class Member(NamedTuple):
    """A process with its consumer and lake writer."""

    life: int = UP
    cut: bool = False  # no request reaches the coordinator
    behind: int = OUTSIDE  # generations behind the group's
    owned: int = 0
    contact: int = SESSION_TICKS  # since the last answered request was sent
    stable: int = REBALANCE_TICKS  # since the last heartbeat without a rebalance, or join, was sent
    late: int = NONE  # since a heartbeat was sent whose answer is still on its way
    joining: int = NONE  # since JoinGroup was sent
    again: bool = False  # has revoked, so another round is due
    promise: Promise = Promise()
    positions: tuple[int, ...] = (0,) * len(PARTITIONS)  # next offset to read
    batch: Batch | None = None


class Claim(NamedTuple):
    """A JoinGroup that the coordinator holds."""

    owned: int
    behind: int
    promise: Promise


class Answer(NamedTuple):
    """A SyncGroup response on its way."""

    assigned: int
    behind: int
    promise: Promise


class Seat(NamedTuple):
    """The coordinator's view of a member."""

    known: bool = False
    silent: int = 0  # ticks since its last request
    claim: Claim | None = None
    answer: Answer | None = None


class State(NamedTuple):
    """All there is."""

    members: tuple[Member, ...]
    seats: tuple[Seat, ...]
    preparing: int  # ticks since the rebalance began, NONE in a stable group
    offsets: tuple[int, ...]  # the table's, by partition
    rows: tuple[tuple[int, ...], ...]  # how often the table has each record, by partition
    faults: int  # that may still happen
    # Generations back of the round by which a partition was released last, NONE before.
    released: tuple[int, ...] = (NONE,) * len(PARTITIONS)

    def with_member(self, number: int, member: Member) -> "State":
        """Return this with another member."""
        return self._replace(members=_put(self.members, number, member))

    def with_seat(self, number: int, seat: Seat) -> "State":
        """Return this with another seat."""
        return self._replace(seats=_put(self.seats, number, seat))


class Action(NamedTuple):
    """One step; `partition` is NONE if it concerns none."""

    name: str
    member: int = NONE
    partition: int = NONE

    def __str__(self) -> str:
        places = (str(number) for number in (self.member, self.partition) if number != NONE)
        return " ".join((self.name, *places))


def initial_states(records: int, faults: int) -> tuple[State, State]:
    """Return a group before its first join, and a stable one in which the last member is about to join."""
    empty = State(
        tuple(Member() for _ in MEMBERS),
        tuple(Seat() for _ in MEMBERS),
        NONE,
        (0,) * len(PARTITIONS),
        ((0,) * records,) * len(PARTITIONS),
        faults,
    )
    return empty, _with_owner_of_all(empty)


def _with_owner_of_all(state: State) -> State:
    owner = Member(behind=0, owned=(1 << len(PARTITIONS)) - 1, contact=0, stable=0)
    return state.with_member(0, owner).with_seat(0, Seat(known=True))


def _put(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])
